"""Texts -> vectors that somebody else computed: a folder with vectors.npy and texts.jsonl, row by row. Encodes nothing.

    DIR/vectors.npy     [n, d], float16, float32 or float64; stays on disk, only the rows asked for are read
    DIR/texts.jsonl     n lines, each one JSON string: the text of that row

Texts are found by digest, so that millions of them cost 48 bytes each and not a dictionary of strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import segments
from crucible.contrast.progress import Progress
from crucible.documents import open_input
from crucible.errors import BadData
from crucible.kernel import digest

VECTORS, TEXTS = "vectors.npy", "texts.jsonl"
_ROWS_AT_ONCE = 8192
_FIX = "The folder needs vectors.npy [n, d] and texts.jsonl with the same n texts, one JSON string a line."


class _Index(NamedTuple):
    """`rows[i]` is the row of the vector whose text has the i-th key."""

    keys: segments.KeyIndex
    rows: npt.NDArray[np.int64]


class PrecomputedEncoder:
    cheap: ClassVar[bool] = True

    def __init__(self, asked: str) -> None:
        self.id = f"npy:{asked}"
        self._folder = Path(asked)
        self._vectors = _opened(self._folder / VECTORS)

    @cached_property
    def digest(self) -> str:
        files = {name: digest.of_file(self._folder / name) for name in (VECTORS, TEXTS)}
        return digest.of_json({"encoder": "npy", "files": files})

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        index = self._index
        result = np.empty((len(texts), self._vectors.shape[1]), dtype=np.float32)
        missing, first = 0, ""
        for start in range(0, len(texts), _ROWS_AT_ONCE):
            part = texts[start : start + _ROWS_AT_ONCE]
            places = index.keys.find(segments.keys_of(part))
            absent = np.flatnonzero(places < 0)
            if absent.size:
                first = first if missing else part[int(absent[0])]
                missing += absent.size
            elif not missing:
                rows = index.rows[places]
                with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is refused with its text
                    result[start : start + len(part)] = self._vectors[_as_slice(rows)]
            if progress:
                progress(start + len(part), len(texts))
        if missing:
            raise BadData(
                f"{self._folder / TEXTS}: {missing} of {len(texts)} texts are not there, the first is {first[:80]!r}",
                fix="Compute the vectors of these texts too, and add them to both files.",
                facts={"missing": missing, "file": str(self._folder / TEXTS)},
            )
        return result

    @cached_property
    def _index(self) -> _Index:
        keys = _keys_in(self._folder / TEXTS, len(self._vectors))
        order = segments.sorted_order(keys)
        keys = keys[order]
        twins = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
        for at in twins:
            one, other = sorted((int(order[at]), int(order[at + 1])))
            if not np.array_equal(self._vectors[one], self._vectors[other]):
                raise BadData.at(
                    self._folder / TEXTS,
                    f"is the text of line {one + 1} again, with another vector",
                    line=other + 1,
                    fix="Keep one of the two in both files.",
                )
        return _Index(segments.KeyIndex(keys), order)


def _opened(path: Path) -> npt.NDArray[np.floating]:
    open_input(path, "precomputed vectors").close()
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadData.at(path, f"is not a NumPy array: {error}", fix=_FIX) from None
    if (
        not isinstance(vectors, np.ndarray)
        or vectors.ndim != 2
        or vectors.dtype.kind != "f"
        or vectors.dtype.itemsize > 8
    ):
        what = f"{vectors.dtype} {vectors.shape}" if isinstance(vectors, np.ndarray) else "an archive"
        raise BadData.at(path, f"is {what}, not [n, d] of float16, float32 or float64", fix=_FIX)
    return vectors


def _keys_in(path: Path, expected: int) -> segments.Keys:
    keys, decoder = np.empty((expected, segments.KEY_BYTES), dtype=np.uint8), msgspec.json.Decoder(str)
    number, pending = 0, []
    with open_input(path, "the texts of precomputed vectors") as stream:
        for number, line in enumerate(stream, 1):
            try:
                pending.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise BadData.at(path, f"is not one JSON string: {error}", line=number, fix=_FIX) from None
            if number > expected:
                break
            if len(pending) == _ROWS_AT_ONCE:
                keys[number - len(pending) : number] = segments.keys_of(pending)
                pending = []
    if number != expected:
        count = f"more than {expected}" if number > expected else str(number)
        raise BadData.at(path, f"has {count} texts, and {VECTORS} has {expected} rows", fix=_FIX)
    keys[number - len(pending) : number] = segments.keys_of(pending)
    return keys


def _as_slice(rows: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Rows that follow each other are read in one piece, without a second copy."""
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
