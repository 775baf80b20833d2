"""Records: a handful of entries with labelled fields; find a field, find an entry, or write what its fields spell."""

from __future__ import annotations

import re
from collections.abc import Callable

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans, quiz

CATEGORY = "records"
_ROWS = (4, 5, 4)
Table = tuple[list[str], list[str], list[list[str]]]
"""Names, labels, and the fields of each name."""


def _table(dice: Dice, rows: int) -> Table:
    names, labels = dice.names(rows), dice.english("labels", 3)
    columns = [dice.words(rows) for _ in labels]
    return names, labels, [list(fields) for fields in zip(*columns, strict=True)]


def _written(table: Table, template: int) -> str:
    names, labels, rows = table
    if template == 0:
        return "\n".join(
            f"name: {name}; " + "; ".join(f"{label}: {field}" for label, field in zip(labels, row, strict=True))
            for name, row in zip(names, rows, strict=True)
        )
    if template == 1:
        lines = [f"{name} | {' | '.join(row)} |" for name, row in zip(names, rows, strict=True)]
        return f"name | {' | '.join(labels)} |\n" + "\n".join(lines)
    return "\n".join(
        f"[{name}]\n" + "\n".join(f"{label} = {field}" for label, field in zip(labels, row, strict=True))
        for name, row in zip(names, rows, strict=True)
    )


def _read(text: str) -> dict[str, dict[str, str]]:
    """The table again, from whichever way it is written."""
    if text.startswith("name: "):
        pairs = [dict(part.split(": ") for part in line.split("; ")) for line in text.split("\n")]
        return {entry.pop("name"): entry for entry in pairs}
    if text.startswith("name | "):
        head, *lines = [line.strip("| ").split(" | ") for line in text.split("\n")]
        return {cells[0]: dict(zip(head[1:], cells[1:], strict=True)) for cells in lines}
    cards = re.findall(r"\[(\w+)\]\n((?:\w+ = \w+\n?)+)", text)
    return {name: dict(re.findall(r"(\w+) = (\w+)", body)) for name, body in cards}


# --- a field of an entry, twice ---------------------------------------------------------------------------------------

_FIELD = ("The {label} of {name} is ", "{label} for {name}: ", "Under {name}, the {label} given is ")


def _field(dice: Dice, template: int) -> Spans:
    table = _table(dice, _ROWS[template])
    names, labels, rows = table
    asked = [
        (_FIELD[template].format(label=labels[column], name=names[place]), rows[place][column])
        for place, column in dice.sample([(place, column) for place in range(len(names)) for column in range(3)], 5)
    ]
    return quiz(f"{_written(table, template)}\n\n", asked, 3, "\n")


def _solve_field(prompt: str) -> set[str]:
    text, asked = prompt.split("\n\n")
    question = set(re.findall(r"\w+", asked.split("\n")[-1]))
    return {
        field
        for name, entry in _read(text).items()
        for label, field in entry.items()
        if name in question and label in question
    }


# --- the entry that has a field ---------------------------------------------------------------------------------------

_KEY = ("The {label} {field} was entered by ", "{field} as {label} is said of ", "With the {label} {field} we have ")


def _key(dice: Dice, template: int) -> Spans:
    table = _table(dice, _ROWS[template])
    names, labels, rows = table
    asked = [
        (_KEY[template].format(label=labels[column], field=rows[place][column]), names[place])
        for place, column in dice.sample([(place, column) for place in range(len(names)) for column in range(3)], 5)
    ]
    return quiz(f"{_written(table, template)}\n\n", asked, 3, "\n")


def _solve_key(prompt: str) -> set[str]:
    text, asked = prompt.split("\n\n")
    question = set(re.findall(r"\w+", asked.split("\n")[-1]))
    return {name for name, entry in _read(text).items() if question & set(entry.values())}


# --- a code that the fields spell -------------------------------------------------------------------------------------

_CODE: tuple[tuple[str, Callable[[str, str, int], str]], ...] = (
    ("{a} {b}, {n} -> ", lambda a, b, n: f"{b[:3].upper()}-{n}"),
    ("no. {n} {b}, {a}: ", lambda a, b, n: f"{n}.{a[:3].lower()}"),
    ("{b} ({n}) {a} = ", lambda a, b, n: f"{a[0].lower()}{b[:3].lower()}{n}"),
)


def _code(dice: Dice, template: int) -> Spans:
    shown, spelled = _CODE[template]
    count = dice.between(13, 17)
    first, second = dice.names(count), dice.names(count)
    numbers = dice.sample(range(10, 100), count)
    lines = [(shown.format(a=a, b=b, n=n), spelled(a, b, n)) for a, b, n in zip(first, second, numbers, strict=True)]
    *before, (asked, answer) = lines
    return [("".join(f"{text}{code}\n" for text, code in before) + asked, answer)]


def _solve_code(prompt: str) -> set[str]:
    """Reads the rule from the examples: where each character of a code comes from in its own line."""
    *examples, asked = prompt.split("\n")
    pairs = [re.fullmatch(r"(.+(?:->|:|=) )(\S+)", line) for line in examples]
    known = [(found[1], found[2]) for found in pairs if found]
    answer = ""
    for place in range(len(known[0][1])):
        if len({code[place] for _, code in known}) == 1:
            answer += known[0][1][place]
            continue
        sources = [
            (word, letter)
            for word in range(len(re.findall(r"\w+", asked)))
            for letter in range(5)
            if all(_letter(text, word, letter) == code[place].lower() for text, code in known)
        ]
        ((word, letter),) = sources
        found = _letter(asked, word, letter)
        answer += found.upper() if known[0][1][place].isupper() else found
    return {answer}


def _letter(text: str, word: int, letter: int) -> str:
    parts: list[str] = re.findall(r"\w+", text)
    return parts[word][letter].lower() if letter < len(parts[word]) else ""


# --- the same entry, written another way ------------------------------------------------------------------------------

_ORDER = (
    ("{a}, {b}; seat {n} => ", "{b} {a}"),
    ("{n} {a} <{b}> => ", "{a}:{b}"),
    ("from {b} came {a} aged {n} => ", "{n} {a}"),
)


def _order(dice: Dice, template: int) -> Spans:
    shown, wanted = _ORDER[template]
    count = dice.between(10, 13)
    first, second = dice.names(count), dice.names(count)
    numbers = dice.sample(range(10, 100), count)
    lines = [
        (shown.format(a=a, b=b, n=n), wanted.format(a=a, b=b, n=n))
        for a, b, n in zip(first, second, numbers, strict=True)
    ]
    *before, (asked, answer) = lines
    return [("".join(f"{text}{made}\n" for text, made in before) + asked, answer)]


def _solve_order(prompt: str) -> set[str]:
    """Reads from the examples which word of a line goes where."""
    *examples, asked = prompt.split("\n")
    rules = set()
    for line in examples:
        text, made = line.split(" => ")
        parts = re.findall(r"\w+", text)
        gap = re.sub(r"\w+", "", made)
        rules.add((gap, tuple(parts.index(word) for word in re.findall(r"\w+", made))))
    ((gap, places),) = rules
    parts = re.findall(r"\w+", asked)
    return {gap.join(parts[place] for place in places)}


FAMILIES = (
    Family("record-field", CATEGORY, 3, _field, _solve_field),
    Family("record-key", CATEGORY, 3, _key, _solve_key),
    Family("record-code", CATEGORY, 3, _code, _solve_code),
    Family("record-order", CATEGORY, 3, _order, _solve_order),
)
