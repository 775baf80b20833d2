"""Files -> one tar.gz in which every byte matters, and back by streaming within limits. Knows no run and no checkpoint.

    1f 8b 08 04 | time 0 | 00 ff | 36 bytes of extra field: "CR", 32, SHA-256 of all that follows       48 bytes, fixed
    deflate( tar header, content, zeros to 512; … ; 1024 zeros ) | CRC-32 | length

Any gunzip and any tar read it. A gzip file has bytes that no reader looks at (time, system, flags), deflate can say one thing
in many ways, and a tar has owners, times and padding; so a checksum of the *content* would leave room for changes that nobody
sees. Here the extra field of the gzip header, which every reader skips, holds the digest of everything behind it, and the
48 bytes before are compared as they stand. Packing the same files twice gives the same bytes with the same zlib; another
zlib may compress otherwise, so it is the content that has the digests people compare, not the compressed form.

Reading trusts nothing: every tar header must be, byte for byte, the one that a plain file of that name and size has here. So
there are no links, devices, folders, owners or long-name tricks to be careful about.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import tarfile
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from crucible.documents import open_input, writing
from crucible.errors import BadData, IntegrityBroken

_FIXED = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + struct.pack("<H2sH", 36, b"CR", 32)
_HEADER = len(_FIXED) + 32
_BLOCK, _CHUNK = 512, 1 << 20
_NAME_BYTES = 200
_MOST_KEPT = 16 << 20
_FIX = "Copy the capsule again from where it came from, or pack the run again."


@dataclass(frozen=True)
class Limits:
    """What is written and read at all; `ratio` times the packed size is more than real runs ever unpack to."""

    files: int = 10_000
    bytes: int = 32 << 30
    ratio: int = 200
    always: int = 256 << 20
    """Unpacked size up to which the ratio is not looked at."""

    def room(self, packed: int) -> int:
        return min(self.bytes, max(self.always, self.ratio * packed))


LIMITS = Limits()


@dataclass(frozen=True)
class Member:
    """One file while the archive stands at it: `chunks` can be read once, before the next member is asked for."""

    name: str
    size: int
    chunks: Iterator[bytes]


# --- writing -----------------------------------------------------------------------------------------------------------------


def write(path: Path, files: Iterable[tuple[str, Path | bytes]], limits: Limits = LIMITS) -> None:
    """Packs the files in the order given."""
    names: dict[str, str] = {}
    with writing(path) as stream:
        stream.write(_FIXED + bytes(32))
        packer = _Packer(stream)
        for name, source in files:
            _refuse_name(name, names)
            if len(names) > limits.files:
                raise BadData(f"{path}: more than {limits.files} files", fix="Leave out what the run does not need.")
            packer.add(name, source)
        packer.close()
        if packer.unpacked > limits.room(packer.packed):
            raise BadData(
                f"{path}: {packer.unpacked:,} bytes unpacked is more than a capsule may hold",
                fix="Leave out the data: --without-data.",
            )
        stream.seek(len(_FIXED))
        stream.write(packer.digest)


class _Packer:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._deflate = stream, zlib.compressobj(6, zlib.DEFLATED, -15)
        self._hash, self._crc = hashlib.sha256(), 0
        self.unpacked = self.packed = 0

    def add(self, name: str, source: Path | bytes) -> None:
        if isinstance(source, bytes):
            self._put(_tar_header(name, len(source)) + source)
            self._put(bytes(-len(source) % _BLOCK))
            return
        with open_input(source, "a file to pack") as stream:
            size = os.fstat(stream.fileno()).st_size
            self._put(_tar_header(name, size))
            left = size
            while left and (chunk := stream.read(min(_CHUNK, left))):
                self._put(chunk)
                left -= len(chunk)
            if left or stream.read(1):
                raise BadData.at(source, "changed while it was packed", fix="Pack a run at rest.")
            self._put(bytes(-size % _BLOCK))

    def close(self) -> None:
        self._put(bytes(2 * _BLOCK))
        self._out(self._deflate.flush())
        self._out(struct.pack("<II", self._crc, self.unpacked & 0xFFFFFFFF))
        self.digest = self._hash.digest()

    def _put(self, data: bytes) -> None:
        self._crc = zlib.crc32(data, self._crc)
        self.unpacked += len(data)
        self._out(self._deflate.compress(data))

    def _out(self, data: bytes) -> None:
        self._hash.update(data)
        self._stream.write(data)
        self.packed += len(data)


def _tar_header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    try:
        return entry.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError as error:  # a name without a place to split it, or 8 GiB
        raise BadData(f"{name}: cannot be packed ({error})", fix="Use shorter names and files below 8 GiB.") from None


def _refuse_name(name: str, seen: dict[str, str]) -> None:
    """Plain relative names that are different files on every file system; BadData says what is wrong."""
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or str(parts) != name or name == "." or "\\" in name:
        raise BadData(f"{name!a} is not a plain relative name", fix=_FIX)
    if not name.isprintable() or len(os.fsencode(name)) > _NAME_BYTES or re.match(r"[A-Za-z]:", name):
        raise BadData(f"{name[:80]!a} is not a name that every system can write", fix=_FIX)
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    if folded in seen:
        raise BadData(f"{name!a} and {seen[folded]!a} are one name on some systems", fix=_FIX)
    seen[folded] = name


# --- reading -----------------------------------------------------------------------------------------------------------------


def require_whole(path: Path) -> str:
    """The digest of the file, if not one of its bytes was changed since it was packed."""
    running, inner = hashlib.sha256(), hashlib.sha256()
    with open_input(path, "a capsule") as stream:
        header = stream.read(_HEADER)
        running.update(header)
        while chunk := stream.read(_CHUNK):
            running.update(chunk)
            inner.update(chunk)
    if header[: len(_FIXED)] != _FIXED or len(header) < _HEADER:
        raise broken(
            path, "its first bytes are not those of a capsule: it is none, was changed or was packed by something else"
        )
    if header[len(_FIXED) :] != inner.digest():
        raise broken(
            path, f"its content has the digest {inner.hexdigest()[:16]}…, its header says {header[16:24].hex()}…"
        )
    return running.hexdigest()


def members(path: Path, limits: Limits = LIMITS) -> Iterator[Member]:
    """The files in order. Whatever is not exactly as `write` writes it raises IntegrityBroken."""
    names: dict[str, str] = {}
    with open_input(path, "a capsule") as stream:
        stream.seek(_HEADER)
        inflated = _Inflated(path, stream, limits.room(os.fstat(stream.fileno()).st_size))
        while any(header := inflated.exactly(_BLOCK)):
            name, size = _named(path, header)
            try:
                _refuse_name(name, names)
                plain = _tar_header(name, size) == header
            except BadData as error:
                raise broken(path, error.message) from None
            if not plain or len(names) > limits.files:
                what = "is not a plain file" if not plain else f"is one of more than {limits.files} files"
                raise broken(path, what, name)
            yield Member(name, size, content := inflated.pieces(size))
            for _ in content:  # what the caller did not want
                pass
            if any(inflated.exactly(-size % _BLOCK)):
                raise broken(path, "the space behind it is not empty", name)
        if any(inflated.exactly(_BLOCK)):
            raise broken(path, "the end of its content is not marked as one")
        inflated.finish()


def _named(path: Path, header: bytes) -> tuple[str, int]:
    """Name and size as the header claims them; whether it is a canonical header is decided by making one from them."""
    with contextlib.suppress(UnicodeDecodeError, ValueError):
        front, back = header[345:500].rstrip(b"\0").decode(), header[:100].rstrip(b"\0").decode()
        return f"{front}/{back}" if front else back, int(header[124:136].rstrip(b" \0") or b"0", 8)
    raise broken(path, "a header inside it is damaged")


class _Inflated:
    """The unpacked content, in pieces of at most a mebibyte and never more than `room` bytes: a bomb stops there."""

    def __init__(self, path: Path, stream: BinaryIO, room: int) -> None:
        self._path, self._stream, self._room = path, stream, room
        self._inflate = zlib.decompressobj(-15)
        self._crc = self._count = 0

    def exactly(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def pieces(self, size: int) -> Iterator[bytes]:
        while size:
            data = self._some(min(size, _CHUNK))
            size -= len(data)
            yield data

    def _some(self, most: int) -> bytes:
        data = b""
        while not data:
            packed = self._inflate.unconsumed_tail or self._stream.read(_CHUNK)
            if self._inflate.eof or not packed:
                raise broken(self._path, "it breaks off")
            try:
                data = self._inflate.decompress(packed, most)
            except zlib.error as error:
                raise broken(self._path, f"it cannot be unpacked ({error})") from None
        self._crc = zlib.crc32(data, self._crc)
        self._count += len(data)
        if self._count > self._room:
            raise broken(self._path, f"it unpacks to more than {self._room:,} bytes, which no capsule of its size does")
        return data

    def finish(self) -> None:
        """Nothing may be left but the checksum and the length."""
        more = b""
        try:
            while (
                not self._inflate.eof
                and not more
                and (packed := self._inflate.unconsumed_tail or self._stream.read(_CHUNK))
            ):
                more = self._inflate.decompress(packed, 1)
        except zlib.error as error:
            raise broken(self._path, f"it cannot be unpacked ({error})") from None
        rest = self._inflate.unused_data + self._stream.read(_CHUNK)
        if more or not self._inflate.eof or rest != struct.pack("<II", self._crc, self._count & 0xFFFFFFFF):
            raise broken(self._path, "something stands behind its content, or its checksum is wrong")


# --- finding out what is wrong -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What can still be read of a damaged file."""

    digests: dict[str, str]
    kept: bytes
    """The content of the member that was asked for, as far as it could be read."""
    stopped_in: str | None
    """The member in which reading had to stop."""


