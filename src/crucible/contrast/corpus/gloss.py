"""The gloss of a synset -> its definition and its quoted examples. Knows WordNet's habits and typing errors, no files.

A gloss reads `definition; "example"; "another" - Its Author`. In the files some quotes are never closed, some stand inside
a definition (`in the phrase "make strides"`), and some examples hold a quote where an apostrophe was meant. No text is
refused: what cannot be told apart stays in the piece it stands in.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPENS_EXAMPLE = re.compile(r"(^|[;:,.)])\s*$")
"""What stands before the first example. Anything else before a quote makes it a quoted phrase of the definition."""

_LEAD_IN = re.compile(r"[\s;:,]*(\b(as in|e\.g\.|for example)[\s;:,]*)*$")
_EDGES = " \t;,"


class Gloss(NamedTuple):
    definition: str
    examples: tuple[str, ...]


def split(gloss: str) -> Gloss:
    """Never fails; either part may be empty. Authors and remarks after an example are dropped."""
    definition, rest = _definition(gloss)
    examples = []
    while rest:
        end = _end_of_example(rest)
        examples.append(" ".join(rest[:end].strip(_EDGES).split()))
        if _opens(rest, end):  # the closing quote is missing: this one opens the next example
            rest = rest[end + 1 :]
        else:
            rest = rest[end + 1 :].partition('"')[2]
    return Gloss(" ".join(definition.split()), tuple(example for example in examples if example))


def _definition(gloss: str) -> tuple[str, str]:
    """The definition, and what follows the quote that opens the first example."""
    start = 0
    while (quote := gloss.find('"', start)) >= 0:
        if _OPENS_EXAMPLE.search(gloss[:quote]):
            return _LEAD_IN.sub("", gloss[:quote]).strip(), gloss[quote + 1 :]
        closing = gloss.find('"', quote + 1)
        if closing < 0:
            break
        start = closing + 1
    return gloss.strip(_EDGES), ""


def _end_of_example(text: str) -> int:
    """Where the quote is that ends the example `text` begins with; the end of the text if there is none."""
    place = text.find('"')
    while place >= 0:
        inner = text[place - 1 : place].isalnum() and text[place + 1 : place + 2].isalnum()
        if not inner:  # `I"m siding against him` goes on
            return place
        place = text.find('"', place + 1)
    return len(text)


def _opens(text: str, quote: int) -> bool:
    """`…several lobes; "compound flower heads"`: a quote after a semicolon and a space, with a word right behind it."""
    return text[:quote].endswith("; ") and text[quote + 1 : quote + 2].strip(_EDGES) != ""
