"""Training settings -> expected exposures of each item of a pool, a status, and what would make it healthy. Pure.

An expectation only: what a run really showed each item is read from its log by `realised.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from crucible.contrast import shares
from crucible.contrast.config import Curriculum, Training
from crucible.errors import BadConfig

STATUSES = ((50.0, "healthy"), (30.0, "warning"), (10.0, "critical"), (0.0, "severe"))
"""A boundary value belongs to the healthier class."""


class Remedy(msgspec.Struct, frozen=True):
    """Each alone, the others unchanged, would make the pool healthy; null where no value can.

    The fields are named after the legacy pool, for which the reference defines them; in `per_pool` they are those of
    the pool in question, and the ratio is its share of the tier-3 draws after empty pools have given theirs away.
    """

    steps: int | None
    legacy_ratio: float | None
    legacy_pool: int | None


class Exposure(msgspec.Struct, frozen=True):
    expected: float
    status: str
    action: str
    steps: int
    batch_size: int
    tier3_probability: float
    legacy_ratio: float
    legacy_pool: int
    thresholds: dict[str, float]
    healthy_with: Remedy | None
    pool: str = "legacy"


_LARGEST = 10**15
"""Far beyond any training run, and still exact in float64."""

_ACTIONS = {
    "healthy": "No action needed",
    "warning": "Monitor frozen tier3 closely",
    "critical": "Consider increasing legacy ratio",
    "severe": "Regression highly likely",
}
_ACTIONS_ELSEWHERE = _ACTIONS | {
    "warning": "Monitor the organic holdout closely",
    "critical": "Consider increasing its ratio",
    "severe": "Hardly anything can be learned from it",
}


def status_of(expected: float) -> str:
    return next(name for floor, name in STATUSES if expected >= floor)


def expected_exposure(
    *, steps: int, batch_size: int, tier3_probability: float, legacy_ratio: float, legacy_pool: int
) -> Exposure:
    """E = S x B x p_tier3 x r_legacy / |L|."""
    for name, count in (("steps", steps), ("batch size", batch_size), ("legacy pool", legacy_pool)):
        if not 1 <= count <= _LARGEST:
            raise BadConfig(f"{name} is {count}, it must be from 1 to 10^15", fix="See `crucible exposure --help`.")
    for name, share in (("tier3 probability", tier3_probability), ("legacy ratio", legacy_ratio)):
        if not 0.0 <= share <= 1.0:  # also catches NaN
            raise BadConfig(f"{name} is {share}, it must be from 0 to 1", fix="See `crucible exposure --help`.")
    draws = steps * batch_size * tier3_probability * legacy_ratio
    expected = draws / legacy_pool
    status = status_of(expected)
    return Exposure(
        expected=expected,
        status=status,
        action=_ACTIONS[status],
        steps=steps,
        batch_size=batch_size,
        tier3_probability=tier3_probability,
        legacy_ratio=legacy_ratio,
        legacy_pool=legacy_pool,
        thresholds={name: floor for floor, name in STATUSES},
        healthy_with=None
        if status == "healthy"
        else _remedy(steps, batch_size, tier3_probability, legacy_ratio, legacy_pool),
    )


def per_pool(curriculum: Curriculum, training: Training, sizes: Mapping[str, int]) -> dict[str, Exposure]:
    """The expectation of every pool that holds bundles, over all phases, after caps and redistribution.

    `sizes` names the pools, and tier1_easy and tier2_robust; a tier that is not named is taken to hold bundles.
    """
    plan = shares.plan(curriculum, group_sizes(sizes))
    return {name: _of_pool(name, plan, training) for name in shares.POOLS if plan.sizes[name]}


def group_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """With the names of the shares: tier1 and tier2 for tier1_easy and tier2_robust."""
    long = {"tier1": "tier1_easy", "tier2": "tier2_robust"}
    tiers = {short: sizes.get(name, sizes.get(short, 1)) for short, name in long.items()}
    return tiers | {name: sizes.get(name, 0) for name in shares.POOLS}


def _of_pool(name: str, plan: shares.Plan, training: Training) -> Exposure:
    probability = min(plan.draws(2, training.steps) / training.steps, 1.0) if training.steps > 0 else 0.0
    made = expected_exposure(
        steps=training.steps,
        batch_size=training.batch_size,
        tier3_probability=probability,
        legacy_ratio=plan.pools[name],
        legacy_pool=plan.sizes[name],
    )
    remedy = made.healthy_with
    if remedy is not None:  # the mean probability holds for this many steps only
        needed = STATUSES[0][0] * plan.sizes[name] / training.batch_size
        remedy = msgspec.structs.replace(remedy, steps=_steps_for(plan, plan.pools[name], needed))
    action = (_ACTIONS if name == "legacy" else _ACTIONS_ELSEWHERE)[made.status]
    return msgspec.structs.replace(made, pool=name, action=action, healthy_with=remedy)


def _steps_for(plan: shares.Plan, ratio: float, draws: float) -> int | None:
    """The fewest steps that give a pool so many draws a slot: draws only grow with steps, so by halving."""
    low, high = 0, 1
    while plan.draws(2, high) * ratio < draws * (1 - 1e-12):
        low, high = high, high * 2
        if high > _LARGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = plan.draws(2, middle) * ratio >= draws * (1 - 1e-12)
        low, high = (low, middle) if enough else (middle, high)
    return high


def _remedy(steps: int, batch: int, tier3: float, ratio: float, pool: int) -> Remedy:
    healthy = STATUSES[0][0]
    per_step, at_full_ratio = batch * tier3 * ratio, steps * batch * tier3
    needed_ratio = healthy * pool / at_full_ratio if at_full_ratio else math.inf
    return Remedy(
        steps=math.ceil(healthy * pool / per_step) if per_step else None,
        legacy_ratio=needed_ratio if needed_ratio <= 1.0 else None,
        legacy_pool=math.floor(steps * per_step / healthy) or None,
    )
