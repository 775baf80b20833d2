"""A path -> its bundles, whatever accepted format and compression it is in. Streamed; every fault has file, line and field.

By default the first bad line is an error. With `on_problem`, bad lines go there and the reading goes on: the caller decides
where they are kept, and nothing is dropped unseen.
"""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import zstandard

from crucible.contrast import columns, formats
from crucible.contrast.bundle import Bundle, Problem, problem_in
from crucible.contrast.formats import AnyFormat, AnyLine, Header
from crucible.documents import open_input
from crucible.errors import BadData

MAX_LINE = 16 << 20
"""Longer lines are refused before they are parsed: a bundle of 16 MiB is a broken file, not a bundle."""

OnProblem = Callable[[Problem, bytes], None]
_CHUNK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PAR1": "parquet"}


@dataclass
class BundleFile:
    """An opened source: iterate it once. `format`, `compression` and `header` are known after the first bundle."""

    path: Path
    on_problem: OnProblem | None = None
    before: int = 0
    """How many bundles came before this file: ids by position go on counting."""
    format: str = ""
    compression: str = "none"
    header: Header | None = None
    first_line: dict[str, int] = field(default_factory=dict)
    """Id -> the line it stands in: ids must be unique."""

    def __iter__(self) -> Iterator[Bundle]:
        numbered = self._from_columns() if self._is_columns() else self._from_lines()
        for number, bundle in numbered:
            found = problem_in(bundle) or self._repeated(bundle, number)
            if found:
                name, problem, fix = found
                self._report(Problem(number, name, problem, fix), msgspec.json.encode(bundle))
                continue
            self.first_line[bundle.id] = number
            yield bundle
        if not self.first_line and self.on_problem is None:
            raise BadData.at(self.path, "holds no bundle", fix="See docs/formats.md for what is accepted.")

    def _repeated(self, bundle: Bundle, number: int) -> tuple[str | None, str, str] | None:
        earlier = self.first_line.get(bundle.id)
        if earlier is None:
            return None
        return (
            "id",
            f"{bundle.id!r} is already the id of line {earlier}",
            "Give every bundle an id of its own, or none.",
        )

    def _is_columns(self) -> bool:
        if self.path.is_dir():
            return True
        require_file(self.path)
        with open_input(self.path, "a bundle file") as stream:
            return stream.read(4) == b"PAR1"

    def _from_columns(self) -> Iterator[tuple[int, Bundle]]:
        source = columns.open_source(self.path)
        self.format, self.compression = source.format, source.compression
        for number, row in enumerate(source.rows(), 1):
            try:
                bundle = source.to_bundle(row, self.before + number)
            except ValueError as error:
                name, problem = formats.field_of(str(error))
                self._report(Problem(number, name, problem, columns.FIX), repr(row).encode())
                continue
            yield number, bundle

    def _from_lines(self) -> Iterator[tuple[int, Bundle]]:
        line_format: AnyFormat | None = None
        position = self.before
        with open_input(self.path, "a bundle file") as raw_stream:
            self.compression, stream = decompressed(self.path, raw_stream)
            for number, raw in _lines(self.path, stream):
                if len(raw) > MAX_LINE:
                    self._report(
                        Problem(number, None, f"is longer than {MAX_LINE} bytes", "One bundle a line."), raw[:1000]
                    )
                    continue
                try:
                    if line_format is None:
                        found = formats.detect(raw)
                        if isinstance(found, Header):
                            self.header = found
                            continue
                        line_format = found
                        self.format = line_format.name
                    position += 1
                    bundle = formats.to_bundle(line_format.decode(raw), position)
                except UNREADABLE as error:
                    name, problem = formats.field_of(str(error) or type(error).__name__)
                    fix = line_format.fix if line_format else "See docs/formats.md for what is accepted."
                    self._report(Problem(number, name, problem, fix), raw)
                    continue
                yield number, bundle

    def _report(self, problem: Problem, raw: bytes) -> None:
        if self.on_problem is None:
            raise BadData.at(self.path, problem.problem, fix=problem.fix, line=problem.line, field=problem.field)
        self.on_problem(problem, raw)


