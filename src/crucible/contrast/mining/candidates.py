"""Events -> candidates for mining, and for every anchor what may stand against it and what never may. Runs no model.

A candidate is an anchor, always an example, and a positive of the same sense: an example, or a gloss with style `glosses`, and
the negatives are of the positive's kind. The rules are those of `corpus/build.py`, told in terms of texts:

    taken          every text of the anchor's sense, and of every synset that an event of that sense names
    within_lemma   texts of the same word (lemma and part of speech) that are not taken
    sibling        texts of senses that share a group or are named as siblings, unless they are taken or of the same word
    cross_lemma    all texts of the same part of speech, unless they are taken, of the same word or already in the sibling pool

Texts are compared normalised, and one event stands for all that read alike: the pools of an anchor share no text, so a lineup
never holds one twice.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crucible.contrast.bundle import Bundle, normalised
from crucible.contrast.corpus.build import STYLES, Draft
from crucible.contrast.corpus.events import Event
from crucible.contrast.mining.topk import Rows
from crucible.errors import BadConfig

Pos = str | None


class Candidate(NamedTuple):
    """Anchor and positive are numbers of events in the catalogue."""

    id: str
    anchor: int
    positive: int


class Catalogue:
    """All events, numbered in the order of their ids, whatever order the file had; and who is related to whom."""

    def __init__(self, events: Iterable[Event], style: str | None = None) -> None:
        self.events = sorted(events, key=lambda event: event.event_id)
        numbers: dict[str, int] = {}
        self.text = [numbers.setdefault(normalised(event.text), len(numbers)) for event in self.events]
        self.style = style or self._usual_style()
        if self.style not in STYLES:
            raise BadConfig(f"no style is called {style!r}", fix=f"Choose one of {', '.join(STYLES)}.")
        answer = "gloss" if self.style == "glosses" else "example"
        self.of_name: dict[str, set[int]] = defaultdict(set)
        self.names_of: dict[str, set[str]] = defaultdict(set)
        self.anchors_of: dict[str, list[int]] = defaultdict(list)
        self.answers_of: dict[str, list[int]] = defaultdict(list)
        self.of_word: dict[object, list[int]] = defaultdict(list)
        self.of_group: dict[str, list[int]] = defaultdict(list)
        self.column_of: dict[Pos, dict[int, int]] = defaultdict(dict)
        self.columns: dict[Pos, list[int]] = defaultdict(list)
        for number, event in enumerate(self.events):
            text = self.text[number]
            for name in (event.meaning, event.sense):  # the events of one sense may name different synsets
                self.names_of[event.sense].add(name)
                self.of_name[name].add(text)
            if event.shape == "example":
                self.anchors_of[event.sense].append(number)
            if event.shape != answer:
                continue
            self.answers_of[event.sense].append(number)
            self.of_word[event.word].append(number)
            for group in event.groups:
                self.of_group[group].append(number)
            if text not in self.column_of[event.pos]:
                self.column_of[event.pos][text] = len(self.columns[event.pos])
                self.columns[event.pos].append(number)

    def _usual_style(self) -> str:
        examples = {
            (event.sense, text) for event, text in zip(self.events, self.text, strict=True) if event.shape == "example"
        }
        pairs = any(count > 1 for count in Counter(sense for sense, _ in examples).values())
        return "examples" if pairs or all(event.shape == "example" for event in self.events) else "glosses"

    @property
    def senses(self) -> int:
        return len(self.names_of)

    def taken(self, anchor: int) -> set[int]:
        """Texts that mean the same as the anchor, or read like one that does."""
        names = self.names_of[self.events[anchor].sense]
        return set().union(*(self.of_name[name] for name in names))

    def within(self, anchor: int, taken: set[int]) -> list[int]:
        return self._one_a_text(self.of_word.get(self.events[anchor].word, ()), taken)

    def siblings(self, anchor: int, taken: set[int]) -> list[int]:
        event = self.events[anchor]
        related = {number for group in event.groups for number in self.of_group.get(group, ())}
        related.update(number for sense in event.siblings for number in self.answers_of.get(sense, ()))
        return self._one_a_text(sorted(related), taken | self._of_same_word(anchor))

    def not_across(self, anchor: int, taken: set[int], siblings: Iterable[int]) -> list[int]:
        """The columns of the anchor's part of speech that are no cross-lemma negatives of it, in rising order."""
        texts = taken | self._of_same_word(anchor) | {self.text[number] for number in siblings}
        column_of = self.column_of[self.events[anchor].pos]
        return sorted(column_of[text] for text in texts if text in column_of)

    def _of_same_word(self, anchor: int) -> set[int]:
        return {self.text[number] for number in self.of_word.get(self.events[anchor].word, ())}

    def _one_a_text(self, numbers: Sequence[int], without: set[int]) -> list[int]:
        first: dict[int, int] = {}
        for number in numbers:
            if self.text[number] not in without:
                first.setdefault(self.text[number], number)
        return list(first.values())


