"""A kind of word and a side -> the pool of words that questions of that side may use. Draws nothing.

Whether a word is public or hidden is decided by its digest, so the two pools are disjoint by construction and nobody has to
keep two lists apart. Invented words are spelled by shape: c a consonant, v a vowel, m two consonants in the middle.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from typing import Literal

from crucible.errors import BadConfig

Side = Literal["public", "hidden"]
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
_MIDDLES = "lb lm lt ld mb mp nd nk nt rb rd rk rm rn rv sk sp st"
_LETTERS = {"c": list(CONSONANTS), "v": list(VOWELS), "m": _MIDDLES.split()}
_UNWANTED = "nig fag rap tit pis kak naz fuk dik kok kum kun sek gas pus pup kil mur sod vag"
"""Invented words that hold one of these would not read as invented."""

_ENGLISH = {
    "things": """anvil apron barrel basket bell bench blanket bottle bowl broom bucket candle carpet chain chest chisel cloak
        clock compass cradle crown curtain drum fiddle flag flute fork funnel glove hammer harp helmet hook jar kettle ladder
        lamp lantern lens lock map mask mirror mug nail needle net oar paddle pillow pipe plough pot pump quilt rake ribbon
        ring rope saddle saw scale scarf shield shovel sickle sledge spade spoon stool sword table tent ticket torch tray
        trumpet trunk umbrella vase violin wagon wheel whistle""",
    "animals": """badger bear beaver bull calf camel cat crow deer dog donkey dove duck falcon ferret finch fox frog goat
        goose hare hawk hen heron horse lamb lizard mole monkey moth mouse mule newt parrot pig pony rabbit rat raven robin
        seal sheep snail sparrow squirrel stork swan toad turtle weasel wolf wren""",
    "labels": """badge boat bread bridge cabin camp canal class club coat colour crop dance dish dock drink farm ferry field
        flower fruit game gate guild harbour hill hobby home horn inn island lane market meal metal mill oath orchard park
        path pier port prize river road room school shop song spice sport square star stone street tea team tool tower trade
        tree valley village ward well wine wood yard""",
    "sentences": """It rained all morning.|The wind came from the north.|Nobody spoke for a while.|Smoke rose over the roofs.
        The shops were shut.|Snow lay on the fields.|The night was cold and clear.|A cart blocked the way.|Someone sang far off.
        The water was high that week.|Lamps were lit early.|There was little to eat.|It was the end of summer.|The dogs barked.
        No letter came.|The bridge was being mended.|Fog hid the far bank.|They rested under a tree.|The price had gone up.
        It was market day.|The moon was almost full.|All the inns were full.|A child waved from a window.|The road was dusty.
        Birds flew over in long lines.|The harvest was late.|Frost had cracked the pump.|Every bench was taken.
        The mill stood still.|A storm was coming in.|The ferry was late again.|Two of them were tired.|The fire went out twice.
        It grew dark before five.|The soup was thin.|Grass grew between the stones.|A drum was heard somewhere.
        The keys were never found.|Everybody knew the story.|The paint was still wet.""",
}


def side_of(word: str) -> Side:
    """The pool a word belongs to: half of all words each, whatever their case."""
    return "hidden" if hashlib.sha256(word.lower().encode()).digest()[0] & 1 else "public"


@functools.cache
def invented(shape: str, side: Side) -> tuple[str, ...]:
    """Every invented word of a shape on one side, in the order of the alphabet."""
    unwanted = _UNWANTED.split()
    spelled = map("".join, itertools.product(*(_LETTERS[letter] for letter in shape)))
    return tuple(word for word in spelled if side_of(word) == side and not any(bad in word for bad in unwanted))


@functools.cache
def english(kind: str, side: Side) -> tuple[str, ...]:
    """The words, or the sentences, of a small pool on one side."""
    if kind not in _ENGLISH:
        raise BadConfig(f"no pool of words is called {kind!r}", fix=f"One of: {', '.join(_ENGLISH)}.")
    text = _ENGLISH[kind]
    found = [part.strip() for part in text.replace("\n", "|").split("|")] if "|" in text else text.split()
    return tuple(word for word in found if word and side_of(word) == side)
