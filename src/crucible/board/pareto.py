"""Configurations with two metrics each -> frontier, knee, and a recommendation with its evidence. Pure; reads no file.

Higher is better on both. A configuration is on the frontier unless another is at least as good on both metrics and better on
one, so equal ones are on it together; a missing or non-finite number is an error that names its configuration.

The knee is the frontier's point farthest beyond the straight line between its two ends, both metrics scaled to [0, 1] over
the frontier: where giving up more of one metric stops paying on the other. With two points, or none beyond the line, it is
the end with the higher y. Whether a difference is one is for `kernel.compare` to say, never for the picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from crucible.errors import BadConfig, BadData
from crucible.kernel import stats
from crucible.kernel.compare import Rule, verdict
from crucible.kernel.stats import Summary

X, Y = "frozen_tier3", "organic_holdout"
"""The two truths: retention, generalisation."""
RULE: Rule = "t_overlap"
_MARK = "RECOMMENDATION: "


@dataclass(frozen=True)
class Configuration:
    name: str
    metrics: Mapping[str, Summary]


class Place(msgspec.Struct, frozen=True):
    """Where a configuration stands among the others."""

    condition: str
    x: Summary
    y: Summary
    on_frontier: bool
    knee: bool
    meets_floor: bool
    dominated_by: tuple[str, ...]
    """Those of the frontier: whoever else dominates it is dominated by one of them."""


class Versus(msgspec.Struct, frozen=True):
    """The recommended one against another on one metric; a positive difference is in its favour."""

    metric: str
    difference: float
    decision: str
    rule: str
    p: float | None
    sentence: str


class Evidence(msgspec.Struct, frozen=True):
    rule: str
    x: str
    y: str
    floors: dict[str, float]
    configurations: int
    frontier: list[str]
    below_floor: list[str]
    means: dict[str, Summary]
    runner_up: str | None
    against_runner_up: list[Versus]
    against_base: list[Versus]
    caveats: list[str]


class Recommendation(msgspec.Struct, frozen=True):
    condition: str | None
    """None where nothing can be recommended; the sentence says why."""
    sentence: str
    evidence: Evidence


# --- the geometry ----------------------------------------------------------------------------------------------------------


def frontier(xs: Sequence[float], ys: Sequence[float]) -> list[bool]:
    """Whether each point is dominated by none, in O(n log n)."""
    on = [False] * len(xs)
    best = -math.inf  # the highest y among points with a strictly higher x
    order = sorted(range(len(xs)), key=lambda i: (-xs[i], -ys[i]))
    start = 0
    while start < len(order):
        top, end = order[start], start
        while end < len(order) and xs[order[end]] == xs[top]:
            on[order[end]] = ys[order[end]] == ys[top] > best
            end += 1
        best, start = max(best, ys[top]), end
    return on


def knee(xs: Sequence[float], ys: Sequence[float]) -> int | None:
    """The place of the knee of the points' frontier; of equal points the first one. None for no points."""
    on = frontier(xs, ys)
    places = [i for i in range(len(xs)) if on[i]]
    if not places:
        return None
    low_x, high_x = min(xs[i] for i in places), max(xs[i] for i in places)
    low_y, high_y = min(ys[i] for i in places), max(ys[i] for i in places)
    if low_x == high_x:  # then y is the same too: equal points
        return places[0]

    def beyond(i: int) -> float:
        """How far beyond the line from (0, 1) to (1, 0); rounded, so that points on the line are equal to its ends."""
        scaled = (xs[i] - low_x) / (high_x - low_x) + (ys[i] - low_y) / (high_y - low_y)
        return round(scaled - 1.0, 12)

    return max(places, key=lambda i: (beyond(i), ys[i], -i))


def analyse(
    configurations: Sequence[Configuration], x: str = X, y: str = Y, floors: Mapping[str, float] | None = None
) -> list[Place]:
    """Every configuration in the order given. The knee is that of the configurations which meet every floor."""
    xs, ys = ([_value(one, metric).mean for one in configurations] for metric in (x, y))
    on = frontier(xs, ys)
    meets = [all(_value(one, m).mean >= low for m, low in (floors or {}).items()) for one in configurations]
    among = [i for i, fine in enumerate(meets) if fine]
    best = knee([xs[i] for i in among], [ys[i] for i in among])
    chosen = None if best is None else among[best]
    edge = [i for i, there in enumerate(on) if there]
    return [
        Place(
            condition=one.name,
            x=_value(one, x),
            y=_value(one, y),
            on_frontier=on[i],
            knee=i == chosen,
            meets_floor=meets[i],
            dominated_by=()
            if on[i]
            else tuple(configurations[j].name for j in edge if xs[j] >= xs[i] and ys[j] >= ys[i]),
        )
        for i, one in enumerate(configurations)
    ]


