"""Lists: short lists of invented words that turn, run backwards, gain a word or go in pairs; write what comes next."""

from __future__ import annotations

import itertools
import re

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans

CATEGORY = "lists"


# --- a list that turns by one place -----------------------------------------------------------------------------------

_TURN = ((" ", "{row} /\n", 1), ("-", "> {row} <\n", -1), (".", "{row};\n", 1))


def _turn(dice: Dice, template: int) -> Spans:
    mark, line, by = _TURN[template]
    text, answer = "", ""
    for block in range(7):
        words = _loose(dice, 4, "cv")
        rows = [mark.join(words[(by * row + i) % 4] for i in range(4)) for row in range(4)]
        asked = 4 if block < 6 else dice.between(2, 3)
        text += "".join(line.format(row=row) for row in rows[:asked]) + ("\n" if block < 6 else "")
        answer = rows[asked % 4]
    return [(f"Turn each list:\n\n{text}next {line.split('{row}')[0]}", answer)]


def _solve_turn(prompt: str) -> set[str]:
    *blocks, last = [re.findall(r"\w\w[ .-]\w\w[ .-]\w\w[ .-]\w\w", block) for block in prompt.split("\n\n")[1:]]
    mark = last[0][2]
    steps = {
        step
        for step in (1, 3)
        if all(b.split(mark) == _turned(a.split(mark), step) for block in blocks for a, b in itertools.pairwise(block))
    }
    return {mark.join(_turned(last[-1].split(mark), step)) for step in steps}


def _turned(words: list[str], step: int) -> list[str]:
    return words[step:] + words[:step]


# --- a list from back to front ----------------------------------------------------------------------------------------

_BACK = ((3, "cvc", " ", "{a} => {b}\n"), (3, "cvc", ", ", "{a} from the end: {b};\n"), (4, "cv", "-", "{a} | {b} |\n"))


def _back(dice: Dice, template: int) -> Spans:
    count, shape, mark, line = _BACK[template]
    rows = [_loose(dice, count, shape) for _ in range(dice.between(10, 14))]
    text = "".join(line.format(a=mark.join(row), b=mark.join(row[::-1])) for row in rows[:-1])
    return [(text + line.split("{b}")[0].format(a=mark.join(rows[-1])), mark.join(rows[-1][::-1]))]


def _loose(dice: Dice, count: int, shape: str) -> list[str]:
    """Words that are new in their own row only: one prompt holds many rows."""
    return dice.again().words(count, shape)


def _solve_back(prompt: str) -> set[str]:
    asked = re.split(r" => | from the end: | \| ", prompt.split("\n")[-1])[0]
    (mark,) = set(re.findall(r"[^a-z]+", asked))
    return {mark.join(reversed(asked.split(mark)))}


# --- the word that was not there before -------------------------------------------------------------------------------

_NEW = (
    "before: {old}\nafter: {now}\nnew: {word}\n\n",
    "One box holds {old}. The other holds {now}. Only there: {word}\n\n",
    "{old} / {now} / {word}\n\n",
)
_NEW_MARK = (", ", " and ", " ")


def _new(dice: Dice, template: int) -> Spans:
    count = 4 if template == 1 else 5
    text, word = "", ""
    for _ in range(dice.between(4, 6)):
        *old, word = dice.words(count, "cvcv")
        now = _NEW_MARK[template].join(dice.shuffled([*old, word]))
        shown = _NEW_MARK[template].join(old)
        text += _NEW[template].format(old=shown, now=now, word=word)
    return [(text.removesuffix(f"{word}\n\n"), word)]


def _solve_new(prompt: str) -> set[str]:
    last = prompt.split("\n\n")[-1]
    old, now = re.split(r"\nafter: |The other holds | / ", last)[:2]
    words = set(re.findall(r"\w+", re.sub(r"\nnew: |Only there: ", "", now)))
    return words - set(re.findall(r"\w+", old)) - {"and"}


# --- two lists that go together ---------------------------------------------------------------------------------------

_PAIR = (
    ("Guests: {a}\nSeats: {b}\n\n", "{x} sits at {y}.\n"),
    ("first {a}\nsecond {b}\n\n", "{x} + {y} ok\n"),
    ("Boats are {a}.\nTheir owners, in this row, are {b}.\n\n", "The {x} belongs to {y}.\n"),
)


def _pair(dice: Dice, template: int) -> Spans:
    head, line = _PAIR[template]
    left, right = dice.names(11) if template == 0 else dice.words(11), dice.words(11)
    asked = dice.between(3, 9)
    text = head.format(a=", ".join(left), b=", ".join(right))
    text += "".join(line.format(x=x, y=y) for x, y in zip(left[:asked], right, strict=False))
    return [(text + line.split("{y}")[0].format(x=left[asked]), right[asked])]


def _solve_pair(prompt: str) -> set[str]:
    head, asked = prompt.split("\n\n")
    left, right = [re.findall(r"\b\w{5}\b(?=[,.\n]|$)", line) for line in head.split("\n")]
    words = re.findall(r"\w+", asked.split("\n")[-1])
    return {b for a, b in zip(left, right, strict=True) if a in words}


FAMILIES = (
    Family("list-turn", CATEGORY, 3, _turn, _solve_turn),
    Family("list-back", CATEGORY, 3, _back, _solve_back),
    Family("list-new", CATEGORY, 3, _new, _solve_new),
    Family("list-pair", CATEGORY, 3, _pair, _solve_pair),
)
