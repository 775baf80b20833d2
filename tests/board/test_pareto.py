"""The frontier is exactly the reference's, the knee is where the chord says, and the sentence claims no more than the seeds do."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.board import pareto
from crucible.board.pareto import Configuration, analyse, frontier, knee, recommend
from crucible.errors import BadConfig, BadData
from crucible.kernel import stats

few = st.integers(0, 6).map(float)  # few values, so that equal coordinates and equal points are common
points = st.lists(st.tuples(few, few), max_size=14)
reals = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=14)


def split(pairs):
    return [x for x, _ in pairs], [y for _, y in pairs]


def by_definition(pairs):
    """`compute_pareto_frontier` of the metrics reference, as it stands there."""
    return [
        not any(ox >= x and oy >= y and (ox > x or oy > y) for j, (ox, oy) in enumerate(pairs) if j != i)
        for i, (x, y) in enumerate(pairs)
    ]


def made(name, xs, ys, **more):
    metrics = {"frozen_tier3": stats.summary(xs), "organic_holdout": stats.summary(ys)}
    return Configuration(name, metrics | {key: stats.summary(values) for key, values in more.items()})


def ones(*pairs):
    return [made(chr(ord("a") + i), [x], [y]) for i, (x, y) in enumerate(pairs)]


# --- frontier ----------------------------------------------------------------------------------------------------------------


@given(points | reals)
def test_the_frontier_is_that_of_the_reference(pairs):
    assert frontier(*split(pairs)) == by_definition(pairs)


@given(points, st.randoms(use_true_random=False))
def test_the_order_of_the_configurations_does_not_matter(pairs, rng):
    order = list(range(len(pairs)))
    rng.shuffle(order)
    there = frontier(*split(pairs))
    assert frontier(*split([pairs[i] for i in order])) == [there[i] for i in order]


@given(points)
def test_only_the_order_of_the_values_matters_to_the_frontier(pairs):
    xs, ys = split(pairs)
    assert frontier([math.exp(x) for x in xs], [y**3 - 100.0 for y in ys]) == frontier(xs, ys)


@given(points)
def test_every_dominated_one_names_a_configuration_of_the_frontier_that_dominates_it(pairs):
    configurations = [made(str(i), [x], [y]) for i, (x, y) in enumerate(pairs)]
    places = {place.condition: place for place in analyse(configurations)}
    for place in places.values():
        assert bool(place.dominated_by) != place.on_frontier
        for name in place.dominated_by:
            other = places[name]
            assert other.on_frontier and other.x.mean >= place.x.mean and other.y.mean >= place.y.mean
            assert (other.x.mean, other.y.mean) != (place.x.mean, place.y.mean)


def test_equal_points_are_on_the_frontier_together():
    assert frontier([1, 1, 0], [2, 2, 2]) == [True, True, False]


class Counted(list):
    """Counts how often a value is looked at."""

    looks = 0

    def __getitem__(self, place):
        Counted.looks += 1
        return super().__getitem__(place)


def test_ten_thousand_configurations_are_not_compared_pair_by_pair():
    rng = random.Random(1)
    size = 10_000
    # A staircase: every point is on the frontier, which is the worst case for whoever compares pairs.
    xs = rng.sample(range(size), size)
    assert all(frontier(Counted(xs), Counted(-x for x in xs)))
    assert Counted.looks < 20 * size


@pytest.mark.parametrize("metric", ["frozen_tier3", "organic_holdout"])
def test_a_missing_or_non_finite_number_names_its_configuration(metric):
    good = made("good", [0.5], [0.5])
    lost = Configuration("lost", {k: v for k, v in good.metrics.items() if k != metric})
    with pytest.raises(BadData, match=f"lost has no {metric}"):
        analyse([good, lost])
    broken = pareto.Summary(math.nan, None, 0, 0, 1, None, None, None)
    with pytest.raises(BadData, match=f"broken: {metric} is nan"):
        analyse([good, Configuration("broken", {**good.metrics, metric: broken})])


# --- knee --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], None),
        ([(0.3, 0.3)], 0),
        ([(0.3, 0.3), (0.3, 0.3)], 0),
        ([(0.4, 0.2), (0.2, 0.4)], 1),  # two ends: the one with the higher y
        ([(1.0, 0.0), (0.8, 0.8), (0.0, 1.0)], 1),  # a corner
        ([(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)], 2),  # on the line: no better than the ends
        ([(1.0, 0.0), (0.2, 0.2), (0.0, 1.0)], 2),  # within the line: worse than the ends
        ([(100.0, 0.1), (99.0, 0.9), (0.0, 1.0)], 1),  # scales do not matter
        ([(1.0, 0.0), (0.7, 0.9), (0.9, 0.7), (0.0, 1.0)], 1),  # equally far: the higher y
        ([(0.5, 0.5), (0.9, 0.9), (0.1, 0.1)], 1),  # dominated ones have no say
    ],
)
def test_the_knee_is_farthest_beyond_the_line_between_the_ends(pairs, expected):
    assert knee(*split(pairs)) == expected


@given(points.filter(bool), st.floats(0.01, 100), st.integers(-5, 5))
def test_the_knee_is_on_the_frontier_and_stays_when_an_axis_is_scaled(pairs, scale, shift):
    xs, ys = split(pairs)
    best = knee(xs, ys)
    assert frontier(xs, ys)[best]
    moved = knee([x * scale for x in xs], [y + shift for y in ys])
    assert (xs[moved], ys[moved]) == (xs[best], ys[best])


# --- floors ------------------------------------------------------------------------------------------------------------------


def test_the_knee_is_sought_among_those_that_meet_the_floor():
    three = ones((0.25, 0.9), (0.31, 0.5), (0.40, 0.1))
    places = analyse(three, floors={"frozen_tier3": 0.30})
    assert [place.meets_floor for place in places] == [False, True, True]
    assert [place.knee for place in places] == [False, True, False]
    assert [place.on_frontier for place in places] == [True, True, True]


def test_a_floor_that_excludes_everything_recommends_nothing_and_says_how_far_it_is():
    found = recommend(ones((0.25, 0.9), (0.29, 0.5)), floors={"frozen_tier3": 0.30})
    assert found.condition is None
    assert found.sentence.startswith("RECOMMENDATION: none.") and "0.2900, b" in found.sentence
    assert found.evidence.below_floor == ["a", "b"]


def test_a_floor_may_be_on_any_metric_and_an_unknown_one_is_an_error():
    two = [made("a", [0.5], [0.5], q10=[-0.4]), made("b", [0.4], [0.4], q10=[-0.1])]
    found = recommend(two, floors={"q10": -0.2})
    assert found.condition == "b" and "the knee of those that meet the floors" not in found.sentence
    with pytest.raises(BadData, match="a has no q90; it has: frozen_tier3, organic_holdout, q10"):
        recommend(two, floors={"q90": 0.0})


def test_a_floor_is_read_as_it_is_typed():
    assert pareto.floor("frozen_tier3=0.30") == ("frozen_tier3", 0.30)
    for text in ("frozen_tier3", "=0.3", "frozen_tier3=", "frozen_tier3=high", "frozen_tier3=nan"):
        with pytest.raises(BadConfig, match="is no floor"):
            pareto.floor(text)


# --- recommendation ------------------------------------------------------------------------------------------------------------

SPREAD = (-0.001, 0.0, 0.001)


def around(value, spread=SPREAD):
    return [value + delta for delta in spread]


def test_a_clear_winner_is_said_to_be_ahead_with_its_p():
    rows = [made("good", around(0.50), around(0.60)), made("poor", around(0.40), around(0.50))]
    base = {"frozen_tier3": stats.summary([0.45]), "organic_holdout": stats.summary([0.45])}
    found = recommend(rows, base)
    assert found.condition == "good" and found.sentence.startswith(
        "RECOMMENDATION: good (frozen_tier3 0.5000 ± 0.0006 SE"
    )
    assert "alone on the frontier of 2" in found.sentence and "tie:" not in found.sentence
    assert [one.decision for one in found.evidence.against_runner_up] == ["ahead", "ahead"]
    assert [one.decision for one in found.evidence.against_base] == ["ahead", "ahead"]
    for one in found.evidence.against_runner_up:
        assert one.rule == "t_overlap"
        assert one.p == pytest.approx(stats.welch(rows[0].metrics[one.metric], rows[1].metrics[one.metric]).p)


def test_the_base_is_one_model_and_is_tested_with_a_one_sample_t():
    rows = [made("a", [0.50, 0.52, 0.54], [0.50, 0.52, 0.54])]
    base = {"frozen_tier3": stats.summary([0.49]), "organic_holdout": stats.summary([0.30])}
    close, far = recommend(rows, base).evidence.against_base
    # scipy.stats.ttest_1samp([0.50, 0.52, 0.54], [0.49, 0.30])
    assert close.p == pytest.approx(0.12168993434632014) and close.decision == "tie"
    assert far.p == pytest.approx(0.0027434842249657065, rel=1e-3) and far.decision == "ahead"
    assert close.rule == "one_sample_t"


def test_a_tie_with_the_next_one_is_called_a_tie():
    wide = (-0.05, 0.0, 0.05)
    found = recommend(
        [made("a", around(0.50, wide), around(0.51, wide)), made("b", around(0.49, wide), around(0.50, wide))]
    )
    assert found.condition == "a" and found.evidence.runner_up == "b"
    assert "a tie: these seeds do not separate the two" in found.sentence


def test_one_seed_is_never_dressed_up_as_evidence():
    found = recommend(ones((0.9, 0.9), (0.1, 0.1)), {"frozen_tier3": stats.summary([0.2])})
    assert "One seed only" in found.sentence and "±" not in found.sentence
    assert any("one seed" in caveat for caveat in found.evidence.caveats)
    assert {one.decision for one in found.evidence.against_runner_up + found.evidence.against_base} == {"tie"}


def test_what_is_no_better_than_the_base_is_not_recommended():
    base = {"frozen_tier3": stats.summary([0.45]), "organic_holdout": stats.summary([0.45])}
    found = recommend([made("a", around(0.40), around(0.44))], base)
    assert found.condition is None and found.sentence.startswith("RECOMMENDATION: keep the base.")
    assert "behind" in found.sentence


def test_without_configurations_there_is_nothing_to_recommend():
    assert recommend([]).sentence == "RECOMMENDATION: none. There is no configuration."


def test_the_recommendation_does_not_depend_on_the_order():
    rows = [made(name, around(x), around(y)) for name, x, y in (("p", 0.9, 0.1), ("q", 0.7, 0.7), ("r", 0.1, 0.9))]
    one, other = recommend(rows), recommend(rows[::-1])
    assert one.condition == "q" and one.sentence == other.sentence


def test_rows_of_a_results_file_are_read_by_their_metrics():
    row = {"condition": "a", "steps": 5, "notes": [], "frozen_tier3": {"mean": 0.5, "n": 1, "std": None, "se": None}}
    row["frozen_tier3"] |= {"min": 0.5, "max": 0.5, "ci95": None, "ci95_t": None}
    (one,) = pareto.configurations([row | {"organic_holdout": None}], "results.json")
    assert list(one.metrics) == ["frozen_tier3"] and one.metrics["frozen_tier3"].mean == 0.5
    with pytest.raises(BadData, match="row 1 has no condition"):
        pareto.configurations([{}], "results.json")
    with pytest.raises(BadData, match=r"results.json: a: frozen_tier3: "):
        pareto.configurations([row | {"frozen_tier3": row["frozen_tier3"] | {"mean": "high"}}], "results.json")