def _value(one: Configuration, metric: str) -> Summary:
    found = one.metrics.get(metric)
    if found is None:
        known = ", ".join(sorted(one.metrics)) or "none"
        raise BadData(f"{one.name} has no {metric}; it has: {known}", fix="Evaluate it, or choose another metric.")
    if not math.isfinite(found.mean):
        raise BadData(f"{one.name}: {metric} is {found.mean}", fix="Run that configuration again, or leave it out.")
    return found


def floor(text: str) -> tuple[str, float]:
    """`frozen_tier3=0.30` -> the metric and its least value."""
    metric, equals, value = text.partition("=")
    try:
        low = float(value)
    except ValueError:
        low = math.nan
    if not metric or not equals or not math.isfinite(low):
        raise BadConfig(f"{text!r} is no floor", fix="Write METRIC=NUMBER, e.g. frozen_tier3=0.30.")
    return metric.strip(), low


# --- the recommendation ------------------------------------------------------------------------------------------------------


def recommend(
    configurations: Sequence[Configuration],
    base: Mapping[str, Summary] | None = None,
    *,
    x: str = X,
    y: str = Y,
    floors: Mapping[str, float] | None = None,
    rule: Rule = RULE,
) -> Recommendation:
    """The knee, compared with the next one and with what training started from; a tie is called a tie."""
    floors = dict(floors or {})
    places = analyse(configurations, x, y, floors)
    chosen = next((one for one in places if one.knee), None)
    rest = [one for one, place in zip(configurations, places, strict=True) if place.meets_floor and not place.knee]
    after = next((one for one in analyse(rest, x, y) if one.knee), None)
    evidence = Evidence(
        rule=f"the knee of the frontier over {x} and {y}; verdicts by {rule} at 95%",
        x=x,
        y=y,
        floors=floors,
        configurations=len(places),
        frontier=[one.condition for one in places if one.on_frontier],
        below_floor=[one.condition for one in places if not one.meets_floor],
        means={x: chosen.x, y: chosen.y} if chosen else {},
        runner_up=after.condition if after else None,
        against_runner_up=_against(chosen, {x: after.x, y: after.y}, (x, y), rule) if chosen and after else [],
        against_base=_against(chosen, base, (x, y), rule) if chosen and base else [],
        caveats=_caveats(chosen, places),
    )
    if chosen is None:
        return Recommendation(None, _MARK + _nothing(configurations, floors), evidence)
    if evidence.against_base and all(one.difference <= 0.0 for one in evidence.against_base):
        return Recommendation(None, _MARK + _keep_the_base(chosen, evidence), evidence)
    return Recommendation(chosen.condition, _MARK + _sentence(chosen, evidence), evidence)


def _against(chosen: Place, other: Mapping[str, Summary], metrics: tuple[str, str], rule: Rule) -> list[Versus]:
    found = []
    for metric, own in zip(metrics, (chosen.x, chosen.y), strict=True):
        if metric in other:
            found.append(_versus(metric, own, other[metric], rule))
    return found


def _versus(metric: str, own: Summary, other: Summary, rule: Rule) -> Versus:
    if other.n == 1 and own.se is not None:
        return _versus_constant(metric, own, other.mean)
    decided = verdict(own, other, rule)
    p = decided.numbers.get("welch_p")
    return Versus(metric, own.mean - other.mean, decided.decision, rule, p, decided.sentence)


def _versus_constant(metric: str, own: Summary, value: float) -> Versus:
    """Against a thing without seeds (the base encoder is one model): Student's one-sample t."""
    assert own.se is not None
    gap = own.mean - value
    if own.se == 0.0:
        p, apart = None, gap != 0.0
    else:
        p = 2.0 * stats.t_survival(abs(gap) / own.se, own.n - 1)
        apart = p < 0.05
    decision = "tie" if not apart else "ahead" if gap > 0 else "behind"
    shown = "no spread over seeds" if p is None else f"t with {own.n - 1} degrees of freedom, p = {p:.2g}"
    sentence = f"{decision} by one_sample_t: {own.mean:.4g} over {own.n} seeds against {value:.4g}, {shown}"
    return Versus(metric, gap, decision, "one_sample_t", p, sentence)


