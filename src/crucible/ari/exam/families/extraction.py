"""Extraction: lines of noise that hold one wanted piece; worked lines show which piece that is."""

from __future__ import annotations

import re

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans

CATEGORY = "extraction"


def _worked(rows: list[tuple[str, str]], mark: str, end: str) -> Spans:
    *before, (asked, answer) = rows
    return [("".join(f"{text}{mark}{piece}{end}" for text, piece in before) + asked + mark, answer)]


# --- a code between marks ---------------------------------------------------------------------------------------------

_HOLDERS = (("[{code}]", "({code})"), ("<{code}>", "#{code}"), ("ref {code}", "no {code}"))
_CODE_MARK = (" => ", " gives ", " -- ")


def _code(dice: Dice, template: int) -> Spans:
    wanted, other = _HOLDERS[template]
    count = dice.between(10, 12)
    codes: list[str] = []
    while len(codes) < 2 * count:
        code = f"{dice.letters(1).upper()}{dice.below(10)}-{dice.between(10, 99)}"
        if code not in codes:
            codes.append(code)
    rows = []
    for right, wrong in zip(codes[:count], codes[count:], strict=True):
        pieces = [*dice.words(2, "cvcv"), wanted.format(code=right), other.format(code=wrong)]
        rows.append((" ".join(dice.shuffled(pieces)), right))
    return _worked(rows, _CODE_MARK[template], "\n")


def _solve_code(prompt: str) -> set[str]:
    """What stands around the code in every worked line stands around it in the last one."""
    *examples, asked = prompt.split("\n")
    before: set[str] = set()
    for line in examples:
        text, code = re.split(r" => | gives | -- ", line)
        before.add(text[: text.index(code)].split(" ")[-1] or " ".join(text[: text.index(code)].split(" ")[-2:]))
    (mark,) = before
    text = re.split(r" => | gives | -- ", asked)[0]
    return set(re.findall(rf"(?:^| ){re.escape(mark)}([A-Z]\d-\d\d)", text))


# --- one part of an address -------------------------------------------------------------------------------------------

_ADDRESS = (
    ("{a}@{b}.{c}", 1, " -> "),
    ("/{c}/{b}/{a}.txt", 0, " is file "),
    ("{c}?to={a}&by={b}", 1, " sent by "),
)


def _address(dice: Dice, template: int) -> Spans:
    shape, place, mark = _ADDRESS[template]
    rows = []
    for _ in range(12):
        a, b = dice.words(2)
        (c,) = dice.words(1, "cvc")
        rows.append((shape.format(a=a, b=b, c=c), (a, b)[place]))
    return _worked(rows, mark, "\n")


def _solve_address(prompt: str) -> set[str]:
    *examples, asked = prompt.split("\n")
    places = set()
    for line in examples:
        *parts, answer = re.findall(r"[a-z]+", re.sub(r" is file | sent by ", " ", line))
        places.add(parts.index(answer))
    (place,) = places
    return {re.findall(r"[a-z]+", asked)[place]}


# --- the letters that begin, or end, a row of words -------------------------------------------------------------------

_LETTERS = (("cvcv", " ", 0, " => "), ("cvc", "-", -1, " ends in "), ("cvcv", ", ", 0, ": "))


def _initials(dice: Dice, template: int) -> Spans:
    shape, mark, place, before = _LETTERS[template]
    rows = []
    for _ in range(11):
        fresh = dice.again()
        words = fresh.names(5, shape) if template == 2 else fresh.words(5, shape)
        rows.append((mark.join(words), "".join(word[place] for word in words)))
    return _worked(rows, before, ".\n")


def _solve_initials(prompt: str) -> set[str]:
    *examples, asked = prompt.split("\n")
    ends = set()
    for line in examples:
        *words, made = re.findall(r"[A-Za-z]+", line.replace(" ends in ", " "))
        ends |= {end for end in (0, -1) if "".join(word[end] for word in words) == made}
    return {"".join(word[end] for word in re.findall(r"[A-Za-z]+", asked.replace(" ends in ", " "))) for end in ends}


# --- the word that is marked ------------------------------------------------------------------------------------------

_MARKED = (
    ("- {word}\n", "- {word} *\n", "starred: "),
    ("{word}, ", ">{word}<, ", "found "),
    ("{word} ", "{word}! ", "= "),
)


def _marked(dice: Dice, template: int) -> Spans:
    plain, mark, before = _MARKED[template]
    rows = []
    for _ in range(8):
        words, wanted = dice.words(5), dice.below(5)
        text = "".join((mark if i == wanted else plain).format(word=word) for i, word in enumerate(words))
        rows.append((text, words[wanted]))
    return _worked(rows, before, "\n\n")


def _solve_marked(prompt: str) -> set[str]:
    last = prompt.split("\n\n")[-1]
    return {a or b or c for a, b, c in re.findall(r"- (\w+) \*|>(\w+)<|(\w+)!", last)}


FAMILIES = (
    Family("extract-code", CATEGORY, 3, _code, _solve_code),
    Family("extract-address", CATEGORY, 3, _address, _solve_address),
    Family("extract-letters", CATEGORY, 3, _initials, _solve_initials),
    Family("extract-marked", CATEGORY, 3, _marked, _solve_marked),
)
