"""Refusing is the default, every verdict names its rule, and a against b is the mirror of b against a."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.errors import NotComparable
from crucible.kernel import compare, stats
from crucible.kernel.compare import RULES, Rule, verdict
from crucible.kernel.pin import Pin

MIRROR = {"ahead": "behind", "behind": "ahead", "tie": "tie"}
T4 = 2.7764451051977987  # t at 0.975 with four degrees of freedom


def around(mean: float, std: float) -> stats.Summary:
    """Three seeds with exactly this mean and sample standard deviation."""
    return stats.summary([mean - std, mean, mean + std])


# --- refusal -----------------------------------------------------------------------------------------------------------


def test_different_pins_are_refused_with_every_fact_and_both_values() -> None:
    left = Pin("contrast.evalset", {"count": 100, "tiers": {"cuts": [0.7, 0.9]}, "same": 1}, {"path": "a"})
    right = Pin("contrast.evalset", {"count": 101, "tiers": {"cuts": [0.7, 0.8]}, "same": 1}, {"path": "b"})
    with pytest.raises(NotComparable) as caught:
        compare.require_same(left, right)
    assert "count: 100 against 101" in caught.value.message
    assert "tiers.cuts: [0.7,0.9] against [0.7,0.8]" in caught.value.message
    assert "same" not in caught.value.message.split("conditions:")[1]
    assert caught.value.facts["differences"] == ["count", "tiers.cuts"]
    assert (caught.value.facts["left"], caught.value.facts["right"]) == (left.digest, right.digest)
    assert caught.value.exit_code == 5


def test_equal_facts_pass_whatever_the_notes() -> None:
    compare.require_same(Pin("k", {"a": 1}, {"host": "x"}), Pin("k", {"a": 1}, {"host": "y"}))
    assert compare.refused(Pin("k", {"a": 1}, {"host": "x"}), Pin("k", {"a": 1})) is None


def test_a_refusal_can_be_listed_and_says_why() -> None:
    found = compare.refused(Pin("k", {"a": 1}), Pin("k", {"a": True}))
    assert found is not None
    assert (found.decision, found.rule) == ("refused", "pin")
    assert found.sentence == "refused: a: 1 against true"


# --- the three rules at their boundaries -------------------------------------------------------------------------------


def test_se_overlap_splits_exactly_where_the_intervals_stop_touching() -> None:
    se = 0.0625  # powers of two, so that touching is exact
    a = stats.summary([0.0, 0.125])
    assert a.se == se
    touching, apart = (stats.summary([x, x + 0.125]) for x in (0.125, 0.125 + 2**-40))
    assert verdict(a, touching, "se_overlap").decision == "tie"
    assert verdict(a, apart, "se_overlap").decision == "behind"
    assert verdict(apart, a, "se_overlap").decision == "ahead"


def test_t_overlap_splits_where_the_student_intervals_stop_touching() -> None:
    half = stats.t_quantile(0.975, 2) * 0.01 / math.sqrt(3)
    for gap, decision in ((2 * half * 0.999, "tie"), (2 * half * 1.001, "ahead")):
        assert verdict(around(0.5 + gap, 0.01), around(0.5, 0.01), "t_overlap").decision == decision


def test_se_overlap_separates_what_t_overlap_does_not() -> None:
    a, b = around(0.55, 0.02), around(0.50, 0.02)
    assert verdict(a, b, "se_overlap").decision == "ahead"
    assert verdict(a, b, "t_overlap").decision == "tie"


def test_two_percent_at_exactly_two_points_needs_a_std_of_0_0088() -> None:
    found = verdict(around(0.52, 0.0), around(0.50, 0.0), "two_percent")
    assert found.decision == "ahead"
    assert found.numbers["std_needed"] == pytest.approx(0.02 / (T4 * math.sqrt(2 / 3)))
    assert round(found.numbers["std_needed"] or 0, 4) == 0.0088
    for std, decision in ((0.0088, "ahead"), (0.0089, "tie")):
        a, b = around(0.52, std), around(0.50, std)
        assert verdict(a, b, "two_percent").decision == decision
        test = stats.welch(a, b)
        assert test is not None and (test.p < 0.05) == (decision == "ahead")  # what the rule promises


def test_two_percent_says_the_std_it_needed_and_the_std_it_saw() -> None:
    found = verdict(around(0.52, 0.02), around(0.50, 0.02), "two_percent")
    assert found.decision == "tie"
    assert "at most 0.008822, seen 0.02" in found.sentence
    assert found.numbers["std_seen"] == pytest.approx(0.02)


def test_two_percent_needs_two_points_however_quiet_the_seeds_are() -> None:
    for gap, decision in ((0.0199, "tie"), (0.02, "ahead"), (0.0201, "ahead")):
        assert verdict(around(0.5 + gap, 1e-6), around(0.5, 1e-6), "two_percent").decision == decision
    assert verdict(around(52.0, 0.1), around(50.0, 0.1), "two_percent", scale=100.0).decision == "ahead"
    assert verdict(around(51.9, 0.1), around(50.0, 0.1), "two_percent", scale=100.0).decision == "tie"


def test_two_percent_pools_unequal_seeds_by_their_degrees_of_freedom() -> None:
    a, b = stats.summary([0.5, 0.6]), stats.summary([0.4, 0.45, 0.5, 0.55])
    pooled = math.sqrt(((a.std or 0) ** 2 + 3 * (b.std or 0) ** 2) / 4)
    assert verdict(a, b, "two_percent").numbers["std_seen"] == pytest.approx(pooled)


# --- one seed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_a_single_seed_is_a_tie_and_says_why(rule: Rule) -> None:
    one, three = stats.summary([0.9]), around(0.1, 0.001)
    for a, b, why in (
        (one, one, "neither side has"),
        (one, three, "one side does not"),
        (three, one, "one side does not"),
    ):
        found = verdict(a, b, rule)
        assert found.decision == "tie"
        assert why in found.sentence and rule in found.sentence
        assert found.numbers["welch_p"] is None


# --- every verdict -----------------------------------------------------------------------------------------------------

SEEDS = st.lists(st.floats(0, 1) | st.sampled_from([0.5, 0.52]), min_size=1, max_size=5)


@given(SEEDS, SEEDS, st.sampled_from(RULES))
def test_a_verdict_is_antisymmetric(left: list[float], right: list[float], rule: Rule) -> None:
    a, b = stats.summary(left), stats.summary(right)
    there, back = verdict(a, b, rule), verdict(b, a, rule)
    assert back.decision == MIRROR[there.decision]
    assert back.numbers["welch_p"] == there.numbers["welch_p"]
    assert back.numbers["difference"] == -(there.numbers["difference"] or 0)


@given(SEEDS, SEEDS, st.sampled_from(RULES))
def test_a_verdict_carries_its_rule_its_numbers_and_a_sentence(
    left: list[float], right: list[float], rule: Rule
) -> None:
    a, b = stats.summary(left), stats.summary(right)
    found = verdict(a, b, rule)
    assert found.rule == rule
    assert found.sentence.startswith(f"{found.decision} by {rule}: ")
    assert found.numbers["mean_a"] == a.mean and found.numbers["n_b"] == b.n
    if found.decision == "ahead":
        assert a.mean > b.mean


@given(SEEDS, st.sampled_from(RULES))
def test_nothing_is_ahead_of_itself(values: list[float], rule: Rule) -> None:
    a = stats.summary(values)
    assert verdict(a, a, rule).decision == "tie"


@pytest.mark.parametrize("rule", RULES)
def test_spreads_of_any_size_crash_no_rule(rule: Rule) -> None:
    for std in (0.0, 1e-300, 1e-160, 1e150):
        for other in (0.0, 1e-300, 1e150):
            assert verdict(around(1.0, std), around(2.0, other), rule).decision in ("tie", "behind")


def test_a_rule_that_does_not_exist_is_refused_not_guessed() -> None:
    with pytest.raises(ValueError, match="no rule 'ttest'"):
        verdict(around(1, 1), around(2, 1), "ttest")  # type: ignore[arg-type]
