"""Exposures come out exactly as the reference computes them, and a remedy really remedies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.exposure import expected_exposure, status_of
from crucible.errors import BadConfig

EXAMPLE = {"steps": 10_000, "batch_size": 32, "tier3_probability": 0.10, "legacy_ratio": 0.75, "legacy_pool": 454}


def test_the_worked_example_is_52_9_and_healthy():
    result = expected_exposure(**EXAMPLE)
    assert f"{result.expected:.1f}" == "52.9"
    assert result.status == "healthy"
    assert result.healthy_with is None


@pytest.mark.parametrize(
    ("expected", "status"),
    [
        (50, "healthy"),
        (49.999, "warning"),
        (30, "warning"),
        (29.999, "critical"),
        (10, "critical"),
        (9.999, "severe"),
        (0, "severe"),
    ],
)
def test_a_boundary_belongs_to_the_healthier_class(expected, status):
    assert status_of(expected) == status


@given(st.integers(1, 10**5), st.integers(1, 512), st.floats(0.001, 1), st.floats(0.001, 1), st.integers(1, 10**5))
def test_every_remedy_alone_restores_health(steps, batch_size, tier3_probability, legacy_ratio, legacy_pool):
    given = {"steps": steps, "batch_size": batch_size, "tier3_probability": tier3_probability}
    given |= {"legacy_ratio": legacy_ratio, "legacy_pool": legacy_pool}
    remedy = expected_exposure(**given).healthy_with
    for name in ("steps", "legacy_ratio", "legacy_pool"):
        value = getattr(remedy, name, None)
        if value is not None:
            assert expected_exposure(**given | {name: value}).expected >= 50 * (1 - 1e-9)


@pytest.mark.parametrize(
    "change",
    [{"legacy_pool": 0}, {"steps": -1}, {"batch_size": 0}, {"tier3_probability": 1.5}, {"legacy_ratio": float("nan")}],
)
def test_impossible_settings_are_refused_by_name(change):
    with pytest.raises(BadConfig, match=next(iter(change)).replace("_", " ")):
        expected_exposure(**EXAMPLE | change)
