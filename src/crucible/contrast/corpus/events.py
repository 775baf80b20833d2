"""Events <-> a file of them, one JSON object a line: texts that each show one sense of one word. Builds no bundles.

    {"event_id": "bank#n17.1/e1", "sense": "bank#n17.1", "text": "they pulled the canoe up on the bank",
     "lemma": "bank", "pos": "noun", "synset": "n09213565", "kind": "example", "group": ["n09437454"]}

Needed are `event_id`, `sense` and `text`; the lemma is what stands before the # unless it is given. Events that share a
`group`, or whose sense is named in `siblings`, are siblings. Other fields, such as `embedding`, are allowed and not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from crucible.contrast.formats import field_of
from crucible.contrast.read import BROKEN, MAX_LINE, UNREADABLE, decompressed
from crucible.documents import open_input
from crucible.errors import BadData

Kind = Literal["example", "gloss"]
_FIX = 'Each line must be {"event_id": "…", "sense": "lemma#sense", "text": "…"}.'


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event_id: str
    sense: str
    text: str
    lemma: str = ""
    pos: str | None = None
    synset: str | None = None
    """Two senses of one synset mean the same: neither is ever a negative of the other."""
    kind: Kind | None = None
    """None counts as an example."""
    group: str | tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()

    @property
    def shape(self) -> Kind:
        return self.kind or "example"

    @property
    def word(self) -> tuple[str, str | None]:
        """What within-lemma negatives share."""
        return self.lemma or self.sense.partition("#")[0], self.pos

    @property
    def meaning(self) -> str:
        """What no negative may share."""
        return self.synset or self.sense

    @property
    def groups(self) -> tuple[str, ...]:
        return (self.group,) if isinstance(self.group, str) else self.group


class _Line(Event, frozen=True, kw_only=True):
    """As it may stand in a user's file."""

    event_id: str | int  # type: ignore[assignment]


def write(stream: IO[bytes], events: Iterable[Event]) -> None:
    for event in events:
        stream.write(msgspec.json.encode(event) + b"\n")


def read(path: Path) -> list[Event]:
    """Every event of a file; the first bad line is an error with its number and field."""
    found = list(_events(path))
    if not found:
        raise BadData.at(path, "holds no event", fix=_FIX)
    return found


def _events(path: Path) -> Iterator[Event]:
    decoder = msgspec.json.Decoder(_Line)
    first_line: dict[str, int] = {}
    with open_input(path, "a file of events") as packed:
        stream, number = decompressed(path, packed)[1], 0
        while True:
            try:
                raw = stream.readline(MAX_LINE + 1)
            except BROKEN as error:
                problem = f"the compressed data breaks off or is damaged ({error})"
                raise BadData.at(path, problem, fix="Copy or compress the file again.", line=number + 1) from None
            if not raw:
                return
            number += 1
            if len(raw) > MAX_LINE:
                raise BadData.at(path, f"is longer than {MAX_LINE} bytes", fix="One event a line.", line=number)
            raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not raw.strip():
                continue
            try:
                line = decoder.decode(raw)
            except UNREADABLE as error:
                name, problem = field_of(str(error) or type(error).__name__)
                raise BadData.at(path, problem, fix=_FIX, line=number, field=name) from None
            event = _checked(path, line, number)
            earlier = first_line.setdefault(event.event_id, number)
            if earlier != number:
                problem = f"{event.event_id!r} is already the id of line {earlier}"
                raise BadData.at(path, problem, fix="Give every event an id of its own.", line=number, field="event_id")
            yield event


def _checked(path: Path, line: _Line, number: int) -> Event:
    values = {name: getattr(line, name) for name in Event.__struct_fields__} | {"event_id": str(line.event_id)}
    for name in ("event_id", "sense", "text"):
        if not values[name].strip():
            raise BadData.at(path, "empty", fix=_FIX, line=number, field=name)
    return Event(**values)
