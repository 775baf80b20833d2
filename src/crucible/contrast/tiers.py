"""Dangers -> two cut points -> three tiers, as the metrics reference writes it. Pure.

Ties go to the lower tier, as written; the index is clipped so that a threshold of 1.0 exists. Which model's dangers are used
is decided by the eval set, once, at freezing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

TIERS = ("tier1_easy", "tier2_robust", "tier3_adversarial")
THRESHOLDS = (0.70, 0.90)
SMALL_TIER = 50
"""Below this many items a tier's quantiles are optimistic; reports say so."""


def cut_points(dangers: npt.NDArray[np.float64], thresholds: Sequence[float] = THRESHOLDS) -> tuple[float, float]:
    if dangers.size == 0 or not np.isfinite(dangers).all():
        raise ValueError("cut points need at least one danger, and finite ones")
    ordered = np.sort(dangers)
    first, second = (float(ordered[min(int(len(ordered) * share), len(ordered) - 1)]) for share in thresholds)
    return first, second


def assign(dangers: npt.NDArray[np.float64], cuts: tuple[float, float]) -> npt.NDArray[np.int8]:
    """The tier of each danger as an index into TIERS."""
    return (dangers > cuts[0]).astype(np.int8) + (dangers > cuts[1]).astype(np.int8)


def counts(tier: npt.NDArray[np.int8]) -> dict[str, int]:
    """Items per tier with the short names of the fingerprint: tier1, tier2, tier3."""
    return {f"tier{i + 1}": int(np.count_nonzero(tier == i)) for i in range(len(TIERS))}