def survey(path: Path, keep: str, limits: Limits = LIMITS) -> Found:
    """Reads a damaged or foreign tar.gz as far as it goes, writes nothing, and believes nothing that it reads."""
    digests: dict[str, str] = {}
    kept, name = b"", None
    with open_input(path, "a capsule") as stream, contextlib.suppress(IntegrityBroken):
        inflated = _Inflated(path, stream, limits.room(os.fstat(stream.fileno()).st_size))
        _skip_gzip_header(stream)
        while len(digests) < limits.files and any(header := inflated.exactly(_BLOCK)):
            name, size = _named(path, header)
            name = name.removeprefix("./")
            running = hashlib.sha256()
            for piece in inflated.pieces(size):
                running.update(piece)
                kept += piece if name == keep and len(kept) < _MOST_KEPT else b""
            if header[156:157] in (b"0", b"\0"):
                digests[name] = running.hexdigest()
            inflated.exactly(-size % _BLOCK)
            name = None
    return Found(digests, kept, name)


def _skip_gzip_header(stream: BinaryIO) -> None:
    header = stream.read(10)
    flags = header[3] if len(header) == 10 else 0
    if flags & 4:
        stream.seek(int.from_bytes(stream.read(2), "little"), os.SEEK_CUR)
    for flag in (8, 16):  # the original name, a comment
        while flags & flag and stream.read(1) not in (b"\0", b""):
            pass


def broken(path: Path, problem: str, member: str | None = None) -> IntegrityBroken:
    where = f"{path}: {member!a}" if member else f"{path}"
    return IntegrityBroken(f"{where}: {problem}", fix=_FIX, facts={"file": str(path), "member": member})