def require_file(path: Path) -> None:
    """A pipe can be read only once, and a bundle file is read more than once: to hash it and to parse it."""
    if path.exists() and not path.is_file():
        raise BadData.at(path, "is a pipe or a device, not a file", fix="Write it to a file first.")


def read(path: Path, on_problem: OnProblem | None = None) -> Iterator[Bundle]:
    """The bundles of a file in order. Ids are the file's own or `b1`, `b2`, … by position; an id twice is an error."""
    return iter(BundleFile(path, on_problem))


BROKEN = (EOFError, OSError, zlib.error, zstandard.ZstdError)
"""What the decompressors raise on damaged data."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""What a line that is no bundle raises."""


class Plan(msgspec.Struct, frozen=True):
    """How to read a file of JSON lines fast: its format, and byte ranges that begin and end at line ends."""

    path: Path
    format: str
    header: Header | None
    compressed: bool
    ranges: list[tuple[int, int]]
    """Several only in a plain file; for a compressed one the single range means all of it."""


def plan(path: Path, pieces: int) -> Plan | None:
    """None for what is not JSON lines. A fault raises one of BROKEN or UNREADABLE without a line number: `read()` names it."""
    if path.is_dir():
        return None
    with open_input(path, "a bundle file") as stream:
        kind, lines = decompressed(path, stream)
        if kind == "parquet":
            return None
        first = lines.readline(MAX_LINE + 1)
        begin = len(_BOM) if first.startswith(_BOM) else 0
        found = formats.detect(first.removeprefix(_BOM))
        header = None
        if isinstance(found, Header):
            header, begin = found, len(first)
            found = formats.detect(lines.readline(MAX_LINE + 1))
        if isinstance(found, Header):
            raise ValueError("two headers")
        if kind != "none":
            return Plan(path, found.name, header, True, [(begin, -1)])
        size = stream.seek(0, io.SEEK_END)
        edges = [begin, *(_line_end(stream, begin + (size - begin) * i // pieces) for i in range(1, pieces)), size]
    return Plan(path, found.name, header, False, [edge for edge in itertools.pairwise(edges) if edge[0] < edge[1]])


def lines_in(chosen: Plan, begin: int, end: int) -> Iterator[list[AnyLine]]:
    """The decoded lines of one range in large chunks."""
    line_format = formats.BY_NAME[chosen.format]
    with open_input(chosen.path, "a bundle file") as stream:
        lines = decompressed(chosen.path, stream)[1]
        lines.seek(begin) if not chosen.compressed else lines.read(begin)
        left = end - begin if end >= 0 else 1 << 62
        while left > 0:
            chunk = lines.read(min(_CHUNK, left))
            rest = lines.readline(MAX_LINE + 1) if len(chunk) < left else b""
            if len(rest) > MAX_LINE:
                raise ValueError("line too long")
            if not chunk:
                return
            left -= len(chunk) + len(rest)
            decoded: list[AnyLine] = list(line_format.decode_lines(chunk + rest))
            if decoded:
                yield decoded


def _line_end(stream: BinaryIO, place: int) -> int:
    stream.seek(place)
    stream.readline(MAX_LINE + 1)
    return stream.tell()


def decompressed(path: Path, stream: BinaryIO) -> tuple[str, BinaryIO]:
    """By the first bytes, not by the name: a name can lie."""
    start = stream.read(4)
    stream.seek(0)
    kind = next((name for magic, name in _MAGIC.items() if start.startswith(magic)), "none")
    if kind == "gzip":
        return kind, cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    if kind == "zstd":
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        return kind, cast(BinaryIO, io.BufferedReader(reader))
    return kind, stream


def _lines(path: Path, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; of a line that is too long only the beginning, one byte more than allowed."""
    number = 0
    while True:
        try:
            raw = stream.readline(MAX_LINE + 1)
            rest = raw
            while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LINE + 1)
        except BROKEN as error:
            problem = f"the compressed data breaks off or is damaged ({error})"
            raise BadData.at(path, problem, fix="Copy or compress the file again.", line=number + 1) from None
        if not raw:
            return
        number += 1
        if number == 1:
            raw = raw.removeprefix(_BOM)
        if raw.strip():
            yield number, raw
