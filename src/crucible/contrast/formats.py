"""Lines of JSON -> bundles, in the three line formats that are accepted. Knows no files and no compression.

    flat     {"anchor": "…", "positive": "…", "negatives": ["…"]}                                    optionally "id"
    events   {"bundle_id": …, "anchor": {"text": …, "sense": …}, "positive": {…}, "negatives": [{…}], "metadata": {…}}
    rows     {"id": …, "tier": …, "danger": …, "anchor_text": "…", "positive_text": "…", "negative_texts": ["…"], "sense_id": …}
             optionally after a first line {"_header": true, "source_sha256": …, "eval_seed": …, "eval_count": …, …}

The format is detected from the first line and then required of every line: a file that changes its mind is broken.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec

from crucible.contrast.bundle import Bundle
from crucible.contrast.tiers import TIERS

Id = str | int | None
S = TypeVar("S")


class Header(msgspec.Struct, frozen=True):
    """The optional first line of a rows file."""

    source_sha256: str | None = None
    eval_seed: int | None = None
    eval_count: int | None = None
    tier_counts: dict[str, int] | None = None
    content_hash: str | None = None


class FlatLine(msgspec.Struct, gc=False):
    anchor: str
    positive: str
    negatives: list[str]
    id: Id = None
    bundle_id: Id = None
    sense: str | None = None
    metadata: dict[str, Any] | None = None


class Event(msgspec.Struct, gc=False):
    """One text with its sense; `event_id` and `embedding` are allowed and not needed here."""

    text: str
    sense: str | None = None
    lemma: str | None = None
    event_id: Id = None
    source: str | None = None


class EventsLine(msgspec.Struct, gc=False):
    anchor: Event
    positive: Event
    negatives: list[Event]
    bundle_id: Id = None
    id: Id = None
    metadata: dict[str, Any] = {}


class RowsLine(msgspec.Struct, gc=False):
    anchor_text: str
    positive_text: str
    negative_texts: list[str]
    id: Id = None
    tier: str | int | None = None
    danger: float | None = None
    lemma: str | None = None
    pos: str | None = None
    sense_id: Id = None


class LineFormat(Generic[S]):
    """A name, a shape and the way from one to a bundle."""

    def __init__(self, name: str, shape: type[S], example: str) -> None:
        self.name = name
        self.decoder: msgspec.json.Decoder[S] = msgspec.json.Decoder(shape)
        self.fix = f"Each line must be {example}."

    def decode(self, raw: bytes) -> S:
        return self.decoder.decode(raw)

    def decode_lines(self, chunk: bytes) -> list[S]:
        """Many lines at once, several times faster; says only *that* something is wrong, not in which line."""
        return self.decoder.decode_lines(chunk)


FLAT = LineFormat("flat", FlatLine, '{"anchor": "…", "positive": "…", "negatives": ["…", …]}')
EVENTS = LineFormat(
    "events", EventsLine, '{"bundle_id": …, "anchor": {"text": "…"}, "positive": {…}, "negatives": [{…}, …]}'
)
ROWS = LineFormat("rows", RowsLine, '{"anchor_text": "…", "positive_text": "…", "negative_texts": ["…", …]}')
AnyLine = FlatLine | EventsLine | RowsLine
AnyFormat = LineFormat[FlatLine] | LineFormat[EventsLine] | LineFormat[RowsLine]
BY_NAME: dict[str, AnyFormat] = {found.name: found for found in (FLAT, EVENTS, ROWS)}
_KNOWN = "Known are flat strings, nested events and evaluation rows: see docs/formats.md."


def detect(raw: bytes) -> AnyFormat | Header:
    """The format of the first line, or the header that stands there; ValueError where it is neither."""
    first = msgspec.json.decode(raw)
    if not isinstance(first, dict):
        raise ValueError(f"a JSON {_kind(first)} where an object is expected. {_KNOWN}")
    if first.get("_header") is True:
        return msgspec.convert(first, type=Header)
    if "anchor_text" in first:
        return ROWS
    if isinstance(first.get("anchor"), dict):
        return EVENTS
    if "anchor" in first or "positive" in first or "negatives" in first:
        return FLAT
    raise ValueError(f"none of the known formats: it has the keys {sorted(map(str, first))[:8]}. {_KNOWN}")


def to_bundle(line: AnyLine, position: int) -> Bundle:
    """`position` counts bundles from 1 and makes the id where the file gives none."""
    if isinstance(line, FlatLine):
        return Bundle(
            id=id_of(line.id, line.bundle_id, position),
            anchor=line.anchor,
            positive=line.positive,
            negatives=tuple(line.negatives),
            sense=line.sense,
            tier=_tier((line.metadata or {}).get("tier")),
            danger=_number((line.metadata or {}).get("danger")),
            metadata=line.metadata or {},
        )
    if isinstance(line, EventsLine):
        sources = tuple(event.source or "" for event in line.negatives)
        return Bundle(
            id=id_of(line.bundle_id, line.id, position),
            anchor=line.anchor.text,
            positive=line.positive.text,
            negatives=tuple(event.text for event in line.negatives),
            sense=line.anchor.sense,
            tier=_tier(line.metadata.get("tier")),
            danger=_number(line.metadata.get("danger")),
            sources=sources if any(sources) else None,
            metadata=line.metadata,
        )
    return Bundle(
        id=id_of(line.id, None, position),
        anchor=line.anchor_text,
        positive=line.positive_text,
        negatives=tuple(line.negative_texts),
        sense=None if line.sense_id is None else str(line.sense_id),
        tier=_tier(line.tier),
        danger=line.danger,
        metadata={k: v for k, v in (("lemma", line.lemma), ("pos", line.pos)) if v is not None},
    )


def id_of(first: Id, second: Id, position: int) -> str:
    given = first if first is not None else second
    return f"b{position}" if given is None else str(given)


def _tier(value: object) -> str | None:
    """Full names, `tier2` and 2 all mean the same; anything else is a fault of the file."""
    if value is None:
        return None
    text = str(value)
    for place, name in enumerate(TIERS, 1):
        if text in (name, f"tier{place}", str(place)):
            return name
    raise ValueError(f"tier: {text!r} is none of {', '.join(TIERS)}")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


_PATH = re.compile(r" - at `\$\.?(?P<field>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<where>[^`]*)`)?")
_NAMED = re.compile(r"(?P<field>[a-z_]+): ")


def field_of(message: str) -> tuple[str | None, str]:
    """A decoder's message split into the field it is about and the problem."""
    if missing := _MISSING.match(message):
        inside = missing["where"]
        return (f"{inside}.{missing['field']}" if inside else missing["field"]), "missing"
    if located := _PATH.search(message):
        return located["field"] or None, message[: located.start()]
    if named := _NAMED.match(message):
        return named["field"], message[named.end() :]
    return None, message


def _kind(value: object) -> str:
    return {list: "array", str: "string", bool: "truth value", type(None): "null"}.get(type(value), "number")
