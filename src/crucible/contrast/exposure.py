"""Training settings -> expected exposures of each legacy item, a status, and what would make it healthy. Pure.

An expectation only: what a run really showed each item is read from its log, not here.
"""

from __future__ import annotations

import math

import msgspec

from crucible.errors import BadConfig

STATUSES = ((50.0, "healthy"), (30.0, "warning"), (10.0, "critical"), (0.0, "severe"))
"""A boundary value belongs to the healthier class."""


class Remedy(msgspec.Struct, frozen=True):
    """Each alone, the others unchanged, would make the pool healthy; null where no value can."""

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


_LARGEST = 10**15
"""Far beyond any training run, and still exact in float64."""

_ACTIONS = {
    "healthy": "No action needed",
    "warning": "Monitor frozen tier3 closely",
    "critical": "Consider increasing legacy ratio",
    "severe": "Regression highly likely",
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


def _remedy(steps: int, batch: int, tier3: float, ratio: float, pool: int) -> Remedy:
    healthy = STATUSES[0][0]
    per_step, at_full_ratio = batch * tier3 * ratio, steps * batch * tier3
    needed_ratio = healthy * pool / at_full_ratio if at_full_ratio else math.inf
    return Remedy(
        steps=math.ceil(healthy * pool / per_step) if per_step else None,
        legacy_ratio=needed_ratio if needed_ratio <= 1.0 else None,
        legacy_pool=math.floor(steps * per_step / healthy) or None,
    )
