"""Scores + frozen tiers -> the scoreboard of the metrics reference, and its JSON. Compares nothing.

`accuracy` and `pass_rate` are one number under the two names the reference uses. What the reference leaves out stands beside
it: `n_ties` and `mean_rank_pessimistic` (ties counted against the positive), because a collapsed encoder that maps every
text to one point has pass rate 0 but mean rank 1.0, "perfect".
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast.score import Scores
from crucible.contrast.tiers import TIERS
from crucible.documents import read_json
from crucible.kernel.pin import Pin


class TierStats(msgspec.Struct, frozen=True):
    """Null where a tier is empty: a missing number is not zero."""

    n: int
    correct: int
    accuracy: float | None
    pass_rate: float | None
    mean_margin: float | None
    median_margin: float | None
    q10_margin: float | None
    q90_margin: float | None
    mean_rank: float | None
    mean_rank_pessimistic: float | None = None
    n_ties: int = 0


class EvalHeader(msgspec.Struct, frozen=True):
    """Under which conditions the scoreboard was made; the fingerprint components of the reference come first."""

    source_hash: str
    seed: int
    item_count: int
    tier_distribution: dict[str, int]
    version: str
    fingerprint: str
    eval_set: str
    model: dict[str, str]
    subject: str
    """Who is compared; several scoreboards of one subject with different `model_seed`s are one row."""
    model_seed: int | None
    recorded: dict[str, float] | None
    """Dangers that the eval file itself recorded: how many, and the largest difference to these."""
    pin: Pin
    items: dict[str, str] | None = None
    """File name (relative to the scoreboard) and digest of the per-item results: what paired tests need."""


class Scoreboard(msgspec.Struct, frozen=True):
    eval_header: EvalHeader
    overall: TierStats
    by_tier: dict[str, TierStats]
    timestamp: str
    checkpoint_path: str


_RECORDED = ("pass_rate", "mean_margin", "median_margin", "q10_margin", "q90_margin", "mean_rank", "n", "n_ties")
METRICS = tuple(f"{group}.{name}" for group in ("overall", *TIERS) for name in _RECORDED)
"""The closed list of metric names in a contrastive Record."""


def tier_stats(scores: Scores, chosen: npt.NDArray[np.bool_]) -> TierStats:
    """The statistics of the chosen items, in float64; quantiles by linear interpolation."""
    n = int(np.count_nonzero(chosen))
    if n == 0:
        return TierStats(0, 0, None, None, None, None, None, None, None)
    margin, rank, ties = scores.margin[chosen], scores.rank[chosen], scores.ties[chosen]
    correct = int(np.count_nonzero(margin > 0.0))
    q10, median, q90 = (float(q) for q in np.quantile(margin, (0.1, 0.5, 0.9)))
    return TierStats(
        n=n,
        correct=correct,
        accuracy=correct / n,
        pass_rate=correct / n,
        mean_margin=float(margin.mean()),
        median_margin=median,
        q10_margin=q10,
        q90_margin=q90,
        mean_rank=float(rank.mean()),
        mean_rank_pessimistic=float((rank + ties).mean()),
        n_ties=int(np.count_nonzero(margin == 0.0)),
    )


def statistics(scores: Scores, tier: npt.NDArray[np.int8]) -> tuple[TierStats, dict[str, TierStats]]:
    overall = tier_stats(scores, np.ones(len(tier), dtype=np.bool_))
    return overall, {name: tier_stats(scores, tier == place) for place, name in enumerate(TIERS)}


def metrics(board: Scoreboard) -> dict[str, float]:
    """The scoreboard's numbers under the names of METRICS; what does not exist is left out."""
    groups = {"overall": board.overall, **board.by_tier}
    values = {f"{group}.{name}": getattr(stats, name) for group, stats in groups.items() for name in _RECORDED}
    return {name: float(value) for name, value in values.items() if value is not None}


def load(path: Path) -> Scoreboard:
    return read_json(path, Scoreboard, "a scoreboard", "Make one: crucible eval --model M --eval-set DIR --output FILE")
