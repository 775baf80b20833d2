"""Texts -> keys, and keys with vectors <-> immutable files that are searched many keys at once. Knows no encoder, no folder.

    header | keys, sorted | one check a row | vectors (float32)

A key is the sha256 of a text's UTF-8. Header and keys are checked when a segment is opened, every vector when it is read:
what comes out is bit for bit what went in, or counts as not there.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crucible.documents import writing
from crucible.errors import BadData

Keys = npt.NDArray[np.uint8]
"""[n, KEY_BYTES]"""
Vectors = npt.NDArray[np.float32]
KEY_BYTES = 32
SUFFIX = ".seg"
ROWS_AT_ONCE = 4096

_HEADER = struct.Struct("<8sQQ32s8x")
_MAGIC = b"CRUSEG1\n"


# --- keys --------------------------------------------------------------------------------------------------------------


def keys_of(texts: Sequence[str]) -> Keys:
    keys = np.empty((len(texts), KEY_BYTES), dtype=np.uint8)
    for start in range(0, len(texts), ROWS_AT_ONCE):
        part = texts[start : start + ROWS_AT_ONCE]
        try:
            digests = b"".join([hashlib.sha256(text.encode()).digest() for text in part])
        except UnicodeEncodeError as error:
            raise BadData(
                f"a text holds half of a surrogate pair and is no text: {error.object[:80]!r}", fix="Correct the text."
            ) from None
        keys[start : start + len(part)] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, KEY_BYTES)
    return keys


def sorted_order(keys: Keys) -> npt.NDArray[np.int64]:
    """The order that sorts keys as byte strings, equal ones in the order they came in."""
    words = np.ascontiguousarray(keys).view(">u8")
    return np.lexsort(tuple(words[:, i] for i in range(words.shape[1] - 1, -1, -1)))


def all_distinct(keys: Keys) -> bool:
    """Never wrong when it says so; False where a closer look is needed."""
    prefixes = np.sort(_prefixes(keys))
    return bool((prefixes[1:] != prefixes[:-1]).all())


def _prefixes(keys: Keys) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(keys[:, :8]).view(">u8")[:, 0].astype(np.uint64)


class KeyIndex:
    """Sorted keys that can be searched for many keys at once."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.prefixes = _prefixes(keys)

    def find(self, wanted: Keys) -> npt.NDArray[np.int64]:
        """The place of every wanted key, -1 where it is not there."""
        prefixes = _prefixes(wanted)
        at = np.searchsorted(self.prefixes, prefixes)
        result = np.full(len(wanted), -1, dtype=np.int64)
        undecided = np.arange(len(wanted))
        while undecided.size:
            undecided = undecided[at[undecided] < len(self.keys)]
            undecided = undecided[self.prefixes[at[undecided]] == prefixes[undecided]]
            equal = (self.keys[at[undecided]] == wanted[undecided]).all(axis=1)
            result[undecided[equal]] = at[undecided[equal]]
            undecided = undecided[~equal]  # another key with the same first eight bytes: look at the next place
            at[undecided] += 1
        return result


# --- segments ----------------------------------------------------------------------------------------------------------


