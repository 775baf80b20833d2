"""A bundle file -> bundles (anchor, positive, negatives), every line checked. Does not score, tier or intern anything.

One JSON object a line: {"anchor": "…", "positive": "…", "negatives": ["…"]}, optionally with "id" (or "bundle_id").
A line that is not that is refused with file, line and field; nothing is dropped and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from crucible.documents import open_input
from crucible.errors import BadData

MAX_LINE = 16 << 20
"""Longer lines are refused before they are parsed: a bundle of 16 MiB is a broken file, not a bundle."""

_SHAPE_FIX = 'Each line must be {"anchor": "…", "positive": "…", "negatives": ["…", …]}.'


class Bundle(msgspec.Struct, frozen=True):
    """One question to an embedding model: is the positive closer to the anchor than every negative?"""

    id: str
    anchor: str
    positive: str
    negatives: tuple[str, ...]


class _FlatLine(msgspec.Struct):
    """The flat-string form as it stands in a file; further keys are allowed and ignored."""

    anchor: str
    positive: str
    negatives: list[str]
    id: str | int | None = None
    bundle_id: str | int | None = None


def read(path: Path) -> Iterator[Bundle]:
    """The bundles of a file in order. Ids are the file's own or `b1`, `b2`, … by position; an id twice is an error."""
    first_line: dict[str, int] = {}
    with open_input(path, "a bundle file") as stream:
        for number, raw in _lines(path, stream):
            bundle = _parse(path, number, raw, position=len(first_line) + 1)
            earlier = first_line.setdefault(bundle.id, number)
            if earlier != number:
                raise BadData.at(
                    path,
                    f"{bundle.id!r} is already the id of line {earlier}",
                    fix="Give every bundle an id of its own, or none.",
                    line=number,
                    field="id",
                )
            yield bundle
    if not first_line:
        raise BadData.at(path, "holds no bundle", fix=_SHAPE_FIX)


def _lines(path: Path, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank, never more than MAX_LINE bytes of them in memory."""
    number = 0
    while raw := stream.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE:
            raise BadData.at(path, f"is longer than {MAX_LINE} bytes", fix=_SHAPE_FIX, line=number)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if raw.strip():
            yield number, raw


def _parse(path: Path, number: int, raw: bytes, position: int) -> Bundle:
    try:
        line = _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        problem, field = _field_of(str(error))
        raise BadData.at(path, problem, fix=_SHAPE_FIX, line=number, field=field) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise BadData.at(path, f"not JSON ({type(error).__name__})", fix=_SHAPE_FIX, line=number) from None
    if not line.negatives:
        raise BadData.at(path, "no negatives", fix="A bundle needs at least one.", line=number, field="negatives")
    texts = [("anchor", line.anchor), ("positive", line.positive)]
    texts += [(f"negatives[{i}]", text) for i, text in enumerate(line.negatives)]
    for field, text in texts:
        if not text.strip():
            raise BadData.at(path, "empty text", fix="Fill it in or remove the bundle.", line=number, field=field)
    given = line.id if line.id is not None else line.bundle_id
    own = f"b{position}" if given is None else str(given)
    if not own.strip():
        raise BadData.at(path, "empty id", fix="Give the bundle an id, or none.", line=number, field="id")
    return Bundle(own, line.anchor, line.positive, tuple(line.negatives))


_DECODER = msgspec.json.Decoder(_FlatLine)
_PATH = re.compile(r" - at `\$\.?(?P<field>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")


def _field_of(message: str) -> tuple[str, str | None]:
    """msgspec's message split into the problem and the field it is about."""
    if missing := _MISSING.match(message):
        return "missing", missing["field"]
    if located := _PATH.search(message):
        return message[: located.start()], located["field"] or None
    return message, None
