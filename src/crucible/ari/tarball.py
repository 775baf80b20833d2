"""Names and contents <-> a canonical tar.gz, as streams within limits. Knows no folder, no manifest and no file system.

Written and read here and not by `tarfile`, for two reasons. The bytes of an archive are its content address, so no release of
Python may change them. And an archive from outside is hostile: this reader takes plain files and folders only, holds at
most a few kilobytes of headers whatever they claim, and refuses every other kind of entry by its name.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from crucible.errors import SubmissionRefused

BLOCK = 512
_RECORD = 20 * BLOCK
"""A tar ends on a multiple of this, by custom."""
CHUNK = 1 << 16
_LONG_NAME = 4096
_PAX = 1 << 16
_HEADERS_IN_A_ROW = 3
"""A long name, attributes of one entry, attributes of all: more before an entry is a game."""
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a fifo",
    b"7": "a contiguous file",
    b"K": "a link with a long target",
    b"S": "a sparse file",
}


def refused(problem: str, fix: str) -> SubmissionRefused:
    return SubmissionRefused(f"submission: {problem}", fix=fix)


# --- writing -----------------------------------------------------------------------------------------------------------


class Writer:
    """Plain files, in the order they are added, as tar in gzip level 9; every time, owner and mode is the same."""

    def __init__(self, into: BinaryIO, most: int, over: Callable[[], bool] = lambda: False) -> None:
        self._into, self._most, self._over = into, most, over
        self._hash = hashlib.sha256()
        self._zip = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._crc = self._plain = self.packed = 0
        self._out(b"\x1f\x8b\x08\0\0\0\0\0\x02\xff")  # no name, no time, best compression, no system

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def add(self, name: str, stream: BinaryIO, size: int) -> None:
        """Exactly `size` bytes of the stream; one that ends earlier was changed while it was read."""
        self._in(header(name.encode(), size))
        left = size
        while left:
            chunk = stream.read(min(CHUNK, left))
            if not chunk:
                raise refused(f"{name} changed while it was read ({left:,} bytes are missing)", "Submit files at rest.")
            self._in(chunk)
            left -= len(chunk)
        self._in(bytes(-size % BLOCK))

    def close(self) -> None:
        self._in(bytes(2 * BLOCK))
        self._in(bytes(-self._plain % _RECORD))
        self._out(self._zip.flush() + struct.pack("<II", self._crc, self._plain & 0xFFFFFFFF))

    def _in(self, data: bytes) -> None:
        if self._over():  # text made for it is packed at a quarter of a megabyte a second
            raise refused("was not packed before the time was over", "Submit earlier, or something smaller.")
        self._plain += len(data)
        self._crc = zlib.crc32(data, self._crc)
        self._out(self._zip.compress(data))

    def _out(self, data: bytes) -> None:
        """Counted and hashed, and stopped as soon as it is too much: a bomb costs no more than the limit."""
        self.packed += len(data)
        if self.packed > self._most:
            raise refused(
                f"packs to more than {self._most:,} bytes (counting stopped at {self.packed:,})",
                "Make the model smaller.",
            )
        self._hash.update(data)
        self._into.write(data)


def header(name: bytes, size: int) -> bytes:
    """The header of a plain file in the GNU format, with one of its own before it where the name is long."""
    if len(name) <= 100:
        return _header(name, b"0", size, 0o644)
    long = name + b"\0"
    return (
        _header(b"././@LongLink", b"L", len(long), 0)
        + long
        + bytes(-len(long) % BLOCK)
        + _header(name[:100], b"0", size, 0o644)
    )


def _header(name: bytes, kind: bytes, size: int, mode: int) -> bytes:
    before = name.ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, 0)
    after = kind + bytes(100) + b"ustar  \0" + bytes(64 + 16 + 167)
    checksum = sum(before) + sum(after) + 8 * ord(" ")
    return before + b"%06o\0 " % checksum + after


# --- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A plain file or a folder, as the archive names it."""

    name: str
    size: int
    mode: int
    is_folder: bool


def entries(stream: BinaryIO, most: int) -> Iterator[tuple[Entry, Iterator[bytes]]]:
    """Every entry with its content; what is not taken of a content is skipped. At most `most` bytes, packed or unpacked."""
    plain = _Plain(stream, most)
    name, before = None, 0
    while (block := plain.exactly(BLOCK)) != bytes(BLOCK):
        kind, size = block[156:157], _number(block, 124, 12, "size")
        _refuse_damaged(block)
        if kind in b"Lxg":
            before += 1
            name = _extended(plain, kind, size, before) or name
            continue
        entry = _entry(block, kind, size, name)
        name, before = None, 0
        content = plain.take(entry.size)
        yield entry, content
        for _ in content:
            pass
        plain.exactly(-entry.size % BLOCK)
    if before:
        raise refused("ends after the header of an entry that is not there", "Pack it with `crucible ari pack`.")
    plain.finish()


