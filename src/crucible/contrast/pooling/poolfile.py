"""Bundle files <-> bundles with the line each stood in; outputs and their manifest are written together or not at all.

A line that is only passed on is copied byte for byte, without a byte order mark and always with a line end. Bundles from
columns have no line and are written as flat strings. What the commands decide is in `pool_split.py`, `pool_merge.py` and
`pool_filter.py`.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

import msgspec
import zstandard

from crucible.contrast.bundle import Bundle
from crucible.contrast.read import BundleFile, OnProblem, require_file
from crucible.documents import open_input, require_target, to_json, writing
from crucible.errors import BadConfig, BadData
from crucible.kernel import digest

SCHEMA = 1
_BOM = b"\xef\xbb\xbf"
_BY_POSITION = re.compile(r"b\d+")
_PACKED = (".gz", ".zst", ".zstd", ".parquet", ".arrow")


class Input(msgspec.Struct, frozen=True):
    file: str
    sha256: str
    bundles: int
    format: str


class Written(msgspec.Struct, frozen=True):
    file: str
    sha256: str
    bundles: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What made a pool file: enough to make it again and to see that nothing was changed since."""

    schema: int = SCHEMA
    command: str
    inputs: list[Input]
    outputs: list[Written]
    seed: int | None = None
    settings: dict[str, Any]
    counts: dict[str, int]
    duplicates: dict[str, Any]
    leaks: dict[str, Any] | None = None
    notes: list[str] = []


class Entry(NamedTuple):
    """A bundle, its line number (or row), and the line itself: None where the bundle came from columns."""

    bundle: Bundle
    line: int
    raw: bytes | None


class _Names(msgspec.Struct):
    id: str | int | None = None
    bundle_id: str | int | None = None


class PoolFile:
    """One input, iterated as often as needed; bad lines are reported the first time only."""

    def __init__(self, path: Path, on_problem: OnProblem | None = None, before: int = 0) -> None:
        self.path, self.on_problem, self.before = path, on_problem, before
        if not path.is_dir():
            require_file(path)  # before it is hashed: a pipe would never end
        self.sha256 = digest.of_tree(path) if path.is_dir() else _sha_of_file(path)
        self._state = _state(path)
        self.format, self.bundles, self.numbered, self.header = "", 0, 0, False
        """`numbered`: bundles whose id is their position, because the file gives none."""

    def __iter__(self) -> Iterator[Entry]:
        self._require_unchanged()
        source = BundleFile(self.path, self.on_problem, before=self.before)
        bundles = numbered = 0
        with contextlib.ExitStack() as stack:
            lines: Iterator[tuple[int, bytes]] | None = None
            for bundle in source:
                number, raw = source.first_line[bundle.id], None
                if not bundles and not source.format.startswith("columns"):
                    lines = _lines(stack, self.path, source.compression)
                if lines is not None:
                    raw = next(text for place, text in lines if place == number)
                bundles += 1
                if raw is not None and _BY_POSITION.fullmatch(bundle.id):
                    numbered += _has_no_id(raw)
                yield Entry(bundle, number, raw)
        if self.on_problem is not None:
            self.on_problem = _ignore
        self.format, self.bundles, self.numbered = source.format, bundles, numbered
        self.header = source.header is not None
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        if _state(self.path) != self._state:
            raise BadData.at(self.path, "was changed while it was read", fix="Run the command again.")

    def described(self) -> Input:
        return Input(str(self.path), self.sha256, self.bundles, self.format)


def _ignore(problem: object, raw: bytes) -> None:
    """Reported before."""


def _sha_of_file(path: Path) -> str:
    with open_input(path, "a bundle file") as stream:
        return digest.of_stream(stream)


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _lines(stack: contextlib.ExitStack, path: Path, compression: str) -> Iterator[tuple[int, bytes]]:
    """Numbered as the reader numbers them."""
    stream = stack.enter_context(open_input(path, "a bundle file"))
    if compression == "gzip":
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    elif compression == "zstd":
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        stream = cast(BinaryIO, io.BufferedReader(reader))
    for number, raw in enumerate(stream, 1):
        yield number, raw.removeprefix(_BOM) if number == 1 else raw


