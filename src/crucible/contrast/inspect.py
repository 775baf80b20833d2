"""An evaluation -> what a person wants to see of it: the margin distribution by tier and the worst bundles in full text.

Only data; drawing it is the board's work.
"""

from __future__ import annotations

import msgspec
import numpy as np

from crucible.contrast import encode
from crucible.contrast.evaluate import Evaluation
from crucible.contrast.textset import NO_TIER
from crucible.contrast.tiers import TIERS


class WorstBundle(msgspec.Struct, frozen=True):
    id: str
    tier: str | None
    margin: float
    rank: int
    anchor: str
    positive: str
    positive_similarity: float
    negatives: list[tuple[str, float]]
    """Closest first."""


def margins_by_tier(evaluation: Evaluation) -> dict[str, list[float]]:
    """Every margin, under the name of its tier."""
    margin, tier = evaluation.scores.margin, evaluation.evalset.tier
    groups = {name: margin[tier == place].tolist() for place, name in enumerate(TIERS)}
    untiered = margin[tier == NO_TIER].tolist()
    return groups | ({"no tier": untiered} if untiered else {})


def worst(evaluation: Evaluation, count: int = 20) -> list[WorstBundle]:
    """The bundles with the lowest margins, worst first; ties by their place in the file."""
    items, scores = evaluation.evalset.items, evaluation.scores
    chosen = np.argsort(scores.margin, kind="stable")[:count]
    rows = [
        [items.anchors[i], items.positives[i], *items.negatives[items.offsets[i] : items.offsets[i + 1]]]
        for i in chosen
    ]
    texts = {int(number): items.texts[int(number)] for row in rows for number in row}
    vectors, _ = encode.vectors_for(evaluation.encoder, list(texts.values()))
    vector_of = dict(zip(texts, vectors.astype(np.float64), strict=True))
    found = []
    for i, row in zip(chosen.tolist(), rows, strict=True):
        anchor, positive, *negatives = (int(number) for number in row)
        similarity = {number: float(vector_of[anchor] @ vector_of[number]) for number in (positive, *negatives)}
        place = int(evaluation.evalset.tier[i])
        found.append(
            WorstBundle(
                id=items.ids[i],
                tier=None if place == NO_TIER else TIERS[place],
                margin=float(scores.margin[i]),
                rank=int(scores.rank[i]),
                anchor=texts[anchor],
                positive=texts[positive],
                positive_similarity=similarity[positive],
                negatives=sorted(((texts[n], similarity[n]) for n in negatives), key=lambda pair: -pair[1]),
            )
        )
    return found
