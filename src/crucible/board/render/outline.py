"""Answer, pictures, tables, facts -> one self-contained page, or its main picture alone. Knows no report and computes nothing.

Every page is read from the top: the answer in one or two sentences, then the picture, then the table, then how it was
measured. Words of ours and words from outside are kept apart, so that a condition called `<script>` stays a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from crucible.board import charts
from crucible.board.render.page import page

if TYPE_CHECKING:
    from altair.typing import ChartType


class Bit(NamedTuple):
    """A stretch of a sentence: ours, ours and important or in one piece, or a name that somebody else chose."""

    text: str
    kind: Literal["plain", "strong", "name", "strong name", "whole"] = "plain"


Sentence = tuple[Bit, ...]


def said(*bits: str | Bit) -> Sentence:
    return tuple(Bit(bit) if isinstance(bit, str) else bit for bit in bits)


def strong(text: str) -> Bit:
    return Bit(text, "strong")


def whole(text: str) -> Bit:
    """Never broken at the end of a line."""
    return Bit(text, "whole")


def name(text: str, *, important: bool = False) -> Bit:
    return Bit(text, "strong name" if important else "name")


@dataclass(frozen=True)
class Number:
    """One of the few numbers in large print."""

    label: str
    value: str
    more: Sentence


@dataclass(frozen=True)
class Table:
    """Rows of finished texts. The first `left` columns are words, the others are numbers; a marked row stands out."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A chart, its name, what it says in words for those who cannot see it, and how to read it."""

    title: str
    words: str
    draw: Callable[[int], ChartType]
    caption: Sentence


@dataclass(frozen=True)
class Section:
    title: str
    said: Sequence[Sentence] = ()
    picture: Picture | None = None
    tables: Sequence[Table] = ()
    folded: Sequence[tuple[str, Table]] = ()
    """Tables for those who want every number, behind a line that says what they are."""
    points: Sequence[Sentence] = ()


@dataclass(frozen=True)
class Outline:
    kind: str
    title: str
    lede: Sequence[Sentence]
    numbers: Sequence[Number]
    notes: Sequence[Sentence]
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str, bool]]
    """What it was made from: a word, a text, and whether the text is a digest or a path."""
    warning: Sentence = ()
    """Why nobody should use the numbers; at the very top."""


def html(outline: Outline) -> str:
    drawn = [
        charts.at_both_widths(one.picture.title, one.picture.words, one.picture.draw) if one.picture else None
        for one in outline.sections
    ]
    return page("loop_report.html", outline=outline, drawn=drawn)


def main_picture(outline: Outline) -> Picture | None:
    """The first one: what the page is about."""
    return next((one.picture for one in outline.sections if one.picture), None)


def svg(picture: Picture) -> bytes:
    return charts.alone(picture.draw(charts.WIDE), picture.title, picture.words).encode()


def png(picture: Picture) -> bytes:
    return charts.png(picture.draw(charts.WIDE), picture.title, picture.words)
