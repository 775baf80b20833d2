"""A folder -> the one canonical archive of it, its size and its content address; and back, within limits. Runs no code of it.

Canonical: plain files only, sorted by name, times zero, owner zero, one mode, tar in gzip level 9 with time zero. So the
same content always has the same bytes, the harness counts them, and nothing hides in times, owners, permissions or extended
attributes. Every file is read once, through descriptors that never follow a link: what was read is what is graded.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from crucible.documents import open_input
from crucible.errors import SubmissionRefused

MANIFEST = "manifest.json"
_MANIFEST_BYTES = 1 << 20
_NAME_BYTES = 200
_DEPTH = 16


@dataclass(frozen=True)
class Limits:
    """The track's share of the artefact contract."""

    packed_bytes: int
    unpacked_bytes: int
    files: int


class Manifest(msgspec.Struct, frozen=True):
    """What a submission says about itself: where its class is and which of its files hold learned weights."""

    schema: int
    entry: str
    weights: list[str] = []


@dataclass(frozen=True)
class Packed:
    sha256: str
    bytes: int
    files: int
    manifest: Manifest


def pack(folder: Path, into: BinaryIO, limits: Limits) -> Packed:
    """Writes the canonical archive of `folder`; SubmissionRefused names the file or the number that stands against it."""
    counted = _Counting(into, limits.packed_bytes)
    seen: dict[str, str] = {}
    room, manifest = limits.unpacked_bytes, b""
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=counted, mtime=0) as packer,
        tarfile.open(fileobj=packer, mode="w|", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive,
    ):
        for name, stream, size in _files(folder):
            with stream:
                _refuse_collision(name, seen)
                room -= size
                if len(seen) > limits.files:
                    raise _refused(f"holds more than {limits.files:,} files", "Put the parts into fewer files.")
                if room < 0:
                    raise _refused(
                        f"unpacks to more than {limits.unpacked_bytes:,} bytes",
                        "Leave out what inference does not need.",
                    )
                if name == MANIFEST:
                    manifest = stream.read(_MANIFEST_BYTES)
                    stream.seek(0)
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = size, 0o644
                try:
                    archive.addfile(entry, stream)
                except OSError as error:
                    if error.errno is not None:  # the disk's fault, not the submission's
                        raise
                    # tarfile's way of saying that fewer bytes came than the file had
                    raise _refused(f"{name} changed while it was read ({error})", "Submit a folder at rest.") from None
    return Packed(counted.sha256, counted.bytes, len(seen), _read_manifest(manifest, set(seen.values())))


def unpack(archive: Path, folder: Path, limits: Limits) -> None:
    """Writes the files of an archive into an empty folder; anything but plain files beneath it is refused, by streaming."""
    with open_input(archive, "an archive") as stream:
        try:
            with gzip.GzipFile(fileobj=stream, mode="rb") as plain:
                # 2 x 512 bytes of headers a file, and the padding at the end of a tar.
                bounded = _Bounded(plain, limits.unpacked_bytes + 1536 * limits.files + 20480)
                with tarfile.open(fileobj=bounded, mode="r|", encoding="utf-8") as entries:
                    _extract(entries, folder, limits)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
            raise _refused(f"is not a whole tar.gz archive ({error})", "Pack it with `runner submit`.") from None


def _extract(entries: tarfile.TarFile, folder: Path, limits: Limits) -> None:
    seen: dict[str, str] = {}
    total = 0
    for entry in entries:
        if not entry.isreg():
            raise _refused(f"{entry.name!r} is not a plain file", "Pack plain files only.")
        _refuse_name(entry.name)
        _refuse_collision(entry.name, seen)
        total += entry.size
        if len(seen) > limits.files or total > limits.unpacked_bytes:
            raise _refused(
                f"holds more than {limits.files:,} files or {limits.unpacked_bytes:,} bytes", "Make it smaller."
            )
        content = entries.extractfile(entry)
        target = folder / entry.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            out = target.open("xb")
        except (FileExistsError, NotADirectoryError):
            raise _refused(f"{entry.name!r} is both a file and a folder", "Rename one.") from None
        with out:
            while content and (chunk := content.read(1 << 20)):
                out.write(chunk)


def _files(root: Path) -> Iterator[tuple[str, BinaryIO, int]]:
    """(name, stream, size) of every plain file, sorted by name as bytes; the names of a folder are read once."""
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(f"{root.name} is not a folder ({error.strerror})", "Give the folder to submit.") from None
    try:
        yield from _files_beneath(handle, "", 0)
    finally:
        os.close(handle)


