"""A TextSet <-> a folder named by the digest of its source: written once, reloaded in milliseconds. Derived data only.

    CACHE/textsets/<sha256 of the source>-r1/
      meta.json                       counts and the digest of every file here
      anchors positives negatives offsets tier danger .npy
      texts.bin texts.npy             all texts as UTF-8 behind each other, and where each begins
      ids.bin ids.npy                 the same for the ids of the bundles

It can be deleted at any time; a damaged one is noticed by its digests and made again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast.formats import Header
from crucible.contrast.textset import TextSet
from crucible.documents import new_folder, to_json, write_bytes, writing
from crucible.errors import BadData, MachineryFailed, Mistake
from crucible.kernel import digest

_REVISION = 1
"""Raise it when the readers give other bundles for the same bytes."""
_ARRAYS = ("anchors", "positives", "negatives", "offsets", "tier", "danger")


class _Meta(msgspec.Struct, frozen=True):
    header: Header | None
    files: dict[str, str]


class PackedTexts(Sequence[str]):
    """Texts that stay on disk until somebody reads one."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> None:
        self._data, self._starts = data, starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        at = place % len(self)
        return bytes(self._data[self._starts[at] : self._starts[at + 1]]).decode()

    def __iter__(self) -> Iterator[str]:
        data, starts = self._data.tobytes(), self._starts.tolist()
        for begin, end in itertools.pairwise(starts):
            yield data[begin:end].decode()


def folder_for(cache: Path, source_sha256: str) -> Path:
    return cache / "textsets" / f"{source_sha256}-r{_REVISION}"


def save(folder: Path, items: TextSet) -> None:
    """Does nothing where another process was faster or the disk is full: a missing id form costs time, never a result."""
    try:
        with new_folder(folder) as draft:
            for name in _ARRAYS:
                _save_array(draft / f"{name}.npy", getattr(items, name))
            for name, texts in (("texts", items.texts), ("ids", items.ids)):
                encoded = [text.encode() for text in texts]
                starts = np.zeros(len(encoded) + 1, dtype=np.int64)
                np.cumsum([len(piece) for piece in encoded], out=starts[1:])
                _save_array(draft / f"{name}.npy", starts)
                write_bytes(draft / f"{name}.bin", b"".join(encoded))
            files = {path.name: digest.of_file(path) for path in sorted(draft.iterdir())}
            write_bytes(draft / "meta.json", to_json(_Meta(items.header, files)))
    except (Mistake, MachineryFailed):
        return


def load(folder: Path) -> TextSet | None:
    """None if it is not there, incomplete or damaged; a damaged one is removed so that it is made again."""
    if not folder.is_dir():
        return None
    try:
        meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=_Meta)
        if any(digest.of_file(folder / name) != expected for name, expected in meta.files.items()):
            raise ValueError("digest")
        arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in (*_ARRAYS, "texts", "ids")}
        texts, ids = (PackedTexts(_bytes_of(folder / f"{name}.bin"), arrays.pop(name)) for name in ("texts", "ids"))
    except (OSError, ValueError, msgspec.DecodeError, BadData):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):  # says when it was last used; a cache on a read-only disk still works
        os.utime(folder / "meta.json")
    return TextSet(ids=ids, texts=texts, header=meta.header, **arrays)


class Stored(msgspec.Struct, frozen=True):
    """How many id forms there are, and how much room they take."""

    count: int
    bytes: int


def stored(cache: Path) -> Stored:
    folders = list(_folders(cache))
    return Stored(len(folders), sum(_size(folder) for folder in folders))


def prune(cache: Path, *, older_than_days: float | None, everything: bool, dry_run: bool) -> Stored:
    """Removes all of them, or those not used for that long; returns what went."""
    gone = [folder for folder in _folders(cache) if everything or _unused_for(folder, older_than_days)]
    freed = sum(_size(folder) for folder in gone)
    if not dry_run:
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
    return Stored(len(gone), freed)


def _folders(cache: Path) -> Iterator[Path]:
    yield from (folder for folder in sorted((cache / "textsets").glob("*")) if folder.is_dir())


def _unused_for(folder: Path, days: float | None) -> bool:
    used = folder / "meta.json"
    return days is not None and time.time() - (used if used.exists() else folder).stat().st_mtime > days * 86_400


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _bytes_of(path: Path) -> npt.NDArray[np.uint8]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")


def _save_array(path: Path, values: npt.NDArray[np.generic]) -> None:
    with writing(path) as stream:
        np.save(stream, values)
