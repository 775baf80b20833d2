"""The statistics agree with SciPy and NumPy, repeat from their seeds, and claim nothing from a single seed."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from crucible.kernel import stats

SCORES = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))  # where NumPy's own squares do not underflow
SAMPLES = st.lists(SCORES, min_size=2, max_size=12)


# --- summaries ---------------------------------------------------------------------------------------------------------


@given(SAMPLES)
def test_a_summary_agrees_with_numpy_and_scipy(values: list[float]) -> None:
    found = stats.summary(values)
    n, scale = len(values), max(1e-300, *map(abs, values))
    assert found.n == n and (found.min, found.max) == (min(values), max(values))
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12, abs=1e-12 * scale)
    assert found.std == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-12 * scale)
    assert found.se == pytest.approx(scipy.stats.sem(values), rel=1e-9, abs=1e-12 * scale)
    assert found.se is not None and found.ci95 and found.ci95_t
    assert found.ci95 == pytest.approx((found.mean - 1.96 * found.se, found.mean + 1.96 * found.se))
    if found.se > 1e-9 * scale:
        expected = scipy.stats.t.interval(0.95, n - 1, loc=np.mean(values), scale=scipy.stats.sem(values))
        assert found.ci95_t == pytest.approx(expected, rel=1e-8, abs=1e-9 * scale)


@given(SAMPLES)
def test_the_mean_lies_between_the_smallest_and_the_largest(values: list[float]) -> None:
    found = stats.summary(values)
    assert found.min <= found.mean <= found.max


@given(SCORES, st.integers(2, 9))
def test_equal_seeds_have_exactly_no_spread(value: float, n: int) -> None:
    found = stats.summary([value] * n)
    assert (found.mean, found.std, found.se) == (value, 0.0, 0.0)
    assert found.ci95 == found.ci95_t == (value, value)


@given(SCORES)
def test_one_seed_has_no_spread_and_no_interval(value: float) -> None:
    found = stats.summary([value])
    assert (found.mean, found.n) == (value, 1)
    assert found.std is found.se is found.ci95 is found.ci95_t is None
    assert stats.welch(found, found) is None
    assert stats.welch(found, stats.summary([1.0, 2.0])) is None
    assert stats.welch(stats.summary([1.0, 2.0]), found) is None


def test_three_seeds_use_4_303_not_1_96() -> None:
    found = stats.summary([0.5, 0.6, 0.7])
    assert found.se is not None and found.ci95_t and found.ci95
    assert round((found.ci95_t[1] - found.mean) / found.se, 3) == 4.303
    assert round((found.ci95[1] - found.mean) / found.se, 3) == 1.96
    assert found.se == pytest.approx(0.1 / math.sqrt(3))


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf], [-math.inf, 0.0]])
def test_a_summary_of_nothing_or_of_what_is_no_number_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="a summary needs"):
        stats.summary(values)


TINY_TO_HUGE = st.floats(1e-300, 1e150) | st.floats(-1e150, -1e-300) | st.just(0.0)


@given(st.lists(TINY_TO_HUGE, min_size=2, max_size=4), st.lists(TINY_TO_HUGE, min_size=2, max_size=4))
def test_tiny_and_huge_spreads_crash_nothing(left: list[float], right: list[float]) -> None:
    a, b = stats.summary(left), stats.summary(right)
    for side, values in ((a, left), (b, right)):
        assert side.std is not None and math.isfinite(side.std)
        assert (side.std == 0.0) == (len(set(values)) == 1)
    test = stats.welch(a, b)
    assert (test is None) == (a.se == b.se == 0.0)
    assert test is None or 0.0 <= test.p <= 1.0


# --- quantiles and proportions -----------------------------------------------------------------------------------------


@given(st.lists(SCORES, min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values: list[float], q: float) -> None:
    assert stats.quantile(values, q) == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-9)


def test_quantiles_hit_the_order_statistics() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [stats.quantile(values, q) for q in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert values == [5.0, 1.0, 4.0, 2.0, 3.0]  # and leave their input alone


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.1), ([1.0], math.nan)])
def test_a_quantile_that_does_not_exist_is_refused(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="not defined"):
        stats.quantile(values, q)


@given(st.integers(1, 5000), st.data())
def test_wilson_is_that_of_scipy(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n) | st.sampled_from([0, n]))
    expected = scipy.stats.binomtest(k, n).proportion_ci(method="wilson")
    assert stats.wilson(k, n) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(1, 0), (0, 0), (-1, 5), (6, 5)])
def test_a_proportion_that_is_none_is_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="not a proportion"):
        stats.wilson(k, n)


# --- tests -------------------------------------------------------------------------------------------------------------


@given(st.floats(0.501, 0.9999), st.floats(0.3, 1000) | st.integers(1, 200_000))
def test_t_quantiles_are_those_of_scipy(p: float, df: float) -> None:
    assert stats.t_quantile(p, df) == pytest.approx(scipy.stats.t.ppf(p, df), rel=1e-7, abs=1e-9)


@given(st.floats(0, 1e6), st.floats(0.3, 1e5))
def test_t_tails_are_those_of_scipy(t: float, df: float) -> None:
    assert stats.t_survival(t, df) == pytest.approx(scipy.stats.t.sf(t, df), rel=1e-7, abs=1e-300)


@pytest.mark.parametrize(
    ("df", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (1e5, 1.960)]
)
def test_t_quantiles_are_those_of_the_printed_tables(df: float, expected: float) -> None:
    assert round(stats.t_quantile(0.975, df), 3) == expected


@pytest.mark.parametrize(("p", "df"), [(0.4, 3), (1.0, 3), (0.975, 0), (0.975, -1)])
def test_a_t_quantile_that_does_not_exist_is_refused(p: float, df: float) -> None:
    with pytest.raises(ValueError, match="not defined"):
        stats.t_quantile(p, df)


@given(SAMPLES, SAMPLES)
def test_welch_is_that_of_scipy(left: list[float], right: list[float]) -> None:
    a, b = stats.summary(left), stats.summary(right)
    assert a.se is not None and b.se is not None
    assume(a.se + b.se > 1e-9)
    found = stats.welch(a, b)
    expected = scipy.stats.ttest_ind_from_stats(a.mean, a.std, a.n, b.mean, b.std, b.n, equal_var=False)
    assert found is not None
    assert found.t == pytest.approx(expected.statistic, rel=1e-9, abs=1e-12)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-300)
    raw = scipy.stats.ttest_ind(left, right, equal_var=False)
    assert found.df == pytest.approx(raw.df, rel=1e-5)


def test_welch_without_any_spread_says_nothing() -> None:
    assert stats.welch(stats.summary([1.0, 1.0]), stats.summary([2.0, 2.0])) is None


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_mcnemar_is_the_exact_binomial_test_of_scipy(only_a: int, only_b: int) -> None:
    found = stats.mcnemar(only_a, only_b)
    expected = scipy.stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert found.p == pytest.approx(expected, rel=1e-7, abs=1e-300)
    assert (found.only_a, found.only_b) == (only_a, only_b)
    assert stats.mcnemar(only_b, only_a).p == found.p


def test_mcnemar_does_not_jump_where_its_formula_changes() -> None:
    for n in (999, 1000, 1001, 1002):
        expected = scipy.stats.binomtest(450, n).pvalue
        assert stats.mcnemar(450, n - 450).p == pytest.approx(expected, rel=1e-9)


def test_mcnemar_refuses_counts_below_zero() -> None:
    with pytest.raises(ValueError, match="not counts"):
        stats.mcnemar(-1, 4)


def holm_by_definition(p_values: list[float]) -> list[float]:
    """Closed testing: p_i adjusted is the largest over all sets that hold i of (size of the set x its smallest p)."""
    adjusted = []
    for i in range(len(p_values)):
        others = [p for j, p in enumerate(p_values) if j != i]
        sets = (chosen for size in range(len(others) + 1) for chosen in itertools.combinations(others, size))
        adjusted.append(max(min(1.0, (len(chosen) + 1) * min([p_values[i], *chosen])) for chosen in sets))
    return adjusted


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float]) -> None:
    assert stats.holm(p_values) == pytest.approx(holm_by_definition(p_values))


def test_holm_on_a_worked_example() -> None:
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([]) == []


# --- random draws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "p"),
    [
        (1, 0.3),
        (12, 0.5),
        (40, 0.1),
        (400, 0.02),
        (30, 0.4),
        (60, 0.25),
        (60, 0.75),
        (1000, 0.3),
        (100_000, 0.5),
        (10**6, 2e-5),
    ],
    ids=str,
)
def test_the_binomial_sampler_follows_the_binomial_law(n: int, p: float) -> None:
    rng, draws = random.Random(2024), 20_000
    seen = np.array([stats.binomial(rng, n, p) for _ in range(draws)])
    assert seen.min() >= 0 and seen.max() <= n
    law = scipy.stats.binom(n, p)
    edges = sorted({int(law.ppf(q)) for q in np.linspace(0.02, 0.98, 25)})  # cells of a few hundred draws each
    expected = np.diff([0.0, *(law.cdf(edge) for edge in edges), 1.0]) * draws
    counts = np.bincount(np.searchsorted(edges, seen, side="left"), minlength=len(edges) + 1)
    keep = expected > 5
    expected, counts = expected[keep], counts[keep]
    p_value = scipy.stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue
    assert p_value > 1e-4, f"chi-square p = {p_value}"
    assert seen.mean() == pytest.approx(n * p, abs=5 * math.sqrt(n * p * (1 - p) / draws))


def test_the_binomial_sampler_knows_the_certain_cases() -> None:
    rng = random.Random(0)
    assert [stats.binomial(rng, n, p) for n, p in ((0, 0.5), (9, 0.0), (9, 1.0), (9, -1.0), (9, 2.0))] == [
        0,
        0,
        9,
        0,
        9,
    ]


PASSES_A = [1.0] * 60 + [1.0] * 25 + [0.0] * 10 + [0.0] * 55
PASSES_B = [1.0] * 60 + [0.0] * 25 + [1.0] * 10 + [0.0] * 55


def test_the_bootstrap_repeats_from_its_seed_and_moves_with_it() -> None:
    for run in (
        lambda seed: stats.paired_bootstrap(PASSES_A, PASSES_B, seed=seed, resamples=300),
        lambda seed: stats.paired_bootstrap_passes(25, 10, 150, seed=seed, resamples=300),
    ):
        assert run(7) == run(7)
        assert len({(run(seed).low, run(seed).high) for seed in range(6)}) > 1
        assert (run(7).seed, run(7).resamples) == (7, 300)


def test_a_published_interval_comes_out_again_on_every_machine() -> None:
    # Written down once: a change of these numbers would silently change intervals that are already in ledgers.
    found = stats.paired_bootstrap_passes(25, 10, 150, seed=42)
    assert (found.difference, found.low, found.high) == (0.1, 4 / 150, 26 / 150)


def test_the_multinomial_form_follows_the_same_law_as_resampling_items() -> None:
    resamples = 4000
    items = stats.paired_bootstrap(PASSES_A, PASSES_B, seed=1, resamples=resamples)
    cells = stats.paired_bootstrap_passes(25, 10, 150, seed=2, resamples=resamples)
    assert items.difference == pytest.approx(cells.difference) == pytest.approx(0.1)
    # The law of one draw is the difference of two cells of a multinomial: its standard deviation is known exactly.
    sigma = math.sqrt((35 / 150 - 0.1**2) / 150)
    # Monte Carlo error of a 2.5% quantile near a normal law: sqrt(q (1 - q) / N) / density, plus the grid of 1/150.
    error = sigma * math.sqrt(0.025 * 0.975 / resamples) / scipy.stats.norm.pdf(scipy.stats.norm.ppf(0.025))
    for found in (items, cells):
        assert found.low == pytest.approx(0.1 - 1.96 * sigma, abs=5 * error + 1 / 150)
        assert found.high == pytest.approx(0.1 + 1.96 * sigma, abs=5 * error + 1 / 150)
    assert items.low == pytest.approx(cells.low, abs=5 * math.sqrt(2) * error + 1 / 150)
    assert items.high == pytest.approx(cells.high, abs=5 * math.sqrt(2) * error + 1 / 150)


def test_each_draw_of_the_multinomial_form_follows_the_law_of_resampling() -> None:
    """Three items, one of each kind: the 27 resamples can be listed, and the drawn differences must occur as often."""
    law: dict[float, float] = {}
    for picks in itertools.product([1, -1, 0], repeat=3):
        law[sum(picks) / 3] = law.get(sum(picks) / 3, 0.0) + 1 / 27
    drawn = [stats.paired_bootstrap_passes(1, 1, 3, seed=seed, resamples=1).low for seed in range(6000)]
    values = sorted(law)
    counts = [sum(abs(d - value) < 1e-9 for d in drawn) for value in values]
    assert sum(counts) == len(drawn)
    assert scipy.stats.chisquare(counts, [law[value] * len(drawn) for value in values]).pvalue > 1e-4


def test_the_bootstrap_keeps_pairs_together() -> None:
    rng = random.Random(3)
    hard = [rng.gauss(0, 100) for _ in range(200)]  # items differ wildly, the two models never
    found = stats.paired_bootstrap([x + 1.0 for x in hard], hard, resamples=200)
    assert found.low == pytest.approx(1.0) and found.high == pytest.approx(1.0)


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=8), st.integers(0, 2**31))
def test_the_bootstrap_interval_is_ordered_and_inside_the_data(pairs: list[tuple[float, float]], seed: int) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    found = stats.paired_bootstrap(a, b, seed=seed, resamples=50)
    deltas = [x - y for x, y in pairs]
    assert min(deltas) - 1e-6 <= found.low <= found.high <= max(deltas) + 1e-6
    assert found.difference == pytest.approx(statistics.fmean(deltas), abs=1e-6)


def test_a_bootstrap_of_unequal_or_no_items_is_refused() -> None:
    for a, b in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="paired values"):
            stats.paired_bootstrap(a, b)
    for impossible in ((-1, 0, 5), (3, 3, 5), (0, 0, 0)):
        with pytest.raises(ValueError, match="impossible"):
            stats.paired_bootstrap_passes(*impossible)


def test_no_discordant_item_means_no_difference_and_no_width() -> None:
    found = stats.paired_bootstrap_passes(0, 0, 10, resamples=20)
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)
