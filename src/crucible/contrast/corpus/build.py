"""Events -> bundles: an anchor, a positive of the same sense, and negatives that are drawn with a seed. Runs no model.

The anchor is an example. With style `examples` the positive and the negatives are examples too; with `glosses` they all are
glosses, so that the form of a text never gives the answer away. Negatives come from three places:

    within_lemma   other senses of the same word (lemma and part of speech)
    sibling        senses that share a group, such as a hypernym
    cross_lemma    any other word of the same part of speech

Nothing that means the same as the anchor (same sense or synset), or reads like a text that does, is ever a negative.
Every bundle draws from a generator of its own, seeded with the seed, the style and the id of its anchor: the same events
give the same bytes in whatever order they come, and a sample is a subset of the whole.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from crucible.contrast.bundle import NEGATIVE_SOURCES, normalised
from crucible.contrast.corpus.events import Event
from crucible.contrast.progress import Progress
from crucible.errors import BadConfig

Style = Literal["examples", "glosses"]
STYLES: tuple[str, ...] = get_args(Style)
_ANSWERS = {"examples": "example", "glosses": "gloss"}
WITHIN, SIBLING, CROSS = NEGATIVE_SOURCES


@dataclass(frozen=True)
class Plan:
    """What a bundle is made of, at most. With `within` above zero, a bundle needs one within-lemma negative."""

    style: str = "examples"
    within: int = 8
    sibling: int = 3
    cross_lemma: int = 3
    seed: int = 42

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise BadConfig(f"no style is called {self.style!r}", fix=f"Choose one of {', '.join(STYLES)}.")
        if min(self.within, self.sibling, self.cross_lemma) < 0 or not self.within + self.sibling + self.cross_lemma:
            raise BadConfig(
                f"{self.within} within-lemma, {self.sibling} sibling and {self.cross_lemma} cross-lemma negatives make no bundle",
                fix="Ask for at least one negative, and for none less than zero.",
            )


class Draft(NamedTuple):
    """A bundle before it is written."""

    anchor: Event
    positive: Event
    negatives: tuple[tuple[Event, str], ...]

    @property
    def id(self) -> str:
        """Unique as the anchor's id is; the positive is named by what its id does not share with the sense."""
        return f"{self.anchor.event_id}~{self.positive.event_id.removeprefix(self.anchor.sense).lstrip('/')}"

    def line(self) -> bytes:
        """In the nested-events format, without the line end."""
        about = {"lemma": self.anchor.word[0], "pos": self.anchor.pos, "synset": self.anchor.synset}
        nested = {
            "bundle_id": self.id,
            "anchor": _written(self.anchor),
            "positive": _written(self.positive),
            "negatives": [_written(event) | {"source": source} for event, source in self.negatives],
            "metadata": {"source": "bundle_generator"} | {k: v for k, v in about.items() if v is not None},
        }
        return msgspec.json.encode(nested)


@dataclass
class Built:
    drafts: list[Draft]
    available: int
    """How many there were before the limit."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Anchors that gave no bundle, by reason."""


def build(events: Iterable[Event], plan: Plan, *, limit: int | None = None, progress: Progress | None = None) -> Built:
    """One bundle for every example that has a positive and enough negatives; `limit` keeps a seeded sample of them."""
    if limit is not None and limit < 1:
        raise BadConfig(f"a limit of {limit} bundles", fix="Give a limit of at least 1, or none.")
    pools = _Pools(events, plan)
    left_out: Counter[str] = Counter()
    drafts = []
    for done, anchor in enumerate(pools.anchors):
        if progress and done % 256 == 0:
            progress(done, len(pools.anchors))
        made = pools.draft(anchor)
        if isinstance(made, Draft):
            drafts.append(made)
        else:
            left_out[made] += 1
    available = len(drafts)
    if limit is not None and limit < available:
        chosen = sorted(random.Random(f"{plan.seed} limit").sample(range(available), limit))
        drafts = [drafts[place] for place in chosen]
    return Built(drafts, available, left_out)


class _Pools:
    """Where positives and negatives are drawn from; every pool is in the order of ids, whatever order the events had."""

    def __init__(self, events: Iterable[Event], plan: Plan) -> None:
        self.plan = plan
        answer = _ANSWERS[plan.style]
        ordered = sorted(events, key=lambda event: event.event_id)
        self.anchors = [event for event in ordered if event.shape == "example"]
        self.texts = {event.event_id: normalised(event.text) for event in ordered}
        self.of_meaning: dict[str, set[str]] = defaultdict(set)
        self.of_sense: dict[str, list[Event]] = defaultdict(list)
        self.of_word: dict[object, list[Event]] = defaultdict(list)
        self.of_group: dict[str, list[Event]] = defaultdict(list)
        self.of_pos: dict[object, list[Event]] = defaultdict(list)
        for event in ordered:
            for name in {event.meaning, event.sense}:  # the events of one sense may name different synsets
                self.of_meaning[name].add(self.texts[event.event_id])
            if event.shape != answer:
                continue
            self.of_sense[event.sense].append(event)
            self.of_word[event.word].append(event)
            self.of_pos[event.pos].append(event)
            for group in event.groups:
                self.of_group[group].append(event)

    def draft(self, anchor: Event) -> Draft | str:
        """The bundle of an anchor, or why there is none."""
        plan = self.plan
        rng = random.Random(f"{plan.seed} {plan.style} {anchor.event_id}")
        text = self.texts[anchor.event_id]
        positives = [other for other in self.of_sense.get(anchor.sense, ()) if self.texts[other.event_id] != text]
        if not positives:
            return "no_positive"
        positive = rng.choice(positives)
        meanings = {anchor.meaning, anchor.sense, positive.meaning}
        taken = {known for name in meanings for known in self.of_meaning[name]}

        def drawn(pools: Iterable[Sequence[Event]], count: int, *, same_word: bool) -> list[Event]:
            found: list[Event] = []
            for other in _shuffled(rng, list(pools)):
                if len(found) == count:
                    break
                fits = (other.word == anchor.word) == same_word and not {other.meaning, other.sense} & meanings
                if fits and self.texts[other.event_id] not in taken:
                    taken.add(self.texts[other.event_id])
                    found.append(other)
            return found

        within = drawn([self.of_word.get(anchor.word, ())], plan.within, same_word=True)
        if plan.within and not within:
            return "no_within_lemma_negative"
        related = [self.of_group.get(group, ()) for group in anchor.groups]
        related += [self.of_sense.get(sense, ()) for sense in anchor.siblings]
        sibling = drawn(related, plan.sibling, same_word=False)
        cross = drawn([self.of_pos[anchor.pos]], plan.cross_lemma, same_word=False)
        negatives = [(WITHIN, within), (SIBLING, sibling), (CROSS, cross)]
        sourced = tuple((event, source) for source, chosen in negatives for event in chosen)
        return Draft(anchor, positive, sourced) if sourced else "no_negative"


def _shuffled(rng: random.Random, pools: Sequence[Sequence[Event]]) -> Iterator[Event]:
    """All events of the pools in random order, drawn one by one: a pool may hold 100,000 and three are wanted."""
    flat = pools[0] if len(pools) == 1 else [event for pool in pools for event in pool]
    moved: dict[int, int] = {}
    for last in range(len(flat) - 1, -1, -1):
        place = rng.randint(0, last)
        yield flat[moved.get(place, place)]
        moved[place] = moved.get(last, last)


def _written(event: Event) -> dict[str, Any]:
    return {"event_id": event.event_id, "sense": event.sense, "text": event.text}
