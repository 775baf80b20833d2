"""Small passages: a few sentences about invented people, and a question that only those sentences answer."""

from __future__ import annotations

import re

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans, quiz

CATEGORY = "small passages"


def _told(dice: Dice, sentences: list[str], fillers: int) -> str:
    """One paragraph; sentences that tell nothing stand between the others, never last."""
    told = list(sentences)
    for filler in dice.english("sentences", fillers):
        told.insert(dice.below(len(told)), filler)
    return " ".join(told)


# --- where somebody is in the end -------------------------------------------------------------------------------------

_FIRST = ("{who} set out for {town}.", "The road took {who} to {town}.", "{town} was where {who} spent the morning.")
_THEN = (
    "Later {who} went on to {town}.",
    "The road went on with {who} to {town}.",
    "{town} was where {who} came next.",
)
_WHERE = ("By nightfall {who} was in ", "The last town that saw {who} was ", "In the evening {who} could be found in ")


def _place(dice: Dice, template: int) -> Spans:
    people, towns = dice.names(5), dice.names(8, "cvmvc")
    sentences = [_FIRST[template].format(who=who, town=town) for who, town in zip(people, towns, strict=False)]
    last = dict(zip(people, towns, strict=False))
    for who, town in zip(dice.sample(people, dice.between(2, 3)), towns[5:], strict=False):
        sentences.append(_THEN[template].format(who=who, town=town))
        last[who] = town
    asked = [(_WHERE[template].format(who=who), last[who]) for who in dice.sample(people, 3)]
    return quiz(f"{_told(dice, sentences, 2)}\n\n", asked, 2, ".\n")


def _solve_place(prompt: str) -> set[str]:
    story, asked = prompt.split("\n\n")
    (who,) = set(re.findall(r"[A-Z]\w+", asked.split("\n")[-1])) - {"By", "The", "In"}
    seen = [
        sentence
        for sentence in re.findall(r"[^.]+\.", story)
        if re.search(rf"\b{who}\b", sentence) and len(re.findall(r"\b[A-Z][a-z]{4,5}\b", sentence)) >= 2
    ]
    return set(re.findall(r"\b[A-Z][a-z]{5}\b", seen[-1])) - {who}


# --- who holds a thing in the end -------------------------------------------------------------------------------------

_BOUGHT = (
    "{who} bought the {thing}.",
    "The {thing} was left to {who} by an aunt.",
    "{who} found the {thing} in the attic.",
)
_GAVE = (
    "Then {who} gave the {thing} to {other} for nothing.",
    "The {thing} was lent to {other} by {who}.",
    "A week later {other} won the {thing} from {who}.",
)
_WHOSE = (
    "In the end the {thing} belonged to ",
    "Whoever needs the {thing} must now ask ",
    "Today the {thing} is kept by ",
)


def _owner(dice: Dice, template: int) -> Spans:
    people, things = dice.names(7), dice.english("things", 5)
    holder = dict(zip(things, dice.sample(people, 5), strict=True))
    sentences = [_BOUGHT[template].format(who=who, thing=thing) for thing, who in holder.items()]
    for thing in dice.sample(things, dice.between(2, 3)):
        other = dice.pick([person for person in people if person not in holder.values()])
        sentences.append(_GAVE[template].format(who=holder[thing], thing=thing, other=other))
        holder[thing] = other
    asked = [(_WHOSE[template].format(thing=thing), holder[thing]) for thing in dice.sample(things, 3)]
    return quiz(f"{_told(dice, sentences, 1)}\n\n", asked, 2, ".\n")


def _solve_owner(prompt: str) -> set[str]:
    story, asked = prompt.split("\n\n")
    thing = re.findall(r"the (\w+) ", asked)[-1]
    last = [sentence for sentence in re.findall(r"[^.]+\.", story) if re.search(rf"\b[Tt]he {thing}\b", sentence)][-1]
    patterns = (
        rf"gave the {thing} to (\w+)",
        r"lent to (\w+)",
        r"left to (\w+)",
        r"later (\w+) won",
        r"^ ?(\w+) (?:bought|found)",
    )
    return {name for pattern in patterns for name in re.findall(pattern, last)}


