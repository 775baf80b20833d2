"""Text ids + unit vectors -> danger, rank and ties of every bundle. Pure; no files, no tiers.

danger = max(sim(anchor, negative)) - sim(anchor, positive)        margin = -danger
rank   = 1 + number of negatives strictly closer than the positive
ties   = number of negatives exactly as close as the positive
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crucible.contrast.textset import TextSet

_PAIRS_AT_ONCE = 1 << 16
"""Bounds the memory of the gathered vectors: pairs x dimension x 8 bytes x 2."""


@dataclass(frozen=True)
class Scores:
    """One value a bundle, in the order of the bundles."""

    danger: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int64]
    ties: npt.NDArray[np.int64]

    @property
    def margin(self) -> npt.NDArray[np.float64]:
        return 0.0 - self.danger  # not -danger: a tie has margin 0, not -0


def score(items: TextSet, vectors: npt.NDArray[np.float32]) -> Scores:
    """Every similarity is a float64 sum over float32 products; equal text ids give equal similarities by construction."""
    counts = np.diff(items.offsets)
    owner = np.repeat(np.arange(len(items)), counts)
    positive = _similarities(vectors, items.anchors, items.positives)
    negative = _similarities(vectors, items.anchors[owner], items.negatives)
    hardest = np.maximum.reduceat(negative, items.offsets[:-1])
    closer = np.add.reduceat((negative > positive[owner]).astype(np.int64), items.offsets[:-1])
    equal = np.add.reduceat((negative == positive[owner]).astype(np.int64), items.offsets[:-1])
    return Scores(hardest - positive, 1 + closer, equal)


def _similarities(
    vectors: npt.NDArray[np.float32], left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]
) -> npt.NDArray[np.float64]:
    result = np.empty(len(left), dtype=np.float64)
    for start in range(0, len(left), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        pairs = vectors[left[part]].astype(np.float64) * vectors[right[part]]
        result[part] = pairs.sum(axis=1)
    return result
