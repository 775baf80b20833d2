"""Numeric sequences: worked rows of one rule, then a row that stops; drawn again until only one number can come next."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Make, Spans

CATEGORY = "numeric sequences"

_SURFACES = (("", ", ", ";\n"), ("row ", " ", ".\n"), ("[", " > ", "]\n"))
"""What begins a row, what stands between its terms, and the terminator that every worked row shows."""


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


def _maker(rows: int, draw: Callable[[Dice], list[int]]) -> Make:
    def make(dice: Dice, template: int) -> Spans:
        begin, mark, end = _SURFACES[template]
        drawn: list[list[int]] = []
        while len(drawn) < rows:
            terms = draw(dice)
            if continuations(terms[:-1]) == {terms[-1]} and terms[-1] >= 0 and terms not in drawn:
                drawn.append(terms)
        text = "".join(f"{begin}{mark.join(map(str, terms))}{end}" for terms in drawn[:-1])
        *shown, answer = drawn[-1]
        return [(text + begin + "".join(f"{term}{mark}" for term in shown), f"{answer}{end.rstrip()}")]

    return make


def _solve(prompt: str) -> set[str]:
    *worked, asked = prompt.split("\n")
    (end,) = {line[-1] for line in worked}
    return {f"{term}{end}" for term in continuations([int(term) for term in re.findall(r"\d+", asked)])}


def _step(dice: Dice) -> list[int]:
    """Equal steps, up or down."""
    step, first = dice.between(2, 25), dice.between(1, 160)
    terms = [first + step * i for i in range(6)]
    return terms if dice.below(3) else terms[::-1]


def _growth(dice: Dice) -> list[int]:
    """Steps that grow by the same amount."""
    first, step, growth = dice.between(1, 90), dice.between(1, 9), dice.between(1, 6)
    return [first + step * i + growth * i * (i - 1) // 2 for i in range(6)]


def _turns(dice: Dice) -> list[int]:
    """Two sequences in turn."""
    a, b = dice.between(1, 60), dice.between(61, 200)
    up, down = dice.between(1, 9), dice.pick((-9, -7, -5, -3, -2, -1, 1, 2, 3, 4, 6, 8))
    return [(a if place % 2 == 0 else b) + (up if place % 2 == 0 else down) * (place // 2) for place in range(8)]


def _ratio(dice: Dice) -> list[int]:
    """Each the same multiple of the one before."""
    ratio = dice.pick((2, 2, 3))
    first = dice.between(2, 90 if ratio == 2 else 35)
    return [first * ratio**i for i in range(6)]


FAMILIES = (
    Family("number-step", CATEGORY, 3, _maker(14, _step), _solve),
    Family("number-growth", CATEGORY, 3, _maker(15, _growth), _solve),
    Family("number-turns", CATEGORY, 3, _maker(11, _turns), _solve),
    Family("number-ratio", CATEGORY, 3, _maker(14, _ratio), _solve),
)
