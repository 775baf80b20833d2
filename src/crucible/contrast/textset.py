"""Bundles -> unique texts and integer arrays: what encoders and the scoring engine run on. Holds no vectors.

Equal texts share one id and therefore one vector: encoded in two batches they could differ in the last bit, and an exact
tie would turn into an arbitrary win.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crucible.contrast.bundle import Bundle

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TextSet:
    """`negatives[offsets[i]:offsets[i + 1]]` are the text ids of bundle i's negatives."""

    ids: list[str]
    texts: list[str]
    anchors: Ids
    positives: Ids
    negatives: Ids
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def build(bundles: Iterable[Bundle]) -> TextSet:
    known: dict[str, int] = {}
    ids: list[str] = []
    anchors: list[int] = []
    positives: list[int] = []
    negatives: list[int] = []
    offsets = [0]
    for bundle in bundles:
        ids.append(bundle.id)
        anchors.append(known.setdefault(bundle.anchor, len(known)))
        positives.append(known.setdefault(bundle.positive, len(known)))
        for text in bundle.negatives:
            negatives.append(known.setdefault(text, len(known)))
        offsets.append(len(negatives))
    return TextSet(
        ids,
        list(known),
        np.asarray(anchors, dtype=np.int32),
        np.asarray(positives, dtype=np.int32),
        np.asarray(negatives, dtype=np.int32),
        np.asarray(offsets, dtype=np.int64),
    )