def _files_beneath(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, BinaryIO, int]]:
    if depth > _DEPTH:
        raise _refused(f"{prefix!r} is more than {_DEPTH} folders deep", "Use fewer folders.")
    names = os.listdir(folder)
    # A folder sorts as "name/", which is how its files' full names sort among its neighbours.
    kinds = {name: _kind(folder, name, prefix) for name in names}
    for name in sorted(names, key=lambda n: os.fsencode(n + "/" if kinds[n] == "folder" else n)):
        full = prefix + name
        _refuse_name(full)
        if kinds[name] == "folder":
            inner = _open(folder, name, full, os.O_DIRECTORY)
            try:
                yield from _files_beneath(inner, full + "/", depth + 1)
            finally:
                os.close(inner)
            continue
        handle = _open(folder, name, full, os.O_NONBLOCK)
        found = os.fstat(handle)
        stream = os.fdopen(handle, "rb")
        if not stat.S_ISREG(found.st_mode):
            stream.close()
            raise _refused(f"{full} changed while it was read", "Submit a folder at rest.")
        yield full, stream, found.st_size


def _kind(folder: int, name: str, prefix: str) -> str:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise _refused(
            f"{prefix + name} changed while it was read ({error.strerror})", "Submit a folder at rest."
        ) from None
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    full = ascii(prefix + name)
    if not stat.S_ISREG(found.st_mode):
        raise _refused(f"{full} is a link or a special file", "Replace it by a plain file.")
    if found.st_nlink > 1:
        raise _refused(f"{full} is a hard link: it has {found.st_nlink} names", "Copy it (cp) instead of linking it.")
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise _refused(f"{full} is set-user-id or set-group-id", "chmod u-s,g-s it.")
    return "file"


def _open(folder: int, name: str, full: str, flags: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError as error:
        raise _refused(f"{full} cannot be read ({error.strerror})", "Submit plain, readable files.") from None


def _refuse_name(name: str) -> None:
    path = PurePosixPath(name)
    # str(path) differs from the name where it has empty or "." parts, which would extract to a second name.
    strange = path.is_absolute() or ".." in path.parts or not name.isprintable() or str(path) != name or name == "."
    if strange or "\\" in name:
        raise _refused(f"{name!a} is not a plain relative name", "Use printable names without .. or backslashes.")
    if len(os.fsencode(name)) > _NAME_BYTES:
        raise _refused(f"{name[:40]!a}… has a name of more than {_NAME_BYTES} bytes", "Use a shorter name.")


def _refuse_collision(name: str, seen: dict[str, str]) -> None:
    """On another file system two names that differ only in case or unicode form would be one file."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    if folded in seen:
        raise _refused(f"{seen[folded]!a} and {name!a} differ only in case or unicode form", "Rename one.")
    seen[folded] = name


def _read_manifest(data: bytes, names: set[str]) -> Manifest:
    if not data:
        raise _refused(f"has no {MANIFEST}", 'Write {"schema": 1, "entry": "model:Model", "weights": []} there.')
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(f"{MANIFEST} is not a manifest: {error}", "See brief.md for its fields.") from None
    module, _, name = manifest.entry.partition(":")
    if manifest.schema != 1:
        raise _refused(f"{MANIFEST} has schema {manifest.schema}, this harness reads 1", "Write schema 1.")
    if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise _refused(f"{MANIFEST} has the entry {manifest.entry!r}", 'Name module and class, e.g. "model:Model".')
    missing = sorted(set(manifest.weights) - names)
    if missing:
        raise _refused(f"{MANIFEST} names weights that are not there: {missing[0]!a}", "Correct `weights`.")
    return manifest


def _refused(problem: str, fix: str) -> SubmissionRefused:
    return SubmissionRefused(f"submission: {problem}", fix=fix)


class _Counting(io.RawIOBase):
    """Counts and hashes what passes, and stops as soon as it is too much: a bomb costs no more than the limit."""

    def __init__(self, out: BinaryIO, limit: int) -> None:
        self._out, self._limit = out, limit
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # narrower than any buffer: gzip gives bytes
        self.bytes += len(data)
        if self.bytes > self._limit:
            raise _refused(
                f"packs to more than {self._limit:,} bytes (counting stopped at {self.bytes:,})",
                "Make the model smaller.",
            )
        self._hash.update(data)
        self._out.write(data)
        return len(data)


class _Bounded(io.RawIOBase):
    """Gives at most `room` bytes of a stream, then refuses."""

    def __init__(self, inner: gzip.GzipFile, room: int) -> None:
        self._inner, self._room = inner, room

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(min(size if size >= 0 else self._room + 1, self._room + 1))
        self._room -= len(data)
        if self._room < 0:
            raise _refused("unpacks to more than its limit", "Make it smaller.")
        return data
