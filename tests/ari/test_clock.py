from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.clock import Clock, OutOfBudget
from crucible.errors import MachineryFailed

from .conftest import small_track


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def started(hands: Hands, **numbers: float) -> Clock:
    clock = Clock(small_track(**{"budget_s": 3600, "call_cap_s": 1200, "reserve_s": 300, **numbers}), hands)
    clock.start()
    return clock


def test_a_call_just_before_the_reserve_is_granted_only_what_is_left_before_it() -> None:
    hands = Hands()
    clock = started(hands)
    assert clock.grant() == 1200
    hands.at += 3290
    assert clock.grant() == pytest.approx(10)
    assert clock.left() == pytest.approx(310)


def test_no_compute_in_the_reserve_and_none_after_the_deadline() -> None:
    hands = Hands()
    clock = started(hands)
    for moment in (3300, 3599, 3600, 10_000):
        hands.at = 1000.0 + moment
        with pytest.raises(OutOfBudget):
            clock.grant()
    assert clock.left() == 0.0


@given(st.floats(0, 5000), st.floats(1, 4000), st.floats(1, 4000), st.floats(0, 3999))
def test_a_grant_never_reaches_into_the_reserve(used: float, budget: float, cap: float, reserve: float) -> None:
    if reserve >= budget:
        reserve = budget / 2
    hands = Hands()
    clock = started(hands, budget_s=budget, call_cap_s=cap, reserve_s=reserve)
    hands.at += used
    try:
        granted = clock.grant()
    except OutOfBudget:
        assert clock.left() <= reserve + 1e-6
        return
    assert 0 < granted <= cap
    assert used + granted <= budget - reserve + 1e-6


def test_the_prefix_shows_minutes_and_seconds() -> None:
    hands = Hands()
    clock = started(hands)
    hands.at += 168
    assert clock.prefix() == "[57:12 left] "
    hands.at += 1e6
    assert clock.prefix() == "[00:00 left] "


def test_the_clock_cannot_be_started_again() -> None:
    clock = started(Hands())
    with pytest.raises(MachineryFailed):
        clock.start()