def _extended(plain: _Plain, kind: bytes, size: int, before: int) -> str | None:
    """A name too long for its own header, if that is what this header is for; other attributes are dropped."""
    if before > _HEADERS_IN_A_ROW:
        raise refused(f"has more than {_HEADERS_IN_A_ROW} headers for one entry", "Pack plain files only.")
    most = _LONG_NAME if kind == b"L" else _PAX
    if size > most:
        raise refused(f"has a header of {size:,} bytes, at most {most:,} are read", "Use short names.")
    data = plain.exactly(size)
    plain.exactly(-size % BLOCK)
    if kind == b"L":
        return _text(data.rstrip(b"\0"))
    found = _attributes(data)
    strange = [key for key in found if key in ("size", "linkpath", "hdrcharset") or key.startswith("GNU.sparse")]
    if strange or (kind == b"g" and "path" in found):
        raise refused(f"has an entry with the attribute {[*strange, 'path'][0]!a}", "Pack plain files only.")
    return _text(found["path"]) if "path" in found else None


def _attributes(data: bytes) -> dict[str, bytes]:
    """The records of a pax header: `LENGTH KEY=VALUE\\n`, the length counting itself."""
    found, at = {}, 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        digits = data[at:space] if space > at else b""
        end = at + int(digits) if digits.isdigit() else 0
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not space < end <= len(data) or not equals or data[end - 1 : end] != b"\n":
            raise refused("has a damaged header", "Pack it with `crucible ari pack`.")
        found[_text(key)] = value
        at = end
    return found


def _entry(block: bytes, kind: bytes, size: int, long: str | None) -> Entry:
    name = long
    if name is None:
        raw = block[:100].split(b"\0")[0]
        posix = block[257:263] == b"ustar\0"
        prefix = block[345:500].split(b"\0")[0] if posix else b""
        name = _text(prefix + b"/" + raw if prefix else raw)
    if kind not in (b"0", b"\0", b"5"):
        what = _KINDS.get(kind, f"an entry of the kind {kind!a}")
        raise refused(f"{name[:200]!a} is {what}, not a plain file", "Pack plain files only.")
    is_folder = kind == b"5" or name.endswith("/")
    if is_folder and size:
        raise refused(f"{name[:200]!a} is a folder with a content of its own", "Pack plain files only.")
    # `tar -C DIR .` begins every name with ./, which says nothing.
    return Entry(name.removeprefix("./").removesuffix("/"), size, _number(block, 100, 8, "mode"), is_folder)


def _refuse_damaged(block: bytes) -> None:
    if block[257:262] != b"ustar":
        raise refused("is not a tar archive in gzip", "Pack it with `crucible ari pack`.")
    if sum(block[:148]) + sum(block[156:]) + 8 * ord(" ") != _number(block, 148, 8, "checksum"):
        raise refused("has a damaged header", "Pack it with `crucible ari pack`.")


def _number(block: bytes, at: int, width: int, what: str) -> int:
    digits = block[at : at + width].strip(b" \0")
    if not all(digit in b"01234567" for digit in digits):  # binary numbers and signs are for sizes no limit allows
        raise refused(f"has a header whose {what} is not a plain number", "Pack it with `crucible ari pack`.")
    return int(digits or b"0", 8)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise refused(f"{data[:200]!a} is not a name in UTF-8", "Rename it.") from None


class _Plain:
    """One gzip member as exact pieces of plain bytes; neither side of it may grow beyond `most`."""

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream = stream
        self._packed_room = self._plain_room = most
        self._zip = zlib.decompressobj(31)

    def exactly(self, count: int) -> bytes:
        data = self._some(count)
        while len(data) < count:
            data += self._some(count - len(data)) or _end()
        return data

    def take(self, count: int) -> Iterator[bytes]:
        while count:
            data = self._some(min(count, CHUNK)) or _end()
            count -= len(data)
            yield data

    def finish(self) -> None:
        """Nothing but zeros after the last entry, and nothing at all after those."""
        while data := self._some(CHUNK):
            if data.strip(b"\0"):
                raise refused("has bytes after its end", "Pack it with `crucible ari pack`.")

    def _some(self, count: int) -> bytes:
        """At least one and at most `count` bytes; none at the end, where the checksum has been compared."""
        data = b""
        while count and not data and not self._zip.eof:
            packed = self._zip.unconsumed_tail or self._stream.read(CHUNK)
            if not packed:
                raise refused("is not a whole tar.gz archive: it ends too early", "Copy it again.")
            try:
                data = self._zip.decompress(packed, count)
            except zlib.error as error:
                raise refused(f"is not a tar.gz archive ({error})", "Pack it with `crucible ari pack`.") from None
            self._packed_room -= len(packed) - len(self._zip.unconsumed_tail)
            self._plain_room -= len(data)
            if self._plain_room < 0 or self._packed_room < 0:
                raise refused("unpacks to more than its limit", "Make it smaller.")
        if self._zip.eof and (self._zip.unused_data or self._stream.read(1)):
            raise refused("has bytes after its end", "Pack it with `crucible ari pack`.")
        return data


def _end() -> NoReturn:
    raise refused("is not a whole tar.gz archive: it ends too early", "Copy it again.")
