"""A folder -> the one canonical archive of it, its size and its content address; and back, within limits. Runs no code of it.

Canonical: plain files only, sorted by name, times zero, owner zero, one mode, tar in gzip level 9 with time zero. So the
same content always has the same bytes, the harness counts them, and nothing hides in times, owners, permissions or extended
attributes. Every file is read once, through descriptors that never follow a link: what was read is what is graded.
The bytes are the same wherever zlib is the same; `Packed.zlib` says which one it was.
"""

from __future__ import annotations

import os
import stat
import tempfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from crucible.ari.tarball import CHUNK, Entry, Writer, entries, refused
from crucible.documents import open_input
from crucible.errors import MachineryFailed

MANIFEST = "manifest.json"
_MANIFEST_BYTES = 1 << 20
_NAME_BYTES = 200
_DEPTH = 16


@dataclass(frozen=True)
class Limits:
    """The track's share of the artefact contract. As many folders as files are allowed."""

    packed_bytes: int
    unpacked_bytes: int
    files: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    zlib: str


def pack(folder: Path, into: BinaryIO, limits: Limits, over: Callable[[], bool] = lambda: False) -> Packed:
    """Writes the canonical archive of `folder`; SubmissionRefused names the file or the number that stands against it.

    `over()` is asked before every piece: packing ends as refused when the clock of the one who asked has run out.
    """
    out, names = Writer(into, limits.packed_bytes, over), _Names(limits)
    manifest: bytes | None = None
    for name, stream, size in _files(folder, names):
        with stream:
            names.add_file(name, size)
            if name == MANIFEST:
                manifest = stream.read(_MANIFEST_BYTES + 1)
                stream.seek(0)
            out.add(name, stream, size)
    out.close()
    checked = _read_manifest(manifest, set(names.files.values()))
    return Packed(out.sha256, out.packed, len(names.files), checked, zlib.ZLIB_RUNTIME_VERSION)


def unpack(archive: Path, folder: Path, limits: Limits) -> None:
    """Writes the files of an archive into an empty folder; anything but plain files beneath it is refused, by streaming."""
    names = _Names(limits)
    # 3 x 512 bytes of headers and padding a file or folder, and what a tar may have at its end.
    most = limits.unpacked_bytes + 2 * 1536 * limits.files + (1 << 16)
    with open_input(archive, "an archive") as stream:
        for entry, content in entries(stream, most):
            if entry.is_folder:
                _refuse_folder(entry, names)
                continue
            _refuse_name(entry.name)
            if entry.mode & (stat.S_ISUID | stat.S_ISGID):
                raise _set_id(entry.name)
            names.add_file(entry.name, entry.size)
            _write(folder / entry.name, content)


def canonical(archive: Path, into: BinaryIO, limits: Limits) -> Packed:
    """Anyone's archive, however it was packed -> the canonical one, whose size and digest are the ones that count."""
    with tempfile.TemporaryDirectory(prefix="ari-canonical-") as folder:
        unpack(archive, Path(folder), limits)
        return pack(Path(folder), into, limits)


def _refuse_folder(entry: Entry, names: _Names) -> None:
    """A folder has no content: its name is looked at, and it appears with its first file."""
    if entry.name in ("", "."):
        return
    _refuse_name(entry.name)
    names.count_folder()


def _write(target: Path, content: Iterator[bytes]) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            for chunk in content:
                out.write(chunk)
    except OSError as error:
        raise MachineryFailed(
            f"{target}: cannot be written: {error.strerror or error}", fix="Free some space on the host."
        ) from error


# --- what a folder holds -----------------------------------------------------------------------------------------------


def _files(root: Path, names: _Names) -> Iterator[tuple[str, BinaryIO, int]]:
    """(name, stream, size) of every plain file, sorted by name as bytes; the names of a folder are read once."""
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise refused(f"{root.name!a} is not a folder ({error.strerror})", "Give the folder to submit.") from None
    try:
        yield from _files_beneath(handle, "", names)
    finally:
        os.close(handle)


def _files_beneath(folder: int, prefix: str, names: _Names) -> Iterator[tuple[str, BinaryIO, int]]:
    kinds = {name: _kind(folder, name, prefix) for name in _listed(folder, names)}
    # A folder sorts as "name/", which is how its files' full names sort among its neighbours.
    for name in sorted(kinds, key=lambda n: os.fsencode(n + "/" if kinds[n] == "folder" else n)):
        full = prefix + name
        _refuse_name(full)
        if kinds[name] == "folder":
            names.count_folder()
            inner = _open(folder, name, full, os.O_DIRECTORY)
            try:
                yield from _files_beneath(inner, full + "/", names)
            finally:
                os.close(inner)
            continue
        handle = _open(folder, name, full, os.O_NONBLOCK)
        found = os.fstat(handle)
        stream = os.fdopen(handle, "rb", CHUNK)
        if not stat.S_ISREG(found.st_mode):
            stream.close()
            raise refused(f"{full} changed while it was read", "Submit a folder at rest.")
        yield full, stream, found.st_size


