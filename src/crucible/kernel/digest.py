"""Bytes, streams, files, folder trees and JSON values -> SHA-256 in hex, in constant memory. Signs and encrypts nothing.

Two digests are equal exactly when the content is: names, times and owners of files never enter a digest, except the
relative names and the executable bit inside a tree, because they are what a tree *is*.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from crucible.errors import BadData

EMPTY = hashlib.sha256(b"").hexdigest()
_CHUNK = 1 << 20


def of_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def of_chunks(chunks: Iterable[bytes]) -> str:
    running = hashlib.sha256()
    for chunk in chunks:
        running.update(chunk)
    return running.hexdigest()


def of_stream(stream: BinaryIO) -> str:
    return of_chunks(iter(lambda: stream.read(_CHUNK), b""))


def of_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return of_stream(stream)
    except OSError as error:
        raise BadData.at(path, f"cannot be read ({error.strerror})", fix="Check the path.") from error


def of_tree(root: Path) -> str:
    """One digest for a folder: every relative name, its kind, its executable bit and its content, whatever the order.

    Links and special files are refused: what they mean depends on the machine, so they cannot be pinned.
    """
    if not root.is_dir() or root.is_symlink():
        raise BadData.at(root, "is not a folder", fix="Give the path of a folder.")
    running = hashlib.sha256(b"tree 1\n")
    for name, path in sorted((os.fsencode(p.relative_to(root).as_posix()), p) for p in _walk(root)):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            entry = b"d"
        elif stat.S_ISREG(mode):
            entry = (b"x " if mode & stat.S_IXUSR else b"f ") + of_file(path).encode()
        else:
            raise BadData.at(path, "is a link or a special file", fix="Replace it by a plain file or remove it.")
        running.update(b"%d %s %s\n" % (len(name), name, entry))
    return running.hexdigest()


def canonical_json(value: object) -> bytes:
    """The one way a value is written when it is to be hashed: sorted keys, no spaces, shortest floats, no NaN, UTF-8."""
    return _strict_json(value, sort=True)


def faithful_json(value: object) -> bytes:
    """As strict, but keys stay in the order they came in: for lines whose bytes are hashed as they stand in a file."""
    return _strict_json(value, sort=False)


def _strict_json(value: object, *, sort: bool) -> bytes:
    order: Literal["deterministic"] | None = "deterministic" if sort else None
    try:
        # Sets in a fixed order; bytes stay bytes and are refused below, or b"abc" would hash as its base64 text.
        plain = msgspec.to_builtins(value, order=order, builtin_types=(bytes, bytearray, memoryview))
        _refuse_ambiguous(plain, "$")
        return json.dumps(plain, sort_keys=sort, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise BadData("a text holds half of a surrogate pair and cannot be written as UTF-8", fix=_FIX) from None
    except RecursionError:
        raise BadData("a value is nested too deeply to be hashed", fix="Flatten it.") from None


def of_json(value: object) -> str:
    return of_bytes(canonical_json(value))


def _walk(root: Path) -> Iterable[Path]:
    try:
        entries = list(root.iterdir())
    except OSError as error:
        raise BadData.at(root, f"cannot be read ({error.strerror})", fix="Check its permissions.") from error
    for entry in entries:
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)


_FIX = "Only finite numbers, text, true, false, null, lists and objects with text keys can be hashed."


def _refuse_ambiguous(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise BadData(f"{where} is {value}, which JSON cannot say", fix=_FIX)
    if isinstance(value, bytes | bytearray | memoryview):
        raise BadData(f"{where} is bytes, which JSON cannot say", fix=_FIX)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise BadData(f"{where} has the key {key!r}, which is not text", fix=_FIX)
            _refuse_ambiguous(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_ambiguous(inner, f"{where}[{index}]")
