"""A template and values -> one HTML page in which every text from outside stays text. Knows no report.

Escaping covers markup. Characters that a page would obey or hide (control, direction, invisible) are shown as escapes instead,
because a model's name must not be able to reorder or hide the words around it.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from itertools import groupby
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

DASH, MINUS = "–", "\N{MINUS SIGN}"
KEPT = "\n\t\u200c\u200d"
"""Line breaks and tabs, and the joiners that Persian, Indic scripts and emoji need: these hide and reorder nothing."""
UNSHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
FOLD_AT, FOLD_LINES = 600, 8
"""Texts longer than this are kept whole, in a box that scrolls."""


def page(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("crucible.board.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for function in (pieces, visible, share, between, signed, decimal, count):
        environment.filters[function.__name__] = function
    environment.tests["long"] = is_long
    return environment


# --- text --------------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A stretch of text as it stands, or escapes that we wrote: marked, so that they differ from the same letters in a text."""

    text: str
    escapes: str | None
    """The names of the characters that the escapes stand for."""


def pieces(text: str) -> list[Piece]:
    """For the body of a page."""
    return [
        Piece("".join(map(_spelled, run)), ", ".join(map(_named, run))) if hidden else Piece("".join(run), None)
        for hidden, run in ((hidden, list(run)) for hidden, run in groupby(text, _hidden))
    ]


def visible(text: str) -> str:
    """For attributes, titles and charts, where nothing can be marked: escapes as plain letters."""
    return "".join(_spelled(c) if _hidden(c) else c for c in text)


def is_long(text: str) -> bool:
    return len(text) > FOLD_AT or text.count("\n") > FOLD_LINES


def _hidden(c: str) -> bool:
    return not c.isprintable() and c not in KEPT and unicodedata.category(c) in UNSHOWN


def _spelled(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _named(c: str) -> str:
    return unicodedata.name(c, "control character").lower()


# --- numbers -----------------------------------------------------------------------------------------------------------


def share(value: float | None) -> str:
    return DASH if value is None or not math.isfinite(value) else f"{value * 100:.1f}%"


def between(ends: tuple[float, float] | None) -> str:
    return DASH if ends is None else f"{ends[0] * 100:.1f}–{ends[1] * 100:.1f}%"


def signed(value: float | None, digits: int = 4) -> str:
    """Margins: the sign is the message, so a plus is written too; what rounds to zero has none."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def decimal(value: float | None, digits: int = 2) -> str:
    text = signed(value, digits)
    return text.removeprefix("+")


def count(value: int | None) -> str:
    return DASH if value is None else f"{value:,}"
