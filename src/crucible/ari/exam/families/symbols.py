"""Symbolic sequences: strings of letters that are mirrored, moved along the alphabet, expanded by rules or doubled."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans

CATEGORY = "symbolic sequences"
_ABC = "abcdefghijklmnopqrstuvwxyz"


def _lines(line: str, pairs: list[tuple[str, str]], end: str) -> Spans:
    """Worked lines, then one that stops where the answer begins."""
    *before, (asked, answer) = pairs
    text = "".join(line.format(a=a, b=b) + end for a, b in before)
    return [(text + line.split("{b}")[0].format(a=asked), answer)]


# --- a string in the mirror -------------------------------------------------------------------------------------------

_MIRROR = (("{a} | {b}", "\n", 6), ("<{a} {b}>", "\n", 5), ("{a}: {b}", ";  ", 5))


def _mirror(dice: Dice, template: int) -> Spans:
    line, end, length = _MIRROR[template]
    strings = [dice.letters(length, _ABC) for _ in range(26)]
    return _lines(line, [(string, string[::-1]) for string in strings], end)


def _solve_mirror(prompt: str) -> set[str]:
    return {re.findall(r"[a-z]+", prompt)[-1][::-1]}


# --- letters that move along the alphabet -----------------------------------------------------------------------------

_SHIFT = ((1, "{a} {b}", " ", "\n"), (-1, "{a}, {b}", ", ", "\n"), (2, "[{a} > {b}]", " > ", "\n"))


def _shift(dice: Dice, template: int) -> Spans:
    step, line, mark, end = _SHIFT[template]
    pairs = []
    for _ in range(17):
        places = dice.sample(range(7, 26) if step < 0 else range(26 - 3 * step), 4)
        terms = ["".join(_ABC[place + step * i] for place in places) for i in range(4)]
        pairs.append((mark.join(terms[:-1]), terms[-1]))
    return _lines(line, pairs, end)


def _solve_shift(prompt: str) -> set[str]:
    terms = re.findall(r"[a-z]+", prompt.split("\n")[-1])
    steps = {ord(b) - ord(a) for x, y in itertools.pairwise(terms) for a, b in zip(x, y, strict=True)}
    return {"".join(chr(ord(letter) + step) for letter in terms[-1]) for step in steps}


# --- strings that rules expand ----------------------------------------------------------------------------------------

_REWRITE = (("{x}={y} ", "{a} => {b}", 3, 2), ("{x}: {y}, ", "({a}) {b}", 3, 2), ("{y} for {x}; ", "{a} / {b}", 2, 3))


def _rewrite(dice: Dice, template: int) -> Spans:
    rule, line, length, width = _REWRITE[template]
    capitals = dice.letters(5, _ABC.upper())
    rules = {capital: dice.letters(width, _ABC) for capital in capitals}
    keys = sorted({a + b + c for a in capitals for b in capitals for c in (capitals if length == 3 else [""])})
    shown = dice.sample(keys, 22)
    head = "".join(rule.format(x=capital, y=rules[capital]) for capital in capitals)
    pairs = [(string, "".join(rules[capital] for capital in string)) for string in shown]
    ((text, answer),) = _lines(line, pairs, "\n")
    return [(f"Rules: {head.rstrip(' ,;')}\n{text}", answer)]


def _solve_rewrite(prompt: str) -> set[str]:
    head, *_, asked = prompt.removeprefix("Rules: ").split("\n")
    rules = dict(re.findall(r"([A-Z])(?:=|: )([a-z]+)", head))
    rules |= {capital: text for text, capital in re.findall(r"([a-z]+) for ([A-Z])", head)}
    return {"".join(rules[capital] for capital in re.findall(r"[A-Z]", asked))}


# --- strings that are doubled -----------------------------------------------------------------------------------------

_DOUBLE: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("{a} -> {b}", lambda s: "".join(letter * 2 for letter in s)),
    ("{a} = {b}", lambda s: s[::-1] + s),
    ("{a}, {b}.", lambda s: s + s[0] + s),
)


def _double(dice: Dice, template: int) -> Spans:
    line, made = _DOUBLE[template]
    strings = [dice.letters(4, _ABC) for _ in range(24)]
    return _lines(line, [(string, made(string)) for string in strings], "\n")


def _solve_double(prompt: str) -> set[str]:
    """Reads from the examples which letter of a string stands at each place of what it becomes."""
    *examples, asked = [re.findall(r"[a-z]+", line) for line in prompt.split("\n")]
    shapes = {tuple(string.index(letter) for letter in made) for string, made in examples}
    return {"".join(asked[0][place] for place in shape) for shape in shapes}


FAMILIES = (
    Family("symbol-mirror", CATEGORY, 3, _mirror, _solve_mirror),
    Family("symbol-shift", CATEGORY, 3, _shift, _solve_shift),
    Family("symbol-rewrite", CATEGORY, 3, _rewrite, _solve_rewrite),
    Family("symbol-double", CATEGORY, 3, _double, _solve_double),
)
