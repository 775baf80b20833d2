"""Bundles -> unique texts and integer arrays: what encoders and the scoring engine run on. Holds no vectors.

Equal texts share one id and therefore one vector: encoded in two batches they could differ in the last bit, and an exact
tie would turn into an arbitrary win. `intern.py` does the fast reading, `idform.py` keeps the result on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crucible.contrast import intern, read
from crucible.contrast.bundle import Bundle
from crucible.contrast.formats import Header
from crucible.contrast.intern import NO_TIER as NO_TIER
from crucible.contrast.intern import Ids, Interner, Part


@dataclass(frozen=True)
class TextSet:
    """`negatives[offsets[i]:offsets[i + 1]]` are the text ids of bundle i's negatives."""

    ids: Sequence[str]
    texts: Sequence[str]
    anchors: Ids
    positives: Ids
    negatives: Ids
    offsets: npt.NDArray[np.int64]
    tier: npt.NDArray[np.int8]
    """As recorded in the file, an index into TIERS; NO_TIER where it says nothing."""
    danger: npt.NDArray[np.float64]
    """As recorded in the file; NaN where it says nothing."""
    header: Header | None = None

    def __len__(self) -> int:
        return len(self.ids)


def build(bundles: Iterable[Bundle], header: Header | None = None) -> TextSet:
    interner = Interner()
    for bundle in bundles:
        interner.add(bundle)
    return _whole(interner.done(), header)


def from_files(paths: Sequence[Path]) -> TextSet:
    """One or more bundle files as one set. Plain cases go through a fast path that only notices *that* something is wrong;
    the careful reader then says what, so both obey the same rules."""
    fast = intern.files(paths)
    return _whole(*fast) if fast is not None else _careful(paths)


def _careful(paths: Sequence[Path]) -> TextSet:
    interner, header = Interner(), None
    known: dict[str, int] = {}
    for path in paths:
        source = read.BundleFile(path, before=len(interner.ids), first_line=known)
        for bundle in source:
            interner.add(bundle)
        header = header or source.header
    return _whole(interner.done(), header)


def _whole(part: Part, header: Header | None) -> TextSet:
    offsets = np.zeros(len(part.counts) + 1, dtype=np.int64)
    np.cumsum(part.counts, out=offsets[1:])
    ids = [f"b{place}" if own is None else own for place, own in enumerate(part.ids, 1)]
    return TextSet(
        ids, part.texts, part.anchors, part.positives, part.negatives, offsets, part.tier, part.danger, header
    )