def _checks(prefixes: npt.NDArray[np.uint64], vectors: Vectors) -> npt.NDArray[np.uint64]:
    """One number a row that no change of a single word, no lost page and no swap of two rows leaves as it was."""
    words: npt.NDArray[Any] = vectors.view(np.uint64 if vectors.shape[1] % 2 == 0 else np.uint32)
    weights = (np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    result = prefixes.copy()
    for start in range(0, len(words), 512):  # pieces that stay in the processor's caches
        result[start : start + 512] += words[start : start + 512] @ weights
    return result


class Segment:
    """One file, memory-mapped; ValueError where it is not what it should be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        rows, dim, expected = _parsed(data[: _HEADER.size].tobytes())
        if len(data) != file_size(rows, dim):
            raise ValueError("its size is not what its header says")
        body = file_size(rows, 0)
        if _head_digest(rows, dim, data[_HEADER.size : body]) != expected:
            raise ValueError("its keys do not match their checksum")
        keys_end = _HEADER.size + rows * KEY_BYTES
        self.index = KeyIndex(data[_HEADER.size : keys_end].reshape(rows, KEY_BYTES))
        self.checks = data[keys_end:body].view("<u8")
        self.vectors = data[body:].view("<f4").reshape(rows, dim)

    def __len__(self) -> int:
        return len(self.checks)

    @property
    def dim(self) -> int:
        return self.vectors.shape[1]

    def read(self, rows: npt.NDArray[np.int64]) -> tuple[Vectors, npt.NDArray[np.bool_]]:
        """A copy of these rows, and which of them are as they were written."""
        vectors = np.ascontiguousarray(self.vectors[rows], dtype=np.float32)
        return vectors, _checks(self.index.prefixes[rows], vectors) == self.checks[rows]

    def intact(self) -> npt.NDArray[np.int64]:
        """The rows that are as they were written."""
        parts = np.array_split(np.arange(len(self)), len(self) // ROWS_AT_ONCE + 1)
        return np.concatenate([part[self.read(part)[1]] for part in parts])


def file_size(rows: int, dim: int) -> int:
    return _HEADER.size + rows * (KEY_BYTES + 8 + 4 * dim)


def count_rows(path: Path) -> int:
    """What the header says, without a look at the rest."""
    with path.open("rb") as stream:
        return _parsed(stream.read(_HEADER.size))[0]


def write(folder: Path, keys: Keys, vectors: Vectors) -> None:
    """A new segment, whole or not at all; of equal keys the first is kept."""
    order = _sorted_distinct(keys)
    rows = np.ascontiguousarray(vectors[order], dtype=np.float32)
    _write(folder, keys[order], _checks(_prefixes(keys[order]), rows), rows.shape[1], iter([rows]))


def merge(folder: Path, segments: Sequence[Segment]) -> None:
    """One new segment from the intact rows of several, with the checks they had: damage is never made to look sound."""
    parts = [segment.intact() for segment in segments]
    keys = np.concatenate([one.index.keys[rows] for one, rows in zip(segments, parts, strict=True)])
    checks = np.concatenate([one.checks[rows] for one, rows in zip(segments, parts, strict=True)])
    owner, row = np.repeat(np.arange(len(segments)), [len(rows) for rows in parts]), np.concatenate(parts)
    order = _sorted_distinct(keys)

    def vectors() -> Iterator[Vectors]:
        for start in range(0, len(order), ROWS_AT_ONCE):
            part = order[start : start + ROWS_AT_ONCE]
            gathered = np.empty((len(part), segments[0].dim), dtype=np.float32)
            for number, segment in enumerate(segments):
                here = owner[part] == number
                gathered[here] = segment.vectors[row[part[here]]]
            yield gathered

    if len(order):
        _write(folder, keys[order], checks[order], segments[0].dim, vectors())


def _sorted_distinct(keys: Keys) -> npt.NDArray[np.int64]:
    order = sorted_order(keys)
    new = np.ones(len(order), dtype=bool)
    new[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    return order[new]


def _write(folder: Path, keys: Keys, checks: npt.NDArray[np.uint64], dim: int, vectors: Iterator[Vectors]) -> None:
    head = np.concatenate([keys.reshape(-1), checks.astype("<u8").view(np.uint8)])
    with writing(folder / f"{secrets.token_hex(12)}{SUFFIX}") as stream:
        stream.write(_HEADER.pack(_MAGIC, len(keys), dim, _head_digest(len(keys), dim, head)))
        stream.write(head.data)
        for part in vectors:
            stream.write(part.astype("<f4", copy=False).data)


def _parsed(head: bytes) -> tuple[int, int, bytes]:
    if len(head) < _HEADER.size:
        raise ValueError("it is too short")
    magic, rows, dim, expected = _HEADER.unpack(head)
    if magic != _MAGIC:
        raise ValueError("it does not begin like a segment")
    return rows, dim, expected


def _head_digest(rows: int, dim: int, keys_and_checks: npt.NDArray[np.uint8]) -> bytes:
    running = hashlib.sha256(struct.pack("<QQ", rows, dim))
    running.update(keys_and_checks.data)
    return running.digest()
