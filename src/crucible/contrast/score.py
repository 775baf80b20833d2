"""Text ids + unit vectors -> danger, rank and ties of every bundle. Pure; no files, no tiers.

    danger = max(sim(anchor, negative)) - sim(anchor, positive)        margin = -danger
    rank   = 1 + number of negatives strictly closer than the positive
    ties   = number of negatives exactly as close as the positive

Memory is the vectors plus the ids: nothing of size bundles x negatives x dimension is ever made.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crucible.contrast.progress import Progress
from crucible.contrast.score_cpu import score_all
from crucible.contrast.textset import TextSet
from crucible.errors import DeviceUnavailable

_BUNDLES_AT_ONCE = 1 << 18
"""Between two calls of `progress`; large enough to keep every core busy."""


@dataclass(frozen=True)
class Scores:
    """One value a bundle, in the order of the bundles."""

    danger: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int32]
    ties: npt.NDArray[np.int32]

    @property
    def margin(self) -> npt.NDArray[np.float64]:
        return 0.0 - self.danger  # not -danger: a tie has margin 0, not -0


def score(
    items: TextSet, vectors: npt.NDArray[np.float32], progress: Progress | None = None, device: str = "cpu"
) -> Scores:
    """Similarities are float64 sums of float32 products; equal vectors tie, and only they do."""
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(items.texts):
        raise ValueError(f"{len(items.texts)} texts need a float32 matrix with as many rows, got {vectors.shape}")
    if device == "cuda":
        return _on_cuda(items, vectors)
    n = len(items)
    danger, rank, ties = np.empty(n), np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    matrix = np.ascontiguousarray(vectors)
    for start in range(0, n, _BUNDLES_AT_ONCE):
        part = slice(start, min(start + _BUNDLES_AT_ONCE, n))
        first, last = items.offsets[part.start], items.offsets[part.stop]
        score_all(
            matrix,
            items.anchors[part],
            items.positives[part],
            items.negatives[first:last],
            items.offsets[part.start : part.stop + 1] - first,
            danger[part],
            rank[part],
            ties[part],
        )
        if progress:
            progress(part.stop, n)
    return Scores(danger, rank, ties)


def _on_cuda(items: TextSet, vectors: npt.NDArray[np.float32]) -> Scores:
    try:
        kernel: Any = importlib.import_module("crucible.contrast.score_cuda")  # torch and Triton, only when asked for
    except ImportError as error:
        raise DeviceUnavailable(f"scoring on cuda needs torch and Triton: {error}", fix="Use --device cpu.") from None
    if not kernel.available():
        raise DeviceUnavailable("there is no CUDA device on this machine", fix="Use --device cpu.")
    return Scores(*kernel.score_all(vectors, items.anchors, items.positives, items.negatives, items.offsets))