def _caveats(chosen: Place | None, places: Sequence[Place]) -> list[str]:
    found = []
    if chosen and min(chosen.x.n, chosen.y.n) == 1:
        found.append("one seed: there is no interval, so no difference here can be told from chance")
    elif chosen and min(chosen.x.n, chosen.y.n) == 2:
        found.append("two seeds: the 95% interval is 12.7 standard errors wide on each side")
    if chosen and 0.0 in (chosen.x.se, chosen.y.se):
        found.append(
            "all seeds gave the same number: no spread over seeds is not certainty, another eval set would differ"
        )
    if len(places) > 1:
        found.append(f"chosen as the best of {len(places)} on the same numbers that are shown: expect a little less")
    return found


def _sentence(chosen: Place, evidence: Evidence) -> str:
    x, y = evidence.x, evidence.y
    seeds = f"{chosen.x.n} seed{'s' if chosen.x.n > 1 else ''}"
    count = len(evidence.frontier)
    if count == 1:
        why = f"alone on the frontier of {evidence.configurations} configurations"
    elif chosen.on_frontier:
        why = f"the knee of a frontier of {count} of {evidence.configurations} configurations"
    else:
        why = "the knee of those that meet the floors"
    floors = ", ".join(f"{metric} >= {low:g}" for metric, low in evidence.floors.items())
    parts = [
        f"{chosen.condition} ({x} {_shown(chosen.x)}, {y} {_shown(chosen.y)}, {seeds}), {why}"
        + (f" with {floors}" if floors else "")
    ]
    if evidence.against_base:
        parts.append("Against the base: " + _told(evidence.against_base))
    if evidence.runner_up:
        tie = all(one.decision == "tie" for one in evidence.against_runner_up)
        end = "; a tie: these seeds do not separate the two" if tie else ""
        parts.append(f"Against the next, {evidence.runner_up}: {_told(evidence.against_runner_up)}{end}")
    if chosen.x.n == 1:
        parts.append("One seed only: a first look, no evidence")
    return ". ".join(parts) + "."


def _told(found: Sequence[Versus]) -> str:
    return ", ".join(
        f"{one.metric} {one.difference:+.4f} ({one.decision}{'' if one.p is None else f', p = {one.p:.2g}'})"
        for one in found
    )


def _shown(value: Summary) -> str:
    return f"{value.mean:.4f}" + ("" if value.se is None else f" ± {value.se:.4f} SE")


def _keep_the_base(chosen: Place, evidence: Evidence) -> str:
    return (
        f"keep the base. The knee of the frontier, {chosen.condition}, is not above it on either metric: "
        f"{_told(evidence.against_base)}."
    )


def _nothing(configurations: Sequence[Configuration], floors: Mapping[str, float]) -> str:
    if not configurations:
        return "none. There is no configuration."
    told = []
    for metric, low in floors.items():
        best = max(configurations, key=lambda one: _value(one, metric).mean)
        told.append(f"{metric} >= {low:g} (the highest is {_value(best, metric).mean:.4f}, {best.name})")
    every = "every floor at once" if len(floors) > 1 else "the floor"
    return f"none. No configuration meets {every}: " + "; ".join(told) + "."


# --- rows of a results file --------------------------------------------------------------------------------------------------


def configurations(rows: Sequence[Mapping[str, Any]], where: str) -> list[Configuration]:
    """Rows as they stand in a results.json: a `condition`, and a summary under the name of every metric."""
    found = []
    for number, row in enumerate(rows, 1):
        name = row.get("condition")
        if not isinstance(name, str):
            raise BadData(f"{where}: row {number} has no condition", fix="Make the results with `crucible sweep`.")
        found.append(Configuration(name, summaries(row, f"{where}: {name}")))
    return found


def summaries(row: Mapping[str, Any], where: str) -> dict[str, Summary]:
    """Whatever in a row is the summary of a metric; a metric that was not measured (null) is not there."""
    found = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and {"mean", "n", "se"} <= value.keys() and value["mean"] is not None:
            try:
                found[key] = msgspec.convert(value, type=Summary)
            except msgspec.ValidationError as error:
                raise BadData(f"{where}: {key}: {error}", fix="Make the results with `crucible sweep`.") from None
    return found
