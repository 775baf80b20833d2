"""The results of several seeds -> the median one, and a document that shows why it and not another. Pure.

The best seed would be a lucky one, and what is published about it would not come out again; the median is what training
gives. With an even number it is the lower of the two in the middle; of equal results the lower seed comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from crucible.errors import BadData
from crucible.kernel import stats
from crucible.kernel.stats import Summary

METRIC = "organic_holdout"
RULE = f"the median seed by {METRIC}: the lower middle of an even number, the lower seed of equal ones"


class SeedResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seed: int
    checkpoint: str
    metrics: dict[str, float | None]


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """selection.json."""

    schema: int
    rule: str
    metric: str
    chosen: int
    seeds: list[SeedResult]
    """In the order of the metric, lowest first: the chosen one stands in the middle."""
    summary: Summary


def select(results: Sequence[SeedResult]) -> Selection:
    """Refuses one checkpoint under two seeds: it would count twice and be its own median."""
    ordered = sorted(results, key=lambda one: (_value(one), one.seed))
    by_checkpoint: dict[str, int] = {}
    for one in ordered:
        other = by_checkpoint.setdefault(one.checkpoint, one.seed)
        if other != one.seed:
            raise BadData(
                f"seeds {other} and {one.seed} gave the same checkpoint {one.checkpoint[:16]}…: they are one result",
                fix="Check that the seed reaches the training; use other seeds.",
            )
    chosen = ordered[(len(ordered) - 1) // 2]
    return Selection(1, RULE, METRIC, chosen.seed, ordered, stats.summary([_value(one) for one in ordered]))


def _value(one: SeedResult) -> float:
    value = one.metrics.get(METRIC)
    if value is None:
        raise BadData(f"seed {one.seed} has no {METRIC}", fix="Set data.organic_eval.")
    return value