def _has_no_id(raw: bytes) -> bool:
    names = msgspec.json.decode(raw, type=_Names)
    return names.id is None and names.bundle_id is None


# --- writing -----------------------------------------------------------------------------------------------------------


def line_of(bundle: Bundle, *, nested: bool) -> bytes:
    """A bundle as one line that reads back with everything it has: nested events, or flat strings with metadata."""
    recorded = {"tier": bundle.tier, "danger": bundle.danger}
    metadata = bundle.metadata | {
        name: value for name, value in recorded.items() if value is not None and bundle.metadata.get(name) is None
    }
    if not nested:
        flat: dict[str, Any] = {"id": bundle.id, "anchor": bundle.anchor, "positive": bundle.positive}
        flat |= {"negatives": bundle.negatives}
        flat |= {"sense": bundle.sense} if bundle.sense is not None else {}
        return msgspec.json.encode(flat | ({"metadata": metadata} if metadata else {})) + b"\n"
    sense = {} if bundle.sense is None else {"sense": bundle.sense}
    sources = bundle.sources or [""] * len(bundle.negatives)
    negatives = [
        {"text": text} | ({"source": source} if source else {})
        for text, source in zip(bundle.negatives, sources, strict=True)
    ]
    both = {"anchor": sense | {"text": bundle.anchor}, "positive": sense | {"text": bundle.positive}}
    line = {"bundle_id": bundle.id} | both | {"negatives": negatives, "metadata": metadata}
    return msgspec.json.encode(line) + b"\n"


def copied(entry: Entry) -> bytes:
    if entry.raw is None:
        return line_of(entry.bundle, nested=False)
    return entry.raw if entry.raw.endswith(b"\n") else entry.raw + b"\n"


def manifest_of(path: Path) -> Path:
    return path.with_name(path.name + ".manifest.json")


def require_outputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Refuses before any work what would overwrite an input, or one output by another."""
    taken = {path.resolve(): f"the input {path}" for path in inputs}
    for output in outputs:
        if output.suffix in _PACKED:
            raise BadConfig(
                f"{output}: pools are written as plain JSON lines, not as {output.suffix}",
                fix=f"Name it {output.with_suffix('').with_suffix('.jsonl').name}; compress it afterwards if you like.",
            )
        for path in (output, manifest_of(output)):
            require_target(path)
            if path.exists() and not path.is_file():
                raise BadConfig(f"{path} is a device or a pipe", fix="Give the path of a file.")
            if path.resolve() in taken:
                raise BadConfig(
                    f"{path} would overwrite {taken[path.resolve()]}", fix="Give every output a path of its own."
                )
            taken[path.resolve()] = f"the output {path}"


class _Output:
    """A draft that counts and hashes what goes into it."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path, self.stream = path, stream
        self.running, self.bundles = hashlib.sha256(), 0

    def write(self, line: bytes) -> None:
        self.stream.write(line)
        self.running.update(line)
        self.bundles += 1


def publish(
    paths: Sequence[Path], lines: Iterable[tuple[int, bytes]], manifest: Callable[[list[Written]], Manifest]
) -> Manifest:
    """Writes each line to the path with its number, then the manifest beside every path.

    Everything is on the disk before the first name appears, and the manifests appear last: a fault on the way leaves
    whatever was there before.
    """
    with contextlib.ExitStack() as stack:
        beside = [stack.enter_context(writing(manifest_of(path))) for path in paths]
        drafts = [_Output(path, stack.enter_context(writing(path))) for path in paths]
        for which, line in lines:
            drafts[which].write(line)
        made = manifest([Written(str(d.path), d.running.hexdigest(), d.bundles) for d in drafts])
        for stream in beside:
            stream.write(to_json(made))
        for stream in (*beside, *(draft.stream for draft in drafts)):
            stream.flush()
            os.fsync(stream.fileno())
    return made
