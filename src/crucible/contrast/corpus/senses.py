"""Synsets -> events: each example under the words it really uses, and each definition under every word. Draws nothing.

A synset holds several words, and most of its examples use only one of them: "The patient is respiring" shows `respire`,
not `breathe`. An example is therefore an event of those words of its synset that occur in it, in whatever form; one that
uses none of them shows none of them. Examples of one or two words say too little to tell senses apart and are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from crucible.contrast.corpus import inflect
from crucible.contrast.corpus.events import Event
from crucible.contrast.corpus.wordnet import Database, Synset

MIN_WORDS = 3
"""An example of fewer words is left out."""


@dataclass
class Harvest:
    """What a database gave, and what was left behind and why."""

    events: list[Event] = field(default_factory=list)
    examples: int = 0
    """Different examples of a synset, whatever their length."""
    left_out: Counter[str] = field(default_factory=Counter)


def harvest(database: Database, *, glosses: bool) -> Harvest:
    """All example events; with `glosses`, the definition of every sense as well."""
    found = Harvest()
    for synset in database.synsets:
        found.events.extend(_examples(synset, found))
        if glosses and synset.definition:
            found.events.extend(_event(synset, place, "gloss") for place in range(len(synset.words)))
    return found


def _examples(synset: Synset, found: Harvest) -> Iterator[Event]:
    seen: set[str] = set()
    for number, text in enumerate(synset.examples, 1):
        if text in seen:
            found.left_out["repeated"] += 1
            continue
        seen.add(text)
        found.examples += 1
        if len(text.split()) < MIN_WORDS:
            found.left_out["too_short"] += 1
            continue
        forms = inflect.forms(text, synset.pos)
        users = [place for place, word in enumerate(synset.words) if inflect.uses(word.lemma, forms)]
        if not users:
            found.left_out["uses_no_word_of_its_synset"] += 1
        for place in users:
            yield _event(synset, place, f"e{number}", text)


def _event(synset: Synset, place: int, tail: str, example: str | None = None) -> Event:
    word = synset.words[place]
    sense = f"{word.lemma}#{word.key}"
    return Event(
        event_id=f"{sense}/{tail}",
        sense=sense,
        text=synset.definition if example is None else example,
        lemma=word.lemma,
        pos=synset.pos,
        synset=synset.id,
        kind="gloss" if example is None else "example",
        group=synset.hypernyms,
    )
