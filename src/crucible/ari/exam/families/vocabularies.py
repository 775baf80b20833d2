"""Local vocabularies: words that mean something only inside the prompt, by a list, by an ending or by a code."""

from __future__ import annotations

import re
from collections.abc import Callable

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.family import Family, Spans, quiz

CATEGORY = "local vocabularies"


# --- translate a pair of words ----------------------------------------------------------------------------------------

_MEANS = ("{word} means {sense}. ", "{sense}: {word}\n", "({word}) {sense}, ")
_PAIR = ("{text} -> {said}\n", "Say '{text}': {said}\n", "{text} = {said};\n")


def _pair(dice: Dice, template: int) -> Spans:
    words, senses = dice.words(6, "cvc"), dice.words(6, "cvcv")
    sense = dict(zip(words, senses, strict=True))
    listed = "".join(_MEANS[template].format(word=word, sense=sense[word]) for word in dice.shuffled(words))
    pairs = dice.sample([(a, b) for a in words for b in words if a != b], 13)
    shown = [
        _PAIR[template].format(text=f"{a} {b}", said="*" if last else f"{sense[a]} {sense[b]}")
        for a, b, last in ((*pair, place == 12) for place, pair in enumerate(pairs))
    ]
    text = f"Words:\n{listed.rstrip(', ')}\n\n{''.join(shown)}".replace(". \n", ".\n").replace("\n\n\n", "\n\n")
    return [(text[: text.rindex("*")], f"{sense[pairs[-1][0]]} {sense[pairs[-1][1]]}")]


def _solve_pair(prompt: str) -> set[str]:
    listed, asked = prompt.removeprefix("Words:\n").split("\n\n")
    meaning = dict(re.findall(r"(\w+) means (\w+)\.", listed))
    meaning |= {word: sense for sense, word in re.findall(r"^(\w+): (\w+)$", listed, re.MULTILINE)}
    meaning |= dict(re.findall(r"\((\w+)\) (\w+)", listed))
    last = asked.split("\n")[-1].removeprefix("Say ")
    return {" ".join(meaning[word] for word in re.findall(r"\w+", last))}


# --- a local ending, or a local beginning -----------------------------------------------------------------------------

_AFFIX: tuple[tuple[str, Callable[[str, str, str], str]], ...] = (
    ("one {x}, many {made}.\n", lambda x, a, b: x + a),
    ("to {x}: a {made} does it;\n", lambda x, a, b: a + x),
    ("{x} -> {made} |\n", lambda x, a, b: b + x + b),
)


def _affix(dice: Dice, template: int) -> Spans:
    line, made = _AFFIX[template]
    stems = dice.words(dice.between(14, 18))
    (long,), (short,) = dice.words(1, "cvc"), dice.words(1, "cv")
    text = "".join(line.format(x=stem, made=made(stem, long, short)) for stem in stems[:-1])
    return [(text + line.split("{made}")[0].format(x=stems[-1]), made(stems[-1], long, short))]


def _solve_affix(prompt: str) -> set[str]:
    *examples, asked = prompt.split("\n")
    shapes = set()
    for line in examples:
        stem, derived = max(
            ((a, b) for a in re.findall(r"\w+", line) for b in re.findall(r"\w+", line) if a in b and a != b),
            key=lambda pair: len(pair[0]),
        )
        shapes.add(tuple(derived.split(stem)))
    ((before, after),) = shapes
    (stem,) = [word for word in re.findall(r"\w+", asked) if len(word) == 5]
    return {before + stem + after}


# --- a small dictionary, two questions to it --------------------------------------------------------------------------

_ENTRY = (
    "In the hills the {thing} is called {word} by all.\n",
    "{word} (noun): the {thing}, old or new\n",
    "{word} :: {thing} :: as in {stem}\n",
)
_ASKED = (
    "Up there, whoever needs the {thing} asks for the ",
    "Their word for the {thing} is ",
    "They call the {thing} ",
)


def _define(dice: Dice, template: int) -> Spans:
    things, words, stems = dice.english("things", 6), dice.words(6), dice.words(6, "cvc")
    listed = "".join(
        _ENTRY[template].format(thing=thing, word=word, stem=stem)
        for thing, word, stem in zip(things, words, stems, strict=True)
    )
    asked = [(_ASKED[template].format(thing=things[place]), words[place]) for place in dice.sample(range(6), 4)]
    return quiz(f"{listed}\n", asked, 2, ".\n")


def _solve_define(prompt: str) -> set[str]:
    listed, asked = prompt.split("\n\n")
    question = asked.split("\n")[-1]
    known = [(thing, word) for thing, word in re.findall(r"the (\w+) is called (\w+)", listed)]
    known += [(thing, word) for word, thing in re.findall(r"(\w+) \(noun\): the (\w+)", listed)]
    known += [(thing, word) for word, thing in re.findall(r"(\w+) :: (\w+) ::", listed)]
    return {word for thing, word in known if re.search(rf"the {thing} (?:asks|is|$)", question)}


# --- a code, letter by letter -----------------------------------------------------------------------------------------

_SIGN = ("{letter} is {sign}, ", "{letter}>{sign} ", "{sign}={letter}; ")
_CODED = ("{plain} is written {coded}\n", "{plain} >> {coded}\n", "{coded} reads {plain}\n")


def _cipher(dice: Dice, template: int) -> Spans:
    letters = dice.letters(7, "abcdefghijklmnopqrstuvwxyz")
    signs = dice.letters(7, "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if template == 1 else "0123456789")
    code = dict(zip(letters, signs, strict=True))
    key = "".join(_SIGN[template].format(letter=letter, sign=code[letter]) for letter in letters)
    words: list[str] = []
    while len(words) < 18:
        word = "".join(dice.pick(letters) for _ in range(5))
        if word not in words:
            words.append(word)
    lines = [_CODED[template].format(plain=word, coded="".join(code[letter] for letter in word)) for word in words]
    text = f"Key: {key.rstrip(' ,;')}.\n{''.join(lines)}".rstrip("\n")
    return [(text[:-5], text[-5:])]


def _solve_cipher(prompt: str) -> set[str]:
    key, *_, asked = prompt.removeprefix("Key: ").split("\n")
    pairs = [(letter, sign) for letter, sign in re.findall(r"(\w)(?: is |>)(\w)", key)]
    pairs += [(sign, letter) for sign, letter in re.findall(r"(\w)=(\w)", key)]
    table = dict(pairs)
    return {"".join(table[letter] for letter in asked.split(" ")[0])}


FAMILIES = (
    Family("glossary-pair", CATEGORY, 3, _pair, _solve_pair),
    Family("glossary-affix", CATEGORY, 3, _affix, _solve_affix),
    Family("glossary-define", CATEGORY, 3, _define, _solve_define),
    Family("glossary-code", CATEGORY, 3, _cipher, _solve_cipher),
)
