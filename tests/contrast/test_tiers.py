"""Tiers come out as the algorithm of the metrics reference gives them, boundary by boundary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast import tiers


def as_the_reference_writes_it(dangers: list[float]) -> list[str]:
    ordered = sorted(dangers)
    t1, t2 = ordered[int(len(dangers) * 0.70)], ordered[int(len(dangers) * 0.90)]
    return ["tier1_easy" if d <= t1 else "tier2_robust" if d <= t2 else "tier3_adversarial" for d in dangers]


@given(st.lists(st.floats(-2, 2, allow_nan=False) | st.sampled_from([0.0, 0.5]), min_size=1, max_size=60))
def test_assignment_equals_the_reference(dangers):
    values = np.asarray(dangers)
    assigned = tiers.assign(values, tiers.cut_points(values))
    assert [tiers.TIERS[i] for i in assigned] == as_the_reference_writes_it(dangers)


@pytest.mark.parametrize("n", [1, 9, 10, 11, 100, 3786])
def test_sizes_without_ties_follow_the_formula(n):
    values = np.linspace(-1, 1, n)
    counts = tiers.counts(tiers.assign(values, tiers.cut_points(values)))
    first, second = min(int(0.7 * n), n - 1), min(int(0.9 * n), n - 1)
    assert counts == {"tier1": first + 1, "tier2": second - first, "tier3": n - second - 1}


def test_threshold_of_one_is_clipped_instead_of_crashing():
    assert tiers.cut_points(np.asarray([1.0, 2.0, 3.0]), (0.5, 1.0)) == (2.0, 3.0)


@pytest.mark.parametrize("bad", [[], [np.nan, 1.0], [np.inf]])
def test_no_dangers_or_non_finite_ones_are_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        tiers.cut_points(np.asarray(bad, dtype=np.float64))
