"""Exposures come out exactly as the reference computes them, and a remedy really remedies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.config import Curriculum, Phase, Ratios, Training
from crucible.contrast.exposure import expected_exposure, per_pool, status_of
from crucible.contrast.shares import plan
from crucible.errors import BadConfig, BadData

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


# --- per pool ----------------------------------------------------------------------------------------------------------

SIZES = {"tier1_easy": 3000, "tier2_robust": 900, "legacy": 454, "organic": 200, "expanded": 100}
PHASED = Curriculum(
    mode="phased",
    phases=(Phase(until_step=4000, tier_probabilities=(0.8, 0.2, 0.0)),),
    tier_probabilities=(0.5, 0.3, 0.2),
)
V2 = Curriculum(
    mode="phased_v2",
    start_probabilities=(0.9, 0.1, 0.0),
    end_probabilities=(0.1, 0.2, 0.7),
    transition_start=50,
    transition_end=900,
)


def test_the_legacy_pool_of_a_plain_curriculum_is_the_worked_example():
    found = per_pool(Curriculum(), Training(), SIZES)
    assert list(found) == ["legacy", "organic", "expanded"]
    assert found["legacy"].expected == pytest.approx(expected_exposure(**EXAMPLE).expected, rel=1e-12)
    assert found["organic"].expected == pytest.approx(10_000 * 32 * 0.10 * 0.15 / 200)
    assert found["expanded"].expected == pytest.approx(10_000 * 32 * 0.10 * 0.10 / 100)
    assert [one.pool for one in found.values()] == list(found)


def test_phases_are_integrated_over_the_steps_they_hold_for():
    found = per_pool(PHASED, Training(), SIZES)["legacy"]
    assert found.tier3_probability == pytest.approx(0.2 * 6000 / 10_000)
    assert found.expected == pytest.approx(6000 * 32 * 0.2 * 0.75 / 454)
    assert per_pool(PHASED, Training(steps=4000), SIZES)["legacy"].expected == 0


def test_an_empty_pool_has_no_exposure_and_gives_its_draws_to_the_others():
    found = per_pool(Curriculum(), Training(), SIZES | {"expanded": 0})
    assert list(found) == ["legacy", "organic"]
    assert found["legacy"].expected == pytest.approx(10_000 * 32 * 0.10 * (0.75 / 0.9) / 454)


def test_a_cap_makes_a_pool_smaller_and_each_item_of_it_more_frequent():
    found = per_pool(Curriculum(tier_caps=(None, None, 377)), Training(), SIZES)
    assert found["legacy"].legacy_pool == 227
    assert found["legacy"].expected == pytest.approx(10_000 * 32 * 0.10 * 0.75 / 227)


def test_pools_without_the_tiers_beside_them_are_enough():
    sizes = {name: SIZES[name] for name in ("legacy", "organic", "expanded")}
    assert per_pool(Curriculum(), Training(), sizes) == per_pool(Curriculum(), Training(), SIZES)


def test_nothing_to_draw_from_is_refused():
    with pytest.raises(BadData, match="no bundle to train on"):
        per_pool(Curriculum(), Training(), dict.fromkeys(SIZES, 0))


def test_settings_that_cannot_be_are_refused_by_their_key():
    with pytest.raises(BadConfig, match=r"curriculum.tier3_ratios sum to 1.15"):
        per_pool(Curriculum(tier3_ratios=Ratios(legacy=0.9)), Training(), SIZES)


@given(
    st.sampled_from([Curriculum(), PHASED, V2]),
    st.integers(1, 3000),
    st.integers(1, 64),
    st.tuples(*[st.integers(0, 300)] * 5),
)
def test_every_remedy_of_every_pool_restores_it_whatever_the_phases(curriculum, steps, batch_size, sizes):
    named = dict(zip(SIZES, sizes, strict=True))
    try:
        found = per_pool(curriculum, Training(steps=steps, batch_size=batch_size), named)
    except BadData:
        return
    for name, one in found.items():
        remedy = one.healthy_with
        assert (remedy is None) == (one.expected >= 50)
        if remedy is None:
            continue
        if remedy.steps is not None:
            healthy, almost = (
                per_pool(curriculum, Training(steps=max(s, 1), batch_size=batch_size), named)[name].expected
                for s in (remedy.steps, remedy.steps - 1)
            )
            assert healthy >= 50 * (1 - 1e-9) and (almost < 50 * (1 + 1e-9) or remedy.steps == 1)
        if remedy.legacy_pool is not None:
            draws = plan(curriculum, {"tier1": sizes[0], "tier2": sizes[1], **{k: named[k] for k in found}})
            assert draws.draws(2, steps) * batch_size * one.legacy_ratio / remedy.legacy_pool >= 50 * (1 - 1e-9)
        if remedy.legacy_ratio is not None:
            assert one.tier3_probability * steps * batch_size * remedy.legacy_ratio / one.legacy_pool >= 50 * (1 - 1e-9)


def test_a_pool_that_nobody_draws_from_has_no_remedy_in_steps():
    never = Curriculum(tier_probabilities=(0.7, 0.3, 0.0))
    one = per_pool(never, Training(), SIZES)["legacy"]
    assert one.status == "severe" and one.healthy_with.steps is None and one.healthy_with.legacy_ratio is None
