"""The scoring loop for a CUDA device, one Triton kernel: same numbers as `score_cpu.py`, no copies of gathered vectors.

One program a bundle reads the anchor's row once and the other rows in tiles. The positive stands in the first tile beside the
negatives, so that all sums are made by the same code in the same order and equal vectors tie exactly. Sums are float64: the work
is bound by memory here too. Loaded only when a CUDA device is asked for, because torch and Triton are heavy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

ROWS, COLUMNS, WARPS = 4, 128, 1
"""A tile: so many rows at a time, so many values of each; and how many warps work on it. Measured best of 36 on an H200."""


@triton.jit
def _score(  # type: ignore[no-untyped-def]
    vectors, anchors, positives, negatives, offsets, danger, rank, ties, dim, rows: tl.constexpr, columns: tl.constexpr
):
    bundle = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(offsets + bundle), tl.load(offsets + bundle + 1)
    anchor, positive = tl.load(anchors + bundle).to(tl.int64), tl.load(positives + bundle).to(tl.int64)
    lane = tl.arange(0, rows)
    hardest = tl.full((), float("-inf"), tl.float64)
    target = tl.full((), 0.0, tl.float64)
    closer = tl.full((), 0, tl.int32)
    equal = tl.full((), 0, tl.int32)
    # Place begin - 1 is the positive's; the negatives follow.
    for first in range(begin - 1, end, rows):
        place = first + lane
        counted = (place >= begin) & (place < end)
        own = tl.load(negatives + place, mask=counted, other=0).to(tl.int64)
        own = tl.where(place < begin, positive, own)
        sums = tl.zeros((rows,), tl.float64)
        for start in range(0, dim, columns):
            column = start + tl.arange(0, columns)
            inside = column < dim
            left = tl.load(vectors + anchor * dim + column, mask=inside, other=0.0).to(tl.float64)
            wanted = (counted | (place < begin))[:, None] & inside[None, :]
            right = tl.load(vectors + own[:, None] * dim + column[None, :], mask=wanted, other=0.0).to(tl.float64)
            sums += tl.sum(left[None, :] * right, axis=1)
        if first < begin:
            target = tl.sum(tl.where(place < begin, sums, 0.0))
        hardest = tl.maximum(hardest, tl.max(tl.where(counted, sums, float("-inf"))))
        closer += tl.sum((counted & (sums > target)).to(tl.int32))
        equal += tl.sum((counted & (sums == target)).to(tl.int32))
    tl.store(danger + bundle, hardest - target)
    tl.store(rank + bundle, 1 + closer)
    tl.store(ties + bundle, equal)


def available() -> bool:
    return bool(torch.cuda.is_available())


def score_tensors(vectors: Any, anchors: Any, positives: Any, negatives: Any, offsets: Any) -> tuple[Any, Any, Any]:
    """Tensors on one CUDA device in, (danger, rank, ties) on the same device out."""
    n = anchors.shape[0]
    danger = torch.empty(n, dtype=torch.float64, device=vectors.device)
    rank = torch.empty(n, dtype=torch.int32, device=vectors.device)
    ties = torch.empty(n, dtype=torch.int32, device=vectors.device)
    arrays = (vectors, anchors, positives, negatives, offsets, danger, rank, ties)
    _score[(n,)](*arrays, vectors.shape[1], rows=ROWS, columns=COLUMNS, num_warps=WARPS)
    return danger, rank, ties


def score_all(
    vectors: npt.NDArray[np.float32],
    anchors: npt.NDArray[np.int32],
    positives: npt.NDArray[np.int32],
    negatives: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Arrays in, arrays out; the vectors travel once."""
    moved = [torch.from_numpy(np.array(part)).cuda() for part in (vectors, anchors, positives, negatives, offsets)]
    danger, rank, ties = score_tensors(*moved)
    return danger.cpu().numpy(), rank.cpu().numpy(), ties.cpu().numpy()
