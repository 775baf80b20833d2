"""Append-only lines, each chained to the one before by digest: append, read, verify, repair a torn tail. No meaning of bodies.

A line is JSON with a fixed frame, so that its digest is over bytes that stand in the file, not over a re-encoding:

    {"digest":"<sha256 of ENTRY>","entry":ENTRY}      ENTRY = {"n":1,"prev":"<digest of line n-1>","at":…,"kind":…,"body":…}

Any edited, deleted, swapped or truncated line breaks its own digest or the `prev` of the next one. Cutting whole lines off
the end leaves a valid shorter ledger: compare `head` with a published one to see that.

Crash safety: writers hold an exclusive lock, write whole lines and fsync before they return. A kill in mid-write leaves
a line without its newline; the next writer copies those bytes to `FILE.torn-N` and writes a line of kind `ledger.repaired`
over them, so that there is no moment at which they are gone and nothing says so. A failed write (full disk) is cut off at
once.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from crucible.errors import BadData, IntegrityBroken, MachineryFailed
from crucible.kernel import digest

GENESIS = "0" * 64
REPAIRED = "ledger.repaired"
MAX_LINE = 16 << 20
_FRAME = (b'{"digest":"', b'","entry":', b"}\n")
_ENTRY_AT = len(_FRAME[0]) + 64 + len(_FRAME[1])
_FIX = "Restore the ledger from a copy; never edit it. A correction is a later line."


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    n: int
    prev: str
    at: str
    kind: str
    body: Any


class Line(msgspec.Struct, frozen=True):
    """An entry together with the digest that the next one will carry."""

    entry: Entry
    digest: str


class Head(msgspec.Struct, frozen=True):
    """Where a ledger stands: publish it, and nobody can cut the tail off unseen."""

    lines: int
    digest: str


def append(path: Path, kind: str, body: object) -> Line:
    return append_all(path, [(kind, body)])[0]


def append_all(path: Path, items: Sequence[tuple[str, object]]) -> list[Line]:
    """Writes all items with one fsync and returns their lines; when it returns, they are on disk."""
    with _locked(path) as stream:
        head, _ = _repair_tail(path, stream)
        lines: list[Line] = []
        pieces: list[bytes] = []
        for kind, body in items:
            line, piece = _encode(head, kind, body)
            head = Head(line.entry.n, line.digest)
            lines.append(line)
            pieces.append(piece)
        _write_or_restore(path, stream, b"".join(pieces))
        return lines


def read(path: Path, kind: str | None = None) -> Iterator[Line]:
    """The lines in order, verified while they are read; a broken one raises IntegrityBroken."""
    try:
        with path.open("rb") as stream:
            # Up to where the file reached between two writers: a line that is being written now is not seen half.
            fcntl.flock(stream, fcntl.LOCK_SH)
            size = os.fstat(stream.fileno()).st_size
            fcntl.flock(stream, fcntl.LOCK_UN)
            for line in _checked(path, stream, size):
                if kind is None or line.entry.kind == kind:
                    yield line
    except OSError as error:
        raise BadData.at(path, f"cannot be read ({error.strerror})", fix="Check the path of the ledger.") from error


def verify(path: Path, head: str | None = None) -> Head:
    """Reads everything; raises IntegrityBroken naming the first bad line, otherwise returns where the ledger stands.

    With `head`, a digest published earlier, one of the lines must carry it: so nothing up to there was cut or replaced.
    """
    at, seen = Head(0, GENESIS), head is None or head == GENESIS
    for line in read(path):
        at = Head(line.entry.n, line.digest)
        seen = seen or line.digest == head
    if not seen:
        raise IntegrityBroken(
            f"{path}: no line carries the published head {head}; the ledger ends at line {at.lines} with {at.digest}",
            fix=_FIX,
            facts={"lines": at.lines, "head": at.digest, "published": head},
        )
    return at


def repair(path: Path) -> Line | None:
    """Cuts off a torn last line, if there is one, and returns the line that reports it."""
    with _locked(path) as stream:
        return _repair_tail(path, stream)[1]


def _checked(path: Path, stream: BinaryIO, size: int) -> Iterator[Line]:
    previous = Head(0, GENESIS)
    while stream.tell() < size and (raw := stream.readline(MAX_LINE + 1)):
        line = _decode(path, previous.lines + 1, raw)
        if (line.entry.n, line.entry.prev) != (previous.lines + 1, previous.digest):
            raise _broken(
                path,
                previous.lines + 1,
                f"follows line {line.entry.n - 1} with digest {line.entry.prev[:16]}…, "
                f"but the line before it is {previous.lines} with {previous.digest[:16]}…",
            )
        previous = Head(line.entry.n, line.digest)
        yield line


def _decode(path: Path, number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE:
        raise _broken(path, number, f"is longer than {MAX_LINE} bytes")
    if not raw.endswith(b"\n"):
        raise _broken(path, number, "is torn: it has no end (the next write repairs it and says so)")
    claimed, entry = raw[len(_FRAME[0]) : len(_FRAME[0]) + 64], raw[_ENTRY_AT : -len(_FRAME[2])]
    if raw != _FRAME[0] + claimed + _FRAME[1] + entry + _FRAME[2]:
        raise _broken(path, number, "does not have the form of a ledger line")
    actual = digest.of_bytes(entry)
    if claimed != actual.encode():
        raise _broken(
            path, number, f"has the digest {actual[:16]}… but claims {claimed[:16].decode(errors='replace')}…"
        )
    try:
        return Line(msgspec.json.decode(entry, type=Entry), actual)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(path, number, f"is not an entry: {error}") from None


def _encode(head: Head, kind: str, body: object) -> tuple[Line, bytes]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    # NaN and other things JSON cannot say are refused here, before anything is written.
    fields = digest.faithful_json({"at": now, "kind": kind, "body": body})
    entry = b'{"n":%d,"prev":"%s",%s' % (head.lines + 1, head.digest.encode(), fields[1:])
    own = digest.of_bytes(entry)
    piece = _FRAME[0] + own.encode() + _FRAME[1] + entry + _FRAME[2]
    if len(piece) > MAX_LINE:
        raise BadData(
            f"a ledger line of {len(piece)} bytes is over the limit of {MAX_LINE}",
            fix="Store the bulk in a file and put its digest into the ledger.",
        )
    return Line(msgspec.json.decode(entry, type=Entry), own), piece


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file opened for appending under an exclusive lock that other processes and threads wait for."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _disk_fault(path, error) from error
    with os.fdopen(handle, "r+b", buffering=0) as raw:
        fcntl.flock(raw, fcntl.LOCK_EX)
        if fresh:
            _sync_name(path)
        yield raw


def _sync_name(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _repair_tail(path: Path, stream: BinaryIO) -> tuple[Head, Line | None]:
    """The head to chain to, and the line that reports the repair if the tail was torn by a crash."""
    size = stream.seek(0, os.SEEK_END)
    end = _end_of_whole_lines(stream, size)
    head = _head_before(path, stream, end)
    if end == size:
        return head, None
    stream.seek(end)
    torn = stream.read(size - end)
    if end == 0 and not torn.startswith(_FRAME[0][: len(torn)]):
        raise _broken(path, 1, "does not have the form of a ledger line")  # somebody's file, not a ledger torn at birth
    body = {"bytes": len(torn), "sha256": digest.of_bytes(torn), "kept_as": _keep_torn(path, torn)}
    report, piece = _encode(head, REPAIRED, body)
    _write_over(path, end, piece, torn)
    return Head(report.entry.n, report.digest), report


def _head_before(path: Path, stream: BinaryIO, end: int) -> Head:
    """The last whole line, which ends at `end`."""
    if end == 0:
        return Head(0, GENESIS)
    start = _end_of_whole_lines(stream, end - 1)
    stream.seek(start)
    raw = stream.read(end - start)
    try:
        line = _decode(path, 0, raw)
    except IntegrityBroken:
        with path.open("rb") as whole:
            collections.deque(_checked(path, whole, end), maxlen=0)  # raises with the number of the first bad line
        raise
    return Head(line.entry.n, line.digest)


def _write_over(path: Path, end: int, piece: bytes, torn: bytes) -> None:
    """Puts the report where the torn bytes stand. Killed anywhere in here, the tail is still torn: the next writer repairs it.

    The newline of the report is written last, and what is left of the torn bytes behind it counts as torn again.
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # without O_APPEND, which would write behind the torn bytes
    try:
        _pwrite(handle, piece, end)
        os.ftruncate(handle, end + len(piece))
        os.fsync(handle)
    except OSError as error:
        with contextlib.suppress(OSError):  # torn as before: the bytes have their room on the disk already
            _pwrite(handle, torn, end)
            os.ftruncate(handle, end + len(torn))
        raise _disk_fault(path, error) from error
    finally:
        os.close(handle)


