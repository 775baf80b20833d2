"""A batch depends on seed and step alone, shares come out as configured, and nobody is seen twice before all are seen once."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom

from crucible.contrast import curriculum
from crucible.contrast.config import Curriculum, Phase, Ratios
from crucible.contrast.curriculum import Groups, Sampler, problems
from crucible.contrast.shares import POOLS, capped, pieces, plan
from crucible.errors import BadConfig, BadData

UNIFORM = Curriculum()
PHASED = Curriculum(
    mode="phased",
    phases=(
        Phase(until_step=100, tier_probabilities=(0.8, 0.2, 0.0)),
        Phase(until_step=700, tier_probabilities=(0.5, 0.25, 0.25)),
    ),
    tier_probabilities=(0.2, 0.3, 0.5),
)
V2 = Curriculum(
    mode="phased_v2",
    start_probabilities=(0.9, 0.1, 0.0),
    end_probabilities=(0.1, 0.2, 0.7),
    transition_start=50,
    transition_end=900,
)
MODES = (UNIFORM, PHASED, V2)


def groups(*sizes: int) -> Groups:
    """tier1, tier2, legacy, organic, expanded, on shuffled indices: a group is no range."""
    order = np.random.default_rng(0).permutation(sum(sizes)).astype(np.int64)
    one, two, *three = np.split(order, np.cumsum(sizes)[:-1])
    return Groups(one, two, dict(zip(POOLS, three, strict=True)))


def members(found: Groups) -> dict[str, set[int]]:
    return {name: set(items.tolist()) for name, items in found.named().items()}


def run(sampler: Sampler, steps: int) -> list[list[int]]:
    return [sampler.batch(step).items.tolist() for step in range(steps)]


sizes = st.tuples(*[st.integers(1, 60)] * 5)
modes = st.sampled_from(MODES)
seeds = st.integers(0, 2**63)


@st.composite
def simplex(draw, zeros=True):
    weights = [draw(st.integers(0 if zeros else 1, 20)) for _ in range(3)]
    assume(sum(weights))
    return tuple(weight / sum(weights) for weight in weights)


@given(sizes, modes, seeds, st.integers(1, 9), st.lists(st.integers(0, 1300), min_size=1, max_size=6))
def test_a_batch_is_a_function_of_seed_and_step_in_whatever_order_it_is_asked_for(sizes, mode, seed, batch, steps):
    sampler = Sampler(groups(*sizes), mode, batch_size=batch, seed=seed)
    for step in steps:
        fresh = Sampler(groups(*sizes), mode, batch_size=batch, seed=seed).batch(step)
        again = sampler.batch(step)
        for name in ("items", "tiers", "pools"):
            assert np.array_equal(getattr(fresh, name), getattr(again, name))


@pytest.mark.parametrize("slots", [1, 50, 10**5])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.mode)
def test_how_many_steps_are_drawn_at_once_changes_nothing(mode, slots, monkeypatch):
    usual = run(Sampler(groups(40, 30, 20, 7, 3), mode, batch_size=7, seed=7), 200)
    monkeypatch.setattr(curriculum, "_BLOCK", slots)
    assert run(Sampler(groups(40, 30, 20, 7, 3), mode, batch_size=7, seed=7), 200) == usual


@given(modes, st.integers(0, 1200))
def test_a_resumed_run_goes_on_where_the_first_one_was_killed(mode, killed):
    whole = run(Sampler(groups(40, 30, 20, 7, 3), mode, batch_size=4, seed=7), killed + 3)
    resumed = Sampler(groups(40, 30, 20, 7, 3), mode, batch_size=4, seed=7)
    assert [resumed.batch(step).items.tolist() for step in range(killed, killed + 3)] == whole[killed:]


@given(sizes, modes, seeds)
def test_every_item_of_a_group_is_seen_once_before_any_is_seen_twice(sizes, mode, seed):
    found = groups(*sizes)
    seen = Counter(item for items in run(Sampler(found, mode, batch_size=8, seed=seed), 150) for item in items)
    for items in members(found).values():
        counts = [seen[item] for item in items]
        passes = sum(counts) / len(counts)
        assert {math.floor(passes), math.ceil(passes)} >= set(counts)


@given(sizes, modes, seeds)
def test_no_item_is_drawn_for_a_tier_or_pool_it_is_not_in(sizes, mode, seed):
    found = groups(*sizes)
    where = members(found)
    sampler = Sampler(found, mode, batch_size=8, seed=seed)
    for step in range(0, 1000, 97):
        batch = sampler.batch(step)
        assert batch.items.dtype == np.int64 and batch.tiers.dtype == batch.pools.dtype == np.int8
        for item, tier, pool in zip(batch.items, batch.tiers, batch.pools, strict=True):
            assert (pool >= 0) == (tier == 2)
            assert item in where[POOLS[pool] if tier == 2 else ("tier1", "tier2")[tier]]


@given(simplex(), simplex(), seeds)
def test_realised_shares_are_the_configured_ones(tiers, ratios, seed):
    """By the exact binomial law, with a chance of 10^-12 to be wrong."""
    setting = Curriculum(tier_probabilities=tiers, tier3_ratios=Ratios(**dict(zip(POOLS, ratios, strict=True))))
    sampler = Sampler(groups(5, 5, 5, 5, 5), setting, batch_size=256, seed=seed)
    batches = [sampler.batch(step) for step in range(64)]
    drawn = np.concatenate([batch.tiers for batch in batches])
    pools = np.concatenate([batch.pools for batch in batches])
    for code in range(3):
        assert_binomial(np.count_nonzero(drawn == code), len(drawn), tiers[code])
        assert_binomial(np.count_nonzero(pools == code), np.count_nonzero(drawn == 2), ratios[code])


def assert_binomial(seen: int, n: int, p: float) -> None:
    assert binom.cdf(seen, n, p) > 1e-12 and binom.sf(seen - 1, n, p) > 1e-12


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.mode)
def test_realised_shares_follow_the_phases(mode):
    """Summed over a stretch of the run, draws stay within six standard deviations of the sum of `shares(step)`."""
    sampler = Sampler(groups(50, 50, 50, 20, 10), mode, batch_size=64, seed=3)
    for begin, end in ((0, 100), (100, 400), (400, 700), (700, 1100)):
        expected = np.array([sampler.shares(step).tiers for step in range(begin, end)])
        drawn = np.concatenate([sampler.batch(step).tiers for step in range(begin, end)])
        for code in range(3):
            spread = math.sqrt(64 * float((expected[:, code] * (1 - expected[:, code])).sum()))
            assert abs(np.count_nonzero(drawn == code) - 64 * expected[:, code].sum()) <= 6 * spread + 1e-6


@pytest.mark.parametrize(
    ("mode", "step", "tiers"),
    [
        (UNIFORM, 10**9, (0.6, 0.3, 0.1)),
        (PHASED, 0, (0.8, 0.2, 0.0)),
        (PHASED, 99, (0.8, 0.2, 0.0)),
        (PHASED, 100, (0.5, 0.25, 0.25)),
        (PHASED, 699, (0.5, 0.25, 0.25)),
        (PHASED, 700, (0.2, 0.3, 0.5)),
        (V2, 50, (0.9, 0.1, 0.0)),
        (V2, 475, (0.5, 0.15, 0.35)),
        (V2, 900, (0.1, 0.2, 0.7)),
        (V2, 10**9, (0.1, 0.2, 0.7)),
    ],
)
def test_the_probabilities_of_a_step_are_those_of_its_phase(mode, step, tiers):
    sampler = Sampler(groups(5, 5, 5, 5, 5), mode, batch_size=1, seed=0)
    assert sampler.shares(step).tiers == pytest.approx(tiers, abs=1e-12)


@given(seeds, seeds)
def test_another_seed_gives_another_run(one, other):
    assume(one != other)
    first, second = (Sampler(groups(50, 40, 30, 20, 10), UNIFORM, batch_size=32, seed=seed) for seed in (one, other))
    assert run(first, 3) != run(second, 3)


def test_two_passes_have_different_orders():
    sampler = Sampler(groups(40, 0, 0, 0, 0), UNIFORM, batch_size=40, seed=1)
    first, second, third = run(sampler, 3)
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third != first


def test_a_batch_larger_than_its_group_goes_through_several_passes():
    sampler = Sampler(groups(3, 0, 0, 0, 0), UNIFORM, batch_size=32, seed=1)
    seen = Counter(item for items in run(sampler, 9) for item in items)
    assert set(seen.values()) == {96}


@given(sizes, st.tuples(*[st.none() | st.integers(1, 70)] * 3), seeds)
def test_caps_are_kept_and_the_same_choice_serves_the_whole_run(sizes, caps, seed):
    found = groups(*sizes)
    sampler = Sampler(found, Curriculum(tier_caps=caps), batch_size=16, seed=seed)
    used, all_of = members(sampler.used), members(found)
    drawn = {item for items in run(sampler, 60) for item in items}
    assert drawn <= set().union(*used.values())
    tiers = [[used["tier1"]], [used["tier2"]], [used[pool] for pool in POOLS]]
    for cap, chosen, whole in zip(caps, tiers, (sizes[:1], sizes[1:2], sizes[2:]), strict=True):
        assert sum(map(len, chosen)) == min(sum(whole), sum(whole) if cap is None else cap)
    for name, items in used.items():
        assert items <= all_of[name]


@given(st.tuples(*[st.integers(0, 1000)] * 3), st.integers(1, 2000))
def test_the_cap_of_tier_3_is_shared_in_proportion_to_the_pools(pools, cap):
    used, _ = capped(dict(zip(POOLS, pools, strict=True)), (None, None, cap))
    total = sum(pools)
    assert sum(used.values()) == min(cap, total)
    for name, size in zip(POOLS, pools, strict=True):
        assert used[name] <= size
        if total > cap:
            assert abs(used[name] - size * cap / total) < 1


def test_an_empty_pool_gives_its_ratio_to_the_others_and_it_is_said():
    sampler = Sampler(groups(5, 5, 5, 5, 0), UNIFORM, batch_size=4, seed=0)
    assert sampler.notes == ["pool expanded is empty: its ratio 0.10 goes to legacy and organic in proportion"]
    assert sampler.shares(0).pools == pytest.approx({"legacy": 0.75 / 0.9, "organic": 0.15 / 0.9, "expanded": 0.0})


def test_an_empty_tier_gives_its_probability_to_the_others_and_it_is_said():
    sampler = Sampler(groups(5, 0, 5, 5, 5), UNIFORM, batch_size=64, seed=0)
    assert sampler.notes == ["tier2 is empty: its probability 0.30 goes to tier1 and tier3 in proportion"]
    assert sampler.shares(0).tiers == pytest.approx((6 / 7, 0, 1 / 7))
    assert not any(1 in sampler.batch(step).tiers for step in range(50))


def test_what_has_no_share_is_no_loss_and_no_note():
    setting = Curriculum(tier3_ratios=Ratios(legacy=1.0, organic=0.0, expanded=0.0))
    assert Sampler(groups(5, 5, 5, 0, 0), setting, batch_size=4, seed=0).notes == []


def test_a_tier_3_whose_pools_have_no_ratio_is_empty():
    setting = Curriculum(tier3_ratios=Ratios(legacy=0.0, organic=1.0, expanded=0.0))
    sampler = Sampler(groups(5, 5, 5, 0, 0), setting, batch_size=64, seed=0)
    assert sampler.notes == [
        "tier3 has bundles only in legacy, whose ratio is 0: none of them is drawn",
        "tier3 is empty: its probability 0.10 goes to tier1 and tier2 in proportion",
    ]
    assert not any(2 in sampler.batch(step).tiers for step in range(50))


@given(st.tuples(*[st.sampled_from([0, 4])] * 5), modes, seeds)
def test_whatever_is_empty_either_nothing_is_drawn_from_it_or_it_is_refused(sizes, mode, seed):
    try:
        sampler = Sampler(groups(*sizes), mode, batch_size=8, seed=seed)
    except BadData as error:
        assert "no bundle" in error.message
        if sum(sizes) == sum(sizes[:2]):  # tier 3 is empty: only these two can be drawn from
            assert 0 in sizes[:2]
        return
    assert all(item < sum(sizes) for items in run(sampler, 20) for item in items)


def test_nothing_at_all_is_refused_with_the_counts():
    with pytest.raises(BadData, match=r"no bundle to train on .tier1 0, tier2 0, legacy 0, organic 0, expanded 0"):
        Sampler(groups(0, 0, 0, 0, 0), UNIFORM, batch_size=4, seed=0)


def test_a_phase_that_draws_only_from_an_empty_tier_is_refused_with_its_step():
    setting = Curriculum(mode="phased", phases=(Phase(until_step=9, tier_probabilities=(0.0, 0.0, 1.0)),))
    with pytest.raises(BadData, match="from step 0 on everything is drawn from tier3"):
        Sampler(groups(5, 5, 0, 0, 0), setting, batch_size=4, seed=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tier_probabilities": (0.6, 0.3, 0.05)}, "curriculum.tier_probabilities sum to 0.95, they must sum to 1"),
        ({"tier_probabilities": (1.2, -0.2, 0.0)}, "curriculum.tier_probabilities[0] is 1.2, it must be from 0 to 1"),
        ({"tier_probabilities": (math.nan, 0.5, 0.5)}, "curriculum.tier_probabilities[0] is nan"),
        ({"tier3_ratios": Ratios(legacy=0.9)}, "curriculum.tier3_ratios sum to 1.15, they must sum to 1"),
        ({"tier3_ratios": Ratios(legacy=-0.1)}, "curriculum.tier3_ratios.legacy is -0.1"),
        ({"tier_caps": (None, 0, None)}, "curriculum.tier_caps[1] is 0, it must be null or at least 1"),
        ({"mode": "phased"}, "curriculum.phases is empty, phased needs at least one phase"),
        ({"phases": PHASED.phases}, "curriculum.phases is given, but curriculum.mode is uniform"),
        (
            {"mode": "phased", "phases": PHASED.phases[::-1]},
            "curriculum.phases[1].until_step is 100, it must be above 700 of the phase before",
        ),
        (
            {"mode": "phased", "phases": (Phase(until_step=0, tier_probabilities=(1.0, 0.0, 0.0)),)},
            "curriculum.phases[0].until_step is 0, it must be above 0",
        ),
        (
            {"mode": "phased", "phases": (Phase(until_step=9, tier_probabilities=(0.5, 0.0, 0.0)),)},
            "curriculum.phases[0].tier_probabilities sum to 0.5",
        ),
        ({"mode": "phased_v2"}, "curriculum.transition_end is missing, phased_v2 needs it"),
        ({"transition_end": 4}, "curriculum.transition_end is given, but curriculum.mode is uniform"),
    ],
)
def test_an_impossible_setting_is_named_by_its_key(change, said):
    wrong = problems(Curriculum(**change))
    assert any(said in sentence for sentence in wrong), wrong
    with pytest.raises(BadConfig):
        plan(Curriculum(**change), {"tier1": 1})


@pytest.mark.parametrize(("begin", "end"), [(9, 9), (10, 9), (-1, 9)])
def test_a_transition_must_begin_before_it_ends(begin, end):
    setting = Curriculum(
        mode="phased_v2",
        start_probabilities=(1.0, 0.0, 0.0),
        end_probabilities=(0.0, 0.0, 1.0),
        transition_start=begin,
        transition_end=end,
    )
    assert len(problems(setting)) == 1 and "curriculum.transition_start" in problems(setting)[0]


def test_probabilities_written_by_hand_may_miss_one_by_a_millionth():
    assert problems(Curriculum(tier_probabilities=(0.333333, 0.333333, 0.333334))) == []
    assert problems(Curriculum(tier_probabilities=(0.333333, 0.333333, 0.333333))) == []
    assert problems(Curriculum(tier_probabilities=(0.33333, 0.33333, 0.33333))) != []


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.mode)
def test_the_known_modes_have_no_problem(mode):
    assert problems(mode) == []
    made = pieces(mode)
    assert made[0].begin == 0 and made[-1].end is None
    assert all(before.end == after.begin for before, after in itertools.pairwise(made))


@given(modes, st.tuples(*[st.sampled_from([0, 9])] * 5), st.integers(1, 1500))
def test_the_sum_over_a_run_is_the_sum_of_its_steps(mode, sizes, steps):
    try:
        made = plan(mode, groups(*sizes).sizes())
    except BadData:
        return
    for tier in range(3):
        one_by_one = math.fsum(made.at(step).tiers[tier] for step in range(steps))
        assert made.draws(tier, steps) == pytest.approx(one_by_one, rel=1e-12, abs=1e-12)


def test_a_very_long_transition_is_summed_without_walking_it():
    long = Curriculum(
        mode="phased_v2",
        start_probabilities=(0.9, 0.1, 0.0),
        end_probabilities=(0.1, 0.2, 0.7),
        transition_start=0,
        transition_end=300_000,
    )
    made = plan(long, {"tier1": 0, "tier2": 5, "legacy": 5})
    one_by_one = math.fsum(made.at(step).tiers[2] for step in range(300_000))
    assert made.draws(2, 300_000) == pytest.approx(one_by_one, rel=1e-8)


def test_a_distant_step_is_reached_without_drawing_the_items_of_the_steps_before(monkeypatch):
    """Only counts are needed: a sampler at step 50,000 has shuffled one or two passes of each group, not a thousand."""
    shuffled = []
    real = curriculum._order
    monkeypatch.setattr(
        curriculum, "_order", lambda seed, purpose, size: shuffled.append(purpose) or real(seed, purpose, size)
    )
    Sampler(groups(40, 30, 20, 10, 5), UNIFORM, batch_size=32, seed=0).batch(50_000)
    assert len(shuffled) <= 10