class Known:
    """What an existing tier 3 already holds."""

    def __init__(self, bundles: Iterable[Bundle]) -> None:
        self.senses: set[str] = set()
        self.pairs: set[tuple[str | None, str, str]] = set()
        for bundle in bundles:
            if bundle.sense is not None:
                self.senses.add(bundle.sense)
            self.pairs.add((bundle.sense, normalised(bundle.anchor), normalised(bundle.positive)))

    def has_pair(self, anchor: Event, positive: Event) -> bool:
        """The same question, with whatever negatives: every equal signature is among these. A bundle that names no sense counts
        by its texts alone."""
        texts = normalised(anchor.text), normalised(positive.text)
        return (anchor.sense, *texts) in self.pairs or (None, *texts) in self.pairs


@dataclass(frozen=True)
class Chosen:
    """In the order of part of speech, sense and id; and how many were left out because they are known."""

    candidates: list[Candidate]
    known_sense: int = 0
    known_pair: int = 0
    beyond_limit: int = 0


def choose(
    catalogue: Catalogue,
    known: Known,
    *,
    per_sense: int,
    seed: int,
    limit: int | None = None,
    allow_known_senses: bool = False,
) -> Chosen:
    """At most `per_sense` pairs of every sense, drawn with a generator of the sense's own: the same whatever else is there."""
    found: list[tuple[int, int]] = []
    known_sense = known_pair = 0
    for sense in sorted(catalogue.anchors_of):
        pairs = list(_pairs(catalogue, sense, per_sense, seed))
        if sense in known.senses and not allow_known_senses:
            known_sense += len(pairs)
            continue
        fresh = [pair for pair in pairs if not known.has_pair(*(catalogue.events[number] for number in pair))]
        known_pair += len(pairs) - len(fresh)
        found += fresh
    candidates = _named(catalogue, found)
    beyond = max(0, len(candidates) - limit) if limit is not None else 0
    if beyond:
        candidates = sorted(candidates, key=lambda one: key_of(seed, one.id, "limit"))[:limit]
    order = sorted(candidates, key=lambda one: (_place(catalogue.events[one.anchor]), one.id))
    return Chosen(order, known_sense, known_pair, beyond)


def key_of(seed: int, candidate: str, what: str = "lineups") -> int:
    """64 bits that belong to this seed and this candidate."""
    return int.from_bytes(hashlib.sha256(f"{what} {seed} {candidate}".encode()).digest()[:8], "little")


def text_rows(catalogue: Catalogue, candidates: Iterable[Candidate]) -> tuple[list[str], Rows]:
    """The distinct texts that need a vector, and for every event the row of its text; -1 where none is needed."""
    needed = {number for numbers in catalogue.answers_of.values() for number in numbers}
    needed.update(one.anchor for one in candidates)
    row_of: dict[str, int] = {}
    rows = np.full(len(catalogue.events), -1, dtype=np.int32)
    for number in sorted(needed):
        rows[number] = row_of.setdefault(catalogue.events[number].text, len(row_of))
    return list(row_of), rows


def _pairs(catalogue: Catalogue, sense: str, count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Anchors and positives that read differently, in random order; a sense may have a million of them and four are wanted."""
    one_a_text = catalogue._one_a_text
    anchors = one_a_text(catalogue.anchors_of[sense], set())
    positives = one_a_text(catalogue.answers_of.get(sense, ()), set())
    rng = random.Random(f"{seed} {catalogue.style} {sense}")
    moved: dict[int, int] = {}
    for left in range(len(anchors) * len(positives), 0, -1):
        place = int(rng.random() * left)
        first, second = divmod(moved.get(place, place), len(positives))
        moved[place] = moved.get(left - 1, left - 1)
        anchor, positive = anchors[first], positives[second]
        if catalogue.text[anchor] != catalogue.text[positive]:
            if not count:
                return
            count -= 1
            yield anchor, positive


def _named(catalogue: Catalogue, pairs: Sequence[tuple[int, int]]) -> list[Candidate]:
    """Ids like those of `bundles build`, with a mark of their own: the same pair may also stand in an older pool."""
    events = catalogue.events
    short = [f"mined:{Draft(events[anchor], events[positive], ()).id}" for anchor, positive in pairs]
    often = Counter(short)
    named = []
    for own, (anchor, positive) in zip(short, pairs, strict=True):
        if often[own] > 1:  # two positives may be called alike where their ids begin with the sense or not
            whole = f"{events[anchor].event_id}\0{events[positive].event_id}"
            own = f"{own}~{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
        named.append(Candidate(own, anchor, positive))
    return named


def _place(event: Event) -> tuple[str, str]:
    return event.pos or "", event.sense