def _end_of_whole_lines(stream: BinaryIO, end: int) -> int:
    """The offset after the last newline before `end`, found from behind in bounded steps."""
    while end > 0:
        start = max(0, end - 65536)
        stream.seek(start)
        at = stream.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _pwrite(handle: int, data: bytes, at: int) -> None:
    while data:
        written = os.pwrite(handle, data, at)
        data, at = data[written:], at + written


def _keep_torn(path: Path, torn: bytes) -> str:
    for number in range(1, 1000):
        beside = path.with_name(f"{path.name}.torn-{number}")
        try:
            with beside.open("xb") as stream:
                stream.write(torn)
                stream.flush()
                os.fsync(stream.fileno())
            return beside.name
        except FileExistsError:
            continue
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise _disk_fault(path, error) from error
    raise MachineryFailed(f"{path}: torn a thousand times", fix="Look at the disk of this machine.")


def _write_or_restore(path: Path, stream: BinaryIO, data: bytes) -> None:
    before = stream.seek(0, os.SEEK_END)
    view = memoryview(data)
    try:
        while view:
            view = view[stream.write(view) :]
        os.fsync(stream.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            stream.truncate(before)
            os.fsync(stream.fileno())
        raise _disk_fault(path, error) from error
    except (KeyboardInterrupt, SystemExit):
        # Ctrl-C or SIGTERM between two writes of one batch: half a batch is worse than none.
        stream.truncate(before)
        raise


def _disk_fault(path: Path, error: OSError) -> MachineryFailed:
    return MachineryFailed(
        f"{path}: cannot be appended to: {error.strerror or error}; earlier lines are unchanged",
        fix="Free some space or check the permissions, then run the same command again.",
    )


def _broken(path: Path, number: int, problem: str) -> IntegrityBroken:
    return IntegrityBroken(f"{path}: line {number} {problem}", fix=_FIX, facts={"file": str(path), "line": number})
