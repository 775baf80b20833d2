"""A secret seed -> a small exam from four toy families, the same every time. Not the exam of the official track.

Each family has two surface templates and follows the exam's rules: a prompt ends with its delimiter including the space;
candidates have one length, so that none is the beginning of another; a terminator belongs to an answer only where the
prompt shows it; a number sequence has one continuation under every rule a reader may think of; words of public and hidden
questions are disjoint.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from crucible.ari.exam.questions import Header, Question, encode
from crucible.errors import BadConfig

Side = Literal["public", "hidden"]
MIN_SEED_BYTES = 16
_T = TypeVar("_T")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


class _Dice:
    """Draws from `random()` alone: the only sequence Python promises to keep, so an exam rebuilds on any version."""

    def __init__(self, seed: bytes, side: Side) -> None:
        self._random = random.Random(
            int.from_bytes(hashlib.sha512(side.encode() + b"\0" + seed).digest(), "big")
        ).random
        self._side = side

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def pick(self, items: Sequence[_T]) -> _T:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]

    def words(self, count: int, syllables: int) -> list[str]:
        """Distinct invented words of one length; whether a word is public or hidden is decided by its digest."""
        found: list[str] = []
        while len(found) < count:
            word = "".join(self.pick(_CONSONANTS) + self.pick(_VOWELS) for _ in range(syllables)) + self.pick(
                _CONSONANTS
            )
            if word not in found and side_of(word) == self._side:
                found.append(word)
        return found


def side_of(word: str) -> Side:
    """The pool a word belongs to: half of all words each, disjoint by construction."""
    return "hidden" if hashlib.sha256(word.encode()).digest()[0] & 1 else "public"


Made = tuple[str, str]
"""Prompt and answer."""


def _record(dice: _Dice, template: int) -> Made:
    """Find one field of one record."""
    words = dice.words(18, 2)
    names, places, goods = words[:6], words[6:12], words[12:]
    asked = dice.below(6)
    if template == 0:
        rows = [f"name: {n}; home: {p}; trade: {g}" for n, p, g in zip(names, places, goods, strict=True)]
        return "\n".join(rows) + f"\n\nThe home of {names[asked]} is ", places[asked]
    rows = [f"{n} | {p} | {g}" for n, p, g in zip(names, places, goods, strict=True)]
    return "who | where | what\n" + "\n".join(rows) + f"\n\nwhat, for {names[asked]} = ", goods[asked]


def _glossary(dice: _Dice, template: int) -> Made:
    """Translate a pair of words with a vocabulary given in the prompt."""
    foreign, own = dice.words(5, 1), dice.words(5, 2)
    meaning = dict(zip(foreign, own, strict=True))
    pairs = [(a, b) for a in foreign for b in foreign if a != b]
    shown, asked = dice.shuffled(pairs)[:2]

    def say(pair: tuple[str, str]) -> str:
        return " ".join(meaning[word] for word in pair)

    if template == 0:
        lines = [f"{word} means {meaning[word]}." for word in dice.shuffled(foreign)]
        return " ".join(lines) + f"\n{' '.join(shown)} -> {say(shown)}\n{' '.join(asked)} -> ", say(asked)
    lines = [f"  {meaning[word]}: {word}" for word in dice.shuffled(foreign)]
    return "Words:\n" + "\n".join(lines) + f"\nSay '{' '.join(shown)}': {say(shown)}\nSay '{' '.join(asked)}': ", say(
        asked
    )


def _numbers(dice: _Dice, template: int) -> Made:
    """Continue a sequence; drawn again until every rule that fits agrees on the next number."""
    while True:
        first = 2 + dice.below(60)
        if template == 0:
            step = 3 + dice.below(40)
            terms = [first + step * i for i in range(6)]
        else:
            step, growth = 2 + dice.below(12), 1 + dice.below(6)
            terms = [first + step * i + growth * i * (i - 1) // 2 for i in range(7)]
        if continuations(terms[:-1]) == {terms[-1]}:
            break
    shown = ", ".join(map(str, terms[:-1]))
    if template == 0:
        return f"Count on: {shown}, ", f"{terms[-1]},"
    return f"series [{shown}, ", f"{terms[-1]},"


def continuations(terms: Sequence[int]) -> set[int]:
    """What comes next under each rule that the terms obey: step, second difference, ratio, Fibonacci, interleave."""
    deltas = [b - a for a, b in itertools.pairwise(terms)]
    seconds = [b - a for a, b in itertools.pairwise(deltas)]
    found: set[int] = set()
    if len(set(deltas)) == 1:
        found.add(terms[-1] + deltas[-1])
    if len(seconds) > 1 and len(set(seconds)) == 1:
        found.add(terms[-1] + deltas[-1] + seconds[-1])
    if terms[0] and all(b * terms[0] == a * terms[1] for a, b in itertools.pairwise(terms)):
        found.add(terms[-1] * terms[1] // terms[0])
    if all(a + b == c for a, b, c in zip(terms, terms[1:], terms[2:], strict=False)):
        found.add(terms[-2] + terms[-1])
    halves = terms[0::2], terms[1::2]
    steps = [{b - a for a, b in itertools.pairwise(half)} for half in halves]
    if all(len(step) == 1 for step in steps):
        found.add(terms[-2] + steps[len(terms) % 2].pop())
    return found


def _rotation(dice: _Dice, template: int) -> Made:
    """Write the next line of a list that turns by one place, or by one place backwards."""
    words = dice.words(5, 1)
    turn = 1 if template == 0 else -1
    lines = [[words[(turn * row + i) % 5] for i in range(5)] for row in range(4)]
    if template == 0:
        return "".join(f"{' '.join(line)} /\n" for line in lines[:-1]) + "next: ", " ".join(lines[-1])
    return "Turn back:\n" + "".join(f"- {'.'.join(line)}\n" for line in lines[:-1]) + "- ", ".".join(lines[-1])


FAMILIES: dict[str, tuple[str, Callable[[_Dice, int], Made]]] = {
    "record-field": ("records", _record),
    "glossary-pair": ("local vocabularies", _glossary),
    "number-line": ("numeric sequences", _numbers),
    "turning-list": ("symbolic sequences", _rotation),
}
TEMPLATES = 2


def build(seed: bytes, count: int, side: Side) -> list[Question]:
    """`count` questions, the families and templates in turn, in an order that tells nothing."""
    dice = _Dice(seed, side)
    made: list[tuple[str, str, Made]] = []
    prompts: set[str] = set()
    while len(made) < count:
        family, (category, make) = list(FAMILIES.items())[len(made) % len(FAMILIES)]
        prompt, answer = make(dice, len(made) // len(FAMILIES) % TEMPLATES)
        if prompt not in prompts:
            prompts.add(prompt)
            made.append((category, family, (prompt, answer)))
    return [
        Question(f"{side}-{place:04d}", category, family, prompt.encode(), answer.encode())
        for place, (category, family, (prompt, answer)) in enumerate(dice.shuffled(made), 1)
    ]


def build_exam(seed: bytes, count: int, protocol_version: str) -> bytes:
    """The bytes of a hidden exam; the salt comes from the seed too, so that the same seed gives the same file."""
    if len(seed) < MIN_SEED_BYTES:
        raise BadConfig(
            f"the secret seed has {len(seed)} bytes, at least {MIN_SEED_BYTES} (128 bits) are needed",
            fix="head -c 32 /dev/urandom > SECRET && chmod 600 SECRET",
        )
    salt = hashlib.sha256(b"salt\0" + seed).hexdigest()
    return encode(build(seed, count, "hidden"), Header(1, protocol_version, salt))