def _listed(folder: int, names: _Names) -> Iterator[str]:
    """The names in one folder; a folder of a million is left after as many as are allowed."""
    with os.scandir(folder) as found:
        for count, entry in enumerate(found, 1):
            if count > 2 * names.most:
                raise names.too_many("files and folders", 2 * names.most)
            yield entry.name


def _kind(folder: int, name: str, prefix: str) -> str:
    full = ascii(prefix + name)
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise refused(f"{full} changed while it was read ({error.strerror})", "Submit a folder at rest.") from None
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    if not stat.S_ISREG(found.st_mode):
        raise refused(f"{full} is a link or a special file", "Replace it by a plain file.")
    if found.st_nlink > 1:
        raise refused(f"{full} is a hard link: it has {found.st_nlink} names", "Copy it (cp) instead of linking it.")
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise _set_id(prefix + name)
    return "file"


def _open(folder: int, name: str, full: str, flags: int) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError as error:
        raise refused(f"{full} cannot be read ({error.strerror})", "Submit plain, readable files.") from None


# --- names -------------------------------------------------------------------------------------------------------------


class _Names:
    """The names of one archive so far, counted, and compared as the least careful file system would compare them."""

    def __init__(self, limits: Limits) -> None:
        self.most = limits.files
        self.files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._folders_seen = 0
        self._unpacked, self._room = limits.unpacked_bytes, limits.unpacked_bytes

    def add_file(self, name: str, size: int) -> None:
        """On another file system two names that differ only in case or unicode form would be one file."""
        folded = _folded(name)
        for table in (self.files, self._folders):
            if folded in table:
                raise self._collision(table[folded], name)
        if len(self.files) >= self.most:
            raise self.too_many("files", self.most)
        self._room -= size
        if self._room < 0:
            raise refused(f"unpacks to more than {self._unpacked:,} bytes", "Leave out what inference does not need.")
        self.files[folded] = name
        for parent in list(PurePosixPath(name).parents)[:-1]:
            above = _folded(str(parent))
            if above in self.files:
                raise self._collision(self.files[above], name)
            self._folders.setdefault(above, str(parent))

    def count_folder(self) -> None:
        self._folders_seen += 1
        if self._folders_seen > self.most:
            raise self.too_many("folders", self.most)

    def too_many(self, what: str, most: int) -> Exception:
        return refused(f"holds more than {most:,} {what}", "Put the parts into fewer files.")

    def _collision(self, one: str, other: str) -> Exception:
        if one == other or other.startswith(one + "/") or one.startswith(other + "/"):
            return refused(f"{one!a} is there twice, or is both a file and a folder", "Rename one.")
        return refused(f"{one!a} and {other!a} differ only in case or unicode form", "Rename one.")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _refuse_name(name: str) -> None:
    path = PurePosixPath(name)
    if len(os.fsencode(name)) > _NAME_BYTES:
        raise refused(f"{name[:40]!a}… has a name of more than {_NAME_BYTES} bytes", "Use a shorter name.")
    # str(path) differs from the name where it has empty or "." parts, which would extract to a second name.
    strange = path.is_absolute() or ".." in path.parts or not name.isprintable() or str(path) != name or name == "."
    if strange or "\\" in name:
        raise refused(f"{name!a} is not a plain relative name", "Use printable names without .. or backslashes.")
    if len(path.parts) > _DEPTH + 1:
        raise refused(f"{name!a} is more than {_DEPTH} folders deep", "Use fewer folders.")


def _set_id(name: str) -> Exception:
    return refused(f"{name!a} is set-user-id or set-group-id", "chmod u-s,g-s it.")


# --- the manifest ------------------------------------------------------------------------------------------------------


def _read_manifest(data: bytes | None, names: set[str]) -> Manifest:
    if data is None:
        raise refused(f"has no {MANIFEST}", 'Write {"schema": 1, "entry": "model:Model", "weights": []} there.')
    if len(data) > _MANIFEST_BYTES:
        raise refused(f"{MANIFEST} is larger than {_MANIFEST_BYTES:,} bytes", "See brief.md for its fields.")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refused(f"{MANIFEST} is not a manifest: {error}", "See brief.md for its fields.") from None
    module, _, name = manifest.entry.partition(":")
    if manifest.schema != 1:
        raise refused(f"{MANIFEST} has schema {manifest.schema}, this harness reads 1", "Write schema 1.")
    if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise refused(f"{MANIFEST} has the entry {manifest.entry!a}", 'Name module and class, e.g. "model:Model".')
    top = module.split(".")[0]
    if not any(found.startswith((f"{top}.", f"{top}/")) for found in names):
        raise refused(
            f"{MANIFEST} has the entry {manifest.entry!a}, but there is no {top}.py", "Add it, or correct it."
        )
    missing = sorted(set(manifest.weights) - names)
    if missing:
        raise refused(f"{MANIFEST} names weights that are not there: {missing[0]!a}", "Correct `weights`.")
    return manifest
