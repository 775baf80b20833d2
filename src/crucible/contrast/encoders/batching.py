"""Token counts -> batches of similar length within a token budget, and padded arrays; knows no model and no library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

"""Called with (done, total) while texts are encoded."""
Tokens = Sequence[Sequence[int]]


def batches(lengths: Sequence[int], budget: int, *, one_length: bool = False) -> Iterator[npt.NDArray[np.int64]]:
    """Positions, longest first, so that rows x longest row <= budget; a text longer than the budget goes alone.

    With `one_length` a batch holds texts of one length only, so that nothing is padded.

    Similar lengths share a batch, so little is spent on padding; the longest come first, so that what does not fit into
    memory fails at once and an estimate of the time left is never too rosy.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[int(order[start])])
        batch = order[start : start + max(1, budget // longest)]
        if one_length:
            batch = batch[: sum(lengths[int(place)] == lengths[int(batch[0])] for place in batch)]
        yield batch
        start += len(batch)


def padded(rows: Tokens, pad: int, *, left: bool = False) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Token ids and attention mask as two matrices as wide as the longest row."""
    width = max(map(len, rows))
    ids, mask = np.full((len(rows), width), pad, dtype=np.int64), np.zeros((len(rows), width), dtype=np.int64)
    for place, row in enumerate(rows):
        part = slice(width - len(row), width) if left else slice(0, len(row))
        ids[place, part], mask[place, part] = row, 1
    return ids, mask
