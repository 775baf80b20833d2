"""A seed -> synthetic documents with marked answers: the mix an engineer would write who knows the brief and not the exam.

Written anew for the calibration, from the brief's one sentence about the exam; it imports nothing of ours and shares no
template and no word list with the exam's generators. Needs the standard library only.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Document = list[tuple[str, bool]]
"""Pieces of text in order, and whether each is an answer."""

_FILLERS = """the of a to in for is was on at by with from and then there here now this that each one two who what when where will
has had gives gets takes holds keeps makes finds called named known listed found under over after before next last first old new
red blue small large north south answer result value entry note item see so yes it they she he we"""
FILLERS = _FILLERS.split()
JOINS = (
    ": ",
    " = ",
    " -> ",
    " => ",
    " is ",
    " | ",
    " - ",
    "; ",
    ", ",
    " : ",
    " ~ ",
    " >> ",
    " / ",
    "=",
    " means ",
    " gives ",
)
ENDS = ("\n", ".\n", ";\n", "\n\n", " / ", ". ", "; ", " | ", "]\n", ")\n")


def document(rng: random.Random) -> Document:
    return rng.choice(TASKS)(rng)


# --- words -------------------------------------------------------------------------------------------------------------


def word(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 6)))
    syllables = [
        rng.choice("bcdfghjklmnprstvwz")
        + rng.choice("aeiou")
        + rng.choice(("", "", "n", "r", "l", "s", "t", "k", "m", "d"))
        for _ in range(rng.randint(1, 3))
    ]
    made = "".join(syllables)
    return made.capitalize() if kind > 0.75 else made


def words(rng: random.Random, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        one = word(rng)
        if one not in found:
            found.append(one)
    if rng.random() < 0.5:  # one spelling for all, as in most lists
        found = list(dict.fromkeys(one.capitalize() if found[0][0].isupper() else one.lower() for one in found))
    return found if len(found) == count else words(rng, count)


def phrase(rng: random.Random, most: int = 3) -> str:
    return " ".join(rng.choices(FILLERS, k=rng.randint(0, most)))


def template(rng: random.Random, slots: int) -> list[str]:
    """Text around so many slots; the last piece leads up to the answer and ends with a delimiter or a space."""
    pieces = [phrase(rng) for _ in range(slots + 1)]
    pieces = [f"{piece} " if piece else "" for piece in pieces[:1]] + [
        f" {piece} ".replace("  ", " ") for piece in pieces[1:]
    ]
    if rng.random() < 0.5:
        pieces[-1] = rng.choice(JOINS)
    return pieces


def filled(pieces: list[str], values: list[str]) -> str:
    return "".join(piece + value for piece, value in zip(pieces, [*values, ""], strict=True))


# --- one rule shown many times -------------------------------------------------------------------------------------------


def rows(rng: random.Random, make: Callable[[], tuple[str, str]], least: int = 5, most: int = 18) -> Document:
    """Worked lines of one rule; every line after the second can be worked out, so every one of them counts as an answer."""
    end, made = rng.choice(ENDS), []
    begin = rng.choice(("", "", "", "- ", "[", "(", f"{rng.choice(FILLERS)} "))
    for place in range(rng.randint(least, most)):
        question, answer = make()
        made += [(begin + question, False), (answer, place > 1), (end, False)]
    return made


def text_rule(rng: random.Random) -> Document:
    length, join = rng.randint(3, 7), rng.choice(JOINS)
    cut, shift = rng.randint(1, 3), rng.choice((1, 2, 3, -1, -2))
    affix, upper = word(rng), rng.random() < 0.2
    rules: list[Callable[[str], str]] = [
        lambda s: s[::-1],
        lambda s: s + s,
        lambda s: s + s[::-1],
        lambda s: s[::-1] + s,
        lambda s: "".join(c + c for c in s),
        lambda s: s[:cut],
        lambda s: s[-cut:],
        lambda s: s[cut:] + s[:cut],
        lambda s: affix + s,
        lambda s: s + affix,
        lambda s: s[1:],
        lambda s: s[:-1],
        lambda s: s,
        lambda s: s[0] + "." + s[1:],
        lambda s: "".join(chr((ord(c) - 97 + shift) % 26 + 97) for c in s),
    ]
    rule = rng.choice(rules)

    def make() -> tuple[str, str]:
        source = "".join(rng.sample("abcdefghijklmnopqrstuvwxyz", length))
        made = rule(source)
        return source + join, made.upper() if upper else made

    return rows(rng, make, 8, 24)


def token_rule(rng: random.Random) -> Document:
    """Some of several words, in some order, perhaps shortened: the same places in every line."""
    count, seps = (
        rng.randint(2, 5),
        [rng.choice((" ", ", ", " | ", "; ", ": ", " <", " (", ".", "/")) for _ in range(5)],
    )
    taken = rng.sample(range(count), rng.randint(1, min(3, count)))
    cuts = [rng.choice((99, 99, 99, 1, 3)) for _ in taken]
    between, join, cases = (
        rng.choice((" ", "-", ":", ".", ", ", "")),
        rng.choice(JOINS),
        rng.choice((str, str, str.upper, str.lower)),
    )
    numeric = [rng.random() < 0.25 for _ in range(count)]

    def make() -> tuple[str, str]:
        values = [str(rng.randint(10, 99)) if is_number else word(rng) for is_number in numeric]
        line = "".join(value + sep for value, sep in zip(values, seps, strict=False))
        return line.rstrip(" <(") + join, cases(
            between.join(values[at][:cut] for at, cut in zip(taken, cuts, strict=True))
        )

    return rows(rng, make)


def marked_rule(rng: random.Random) -> Document:
    """The word that a mark points at, wherever it stands."""
    before, after = rng.choice(
        (("", "!"), ("*", "*"), ("<", ">"), ("[", "]"), ("no ", ""), ("ref ", ""), ("@", ""), ("#", ""), ("", "?"))
    )
    decoy = rng.choice(("", "", "(", "x "))
    join, count = rng.choice(JOINS), rng.randint(3, 7)
    coded = rng.random() < 0.4

    def make() -> tuple[str, str]:
        line = words(rng, count)
        at, other = rng.sample(range(count), 2)
        if coded:
            line[at] = f"{rng.choice('ABCDEFGH')}{rng.randint(0, 9)}-{rng.randint(10, 99)}"
            line[other] = f"{rng.choice('ABCDEFGH')}{rng.randint(0, 9)}-{rng.randint(10, 99)}"
        answer = line[at]
        line[at], line[other] = f"{before}{answer}{after}", f"{decoy}{line[other]}" + (")" if decoy == "(" else "")
        return " ".join(line) + join, answer

    return rows(rng, make)


def cipher(rng: random.Random) -> Document:
    """A key of symbols, then words written in it; the key holds everything."""
    count = rng.randint(4, 8)
    sources = rng.sample(rng.choice(("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")), count)
    size = rng.randint(1, 3)
    key = {source: "".join(rng.sample("abcdefghijklmnopqrstuvwxyz", size)) for source in sources}
    if rng.random() < 0.3:
        key = dict(zip(sources, words(rng, count), strict=True))
    gap = " " if max(map(len, key.values())) > 3 else ""
    sep, mark, join, length = (
        rng.choice((", ", "; ", " ", "\n")),
        rng.choice(JOINS),
        rng.choice(JOINS),
        rng.randint(2, 5),
    )
    head = phrase(rng) + rng.choice((": ", ":\n", "\n")) + sep.join(f"{a}{mark}{b}" for a, b in key.items()) + "\n"
    back = rng.random() < 0.2

    def make() -> tuple[str, str]:
        chosen = rng.choices(sources, k=length)
        plain, coded = gap.join(chosen), gap.join(key[one] for one in chosen)
        return (coded + join, plain) if back else (plain + join, coded)

    return [(head, False), *rows(rng, make, 6, 18)]


def set_rule(rng: random.Random) -> Document:
    """Two lists in each line: what only one of them has, or what both have."""
    count, sep, middle, join = (
        rng.randint(2, 5),
        rng.choice((", ", " ", " and ", "-")),
        rng.choice((" / ", "; ", "\n", " | ", " vs ")),
        rng.choice(JOINS),
    )
    common = rng.random() < 0.3

    def make() -> tuple[str, str]:
        one = words(rng, count)
        new = next(w for w in iter(lambda: word(rng), None) if w not in one)
        other = [*rng.sample(one, count), new]
        rng.shuffle(other)
        if common:
            new = rng.choice(one)
            other = [new, *(w for w in words(rng, count) if w not in one)]
            rng.shuffle(other)
        return f"{sep.join(one)}{middle}{sep.join(other)}{join}", new

    return rows(rng, make, 3, 9)


# --- sequences -----------------------------------------------------------------------------------------------------------


def numbers(rng: random.Random) -> Document:
    kind, length = rng.choice(("step", "step", "growth", "ratio", "turns", "sum")), rng.randint(4, 8)
    sep, end, begin = (
        rng.choice((", ", " ", " > ", "; ", "-", " , ")),
        rng.choice((";\n", ".\n", "]\n", "\n", ")\n")),
        rng.choice(("", "[", "(", "n ")),
    )

    def terms() -> list[int]:
        a, b, c = rng.randint(1, 150), rng.randint(1, 30), rng.randint(1, 9)
        if kind == "step":
            line = [a + b * i for i in range(length)]
            return line if rng.random() < 0.6 else line[::-1]
        if kind == "growth":
            return [a + c * i + (b % 7 + 1) * i * (i - 1) // 2 for i in range(length)]
        if kind == "ratio":
            return [(a % 60 + 1) * (2 + c % 2) ** i for i in range(min(length, 6))]
        if kind == "sum":
            line = [c, b]
            while len(line) < length:
                line.append(line[-1] + line[-2])
            return line
        return [(a if i % 2 == 0 else 5 * b) + (c if i % 2 == 0 else b - 15) * (i // 2) for i in range(max(length, 6))]

    made: Document = []
    for _ in range(rng.randint(6, 15)):
        *shown, last = terms()
        made += [
            (begin + "".join(f"{term}{sep}" for term in shown), False),
            (f"{last}{end.strip()}", True),
            ("\n" if end.endswith("\n") else "", False),
        ]
    return made


def clock(rng: random.Random) -> Document:
    name_it, sep = rng.random() < 0.7, rng.choice((", ", " ", " - ", "; "))
    join = rng.choice(JOINS)

    def make() -> tuple[str, str]:
        at, gap, count = rng.randint(240, 1000), rng.randint(2, 60), rng.randint(3, 6)
        times = [f"{t // 60:02d}:{t % 60:02d}" for t in range(at, at + gap * (count + 1), gap)][: count + 1]
        return (word(rng) + join if name_it else "") + "".join(f"{t}{sep}" for t in times[:-1]), times[-1]

    return rows(rng, make, 6, 12)


def cycle(rng: random.Random) -> Document:
    """A pattern that repeats, or turns by one each time."""
    items, sep = words(rng, rng.randint(2, 6)), rng.choice((" ", ", ", ".", "-", "\n", ";\n"))
    if rng.random() < 0.5:
        days = rng.choice((["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], [str(n) for n in range(1, 100)]))
        first, tail, join = rng.randint(0, 6), phrase(rng), rng.choice(JOINS)
        made: Document = []
        for place in range(rng.randint(len(items) * 2, len(items) * 4)):
            made += [
                (f"{days[(first + place) % len(days)]}{join}", False),
                (items[place % len(items)], place >= len(items)),
                (f" {tail}\n" if tail else "\n", False),
            ]
        return made
    step, made = rng.choice((1, 1, 2, -1)), []
    for _ in range(rng.randint(3, 7)):
        items = words(rng, len(items))
        for turn in range(rng.randint(3, 4)):
            made += [(sep.join(items), turn > 1), ("\n", False)]
            items = items[step:] + items[:step]
        made.append(("\n", False))
    return made


# --- things to look up ---------------------------------------------------------------------------------------------------


def table(rng: random.Random) -> Document:
    """Entries with fields, written one way or another; then questions about fields, or about who has them."""
    entries, columns = rng.randint(3, 8), rng.randint(1, 4)
    names, labels = words(rng, entries), words(rng, columns)
    fields = [
        words(rng, entries) if rng.random() < 0.75 else [str(rng.randint(10, 999)) for _ in range(entries)]
        for _ in labels
    ]
    style, a, b = rng.randrange(4), rng.choice(JOINS), rng.choice(("; ", ", ", " | ", " "))
    around = template(rng, columns + 1)
    lines = []
    for row, name in enumerate(names):
        values = [column[row] for column in fields]
        if style == 0:
            lines.append(
                f"{name}{a}" + b.join(f"{label}{a}{value}" for label, value in zip(labels, values, strict=True))
            )
        elif style == 1:
            lines.append(b.join([name, *values]))
        elif style == 2:
            lines.append(
                f"[{name}]\n" + "\n".join(f"{label}{a}{value}" for label, value in zip(labels, values, strict=True))
            )
        else:
            lines.append(filled(around, [name, *values]).strip())
    head = b.join([rng.choice(FILLERS), *labels]) + "\n" if style == 1 else ""
    mark = rng.choice((". ", "\n")) if style == 3 else "\n"
    made: Document = [(head + mark.join(lines) + rng.choice((".\n\n", "\n\n", "\n")), False)]
    kind, end = rng.randrange(3), rng.choice(("\n", ".\n", ";\n"))
    asked, column = template(rng, 1 if columns == 1 and kind == 0 else 2), rng.randrange(columns)
    for _ in range(rng.randint(2, 6)):
        row = rng.randrange(entries)
        column = rng.randrange(columns) if style != 3 and kind != 2 else column
        if kind == 0:
            made += [
                (filled(asked, [labels[column], names[row]][-len(asked) + 1 :]), False),
                (fields[column][row], True),
            ]
        elif kind == 1:
            made += [(filled(asked, [labels[column], fields[column][row]]), False), (names[row], True)]
        else:
            made += [(filled(asked[-2:], [names[row]]), False), (fields[column][row], True)]
        made.append((end, False))
    return made


def neighbours(rng: random.Random) -> Document:
    """An ordered list; what stands before or after, or at the same place of another list."""
    count, end = rng.randint(4, 11), rng.choice(("\n", ".\n", ";\n"))
    one, other = words(rng, count), words(rng, count)
    sep, asked = rng.choice((", ", "\n", " ", "; ")), template(rng, 1)
    timed = sorted(rng.sample(range(300, 1300, 5), count))
    kind = rng.choice(("before", "after", "zip", "zip"))
    if kind == "zip":
        mark = rng.choice((": ", " "))
        head = f"{phrase(rng)}{mark}{sep.join(one)}\n{phrase(rng)}{mark}{sep.join(other)}\n\n"
        places = range(rng.randint(3, count)) if rng.random() < 0.5 else rng.sample(range(count), 3)
        pairs = [(one[at], other[at]) for at in places]
    else:
        clocks = [f"{t // 60:02d}:{t % 60:02d} " for t in timed] if rng.random() < 0.7 else [""] * count
        head = (
            "\n".join(f"{clock}{name} {extra}" for clock, name, extra in zip(clocks, one, other, strict=True)) + "\n\n"
        )
        move = -1 if kind == "before" else 1
        places = rng.sample(range(1, count - 1), min(4, count - 2))
        pairs = [(one[at], one[at + move]) for at in places]
    made: Document = [(head, False)]
    for place, (left, right) in enumerate(pairs):
        made += [(filled(asked, [left]), False), (right, kind == "zip" or place > 0), (end, False)]
    return made


def story(rng: random.Random) -> Document:
    """Things change hands; the last word about each is what counts."""
    count = rng.randint(3, 7)
    things, people = words(rng, count), words(rng, count + 4)
    article = rng.choice(("the ", "", "a "))
    first, later, asked = template(rng, 2), template(rng, 2), template(rng, 1)
    swap = rng.random() < 0.5
    state = dict(zip(things, people, strict=False))
    lines = [filled(first, ([f"{article}{t}", p] if swap else [p, f"{article}{t}"])).strip() for t, p in state.items()]
    for thing, person in zip(rng.sample(things, min(2, count)), people[count:], strict=False):
        state[thing] = person
        lines.append(filled(later, ([f"{article}{thing}", person] if swap else [person, f"{article}{thing}"])).strip())
    made: Document = [(". ".join(lines) + ".\n\n", False)]
    for thing in rng.sample(things, min(3, count)):
        made += [
            (filled(asked, [f"{article}{thing}"]), False),
            (state[thing], True),
            (rng.choice((".\n", "\n")), False),
        ]
    return made


def copies(rng: random.Random) -> Document:
    """The same passage twice."""
    text = " ".join(words(rng, rng.randint(8, 30)))
    return [(text + rng.choice(("\n", " / ", " = ")), False), (text, True), ("\n", False)]


TASKS: tuple[Callable[[random.Random], Document], ...] = (
    text_rule, text_rule, token_rule, token_rule, marked_rule, cipher, cipher, set_rule, numbers, numbers, clock, cycle,
    table, table, table, table, neighbours, neighbours, story, story, copies,
)  # fmt: skip