# --- who said it ------------------------------------------------------------------------------------------------------

_SAID = (
    '"{Verb} the {thing}," said {who} at {hour}.',
    "{who} was asked at {hour} to {verb} the {thing}.",
    "{who} ({hour}): did you {verb} the {thing} today?",
)
_WHO = (
    "The one who spoke of the {thing} was ",
    "It is for the {thing} that they need ",
    "A question about the {thing} came from ",
)
_VERBS = ("fetch", "clean", "mend", "sell", "hide", "bring", "paint", "wrap")


def _speaker(dice: Dice, template: int) -> Spans:
    people, things = dice.names(6), dice.english("things", 6)
    lines = []
    for who, thing in zip(people, things, strict=True):
        verb, hour = dice.pick(_VERBS), dice.pick(("noon", "dawn", "dusk", "midnight", "breakfast", "supper"))
        lines.append(_SAID[template].format(who=who, thing=thing, verb=verb, Verb=verb.capitalize(), hour=hour))
    asked = [(_WHO[template].format(thing=things[place]), people[place]) for place in dice.sample(range(6), 3)]
    return quiz("\n".join(lines) + "\n\n", asked, 2, ".\n")


def _solve_speaker(prompt: str) -> set[str]:
    story, question = prompt.split("\n\n")
    thing = re.findall(r"the (\w+) ", question)[-1]
    lines = [line for line in story.split("\n") if re.search(rf"\bthe {thing}\b", line)]
    return {found[1] for line in lines if (found := re.search(r"(?:^|said )([A-Z][a-z]{4})\b", line))}


# --- pets, with two questions to a passage ----------------------------------------------------------------------------

_KEEPS = ("{who} keeps a {animal} called {pet}, as all know.", "The {animal} of {who} will come if {pet} is called.")
_NAME = ("The {animal} is called ", "To see the {animal}, shout ")
_KEEPER = ("{pet} lives in the house of ", "When {pet} is lost, tell ")


def _pet(dice: Dice, template: int) -> Spans:
    people, pets, animals = dice.names(5), dice.names(5), dice.english("animals", 5)
    sentences = [
        _KEEPS[template].format(who=who, pet=pet, animal=animal)
        for who, pet, animal in zip(people, pets, animals, strict=True)
    ]
    asked = []
    for turn, place in enumerate(dice.sample(range(5), 4)):
        if turn % 2:
            asked.append((_KEEPER[template].format(pet=pets[place]), people[place]))
        else:
            asked.append((_NAME[template].format(animal=animals[place]), pets[place]))
    return quiz(f"{_told(dice, sentences, 1)}\n\n", asked, 2, ".\n")


def _solve_pet(prompt: str) -> set[str]:
    story, asked = prompt.split("\n\n")
    question = asked.split("\n")[-1]
    kept = [(who, animal, pet) for who, animal, pet in re.findall(r"(\w+) keeps a (\w+) called (\w+),", story)]
    kept += [(who, animal, pet) for animal, who, pet in re.findall(r"The (\w+) of (\w+) will come if (\w+) is", story)]
    animals = {pet for _, animal, pet in kept if re.search(rf"\bthe {animal}\b", question, re.IGNORECASE)}
    owners = {who for who, _, pet in kept if re.search(rf"\b{pet}\b", question)}
    return animals | owners


FAMILIES = (
    Family("passage-place", CATEGORY, 3, _place, _solve_place),
    Family("passage-owner", CATEGORY, 3, _owner, _solve_owner),
    Family("passage-speaker", CATEGORY, 3, _speaker, _solve_speaker),
    Family("passage-pet", CATEGORY, 2, _pet, _solve_pet),
)
