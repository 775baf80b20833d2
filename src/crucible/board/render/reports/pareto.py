"""The conditions of a sweep with their frontier -> a page that says which to take, against what, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from crucible.board.plots.pareto import Mark, X, Y, scatter
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong
from crucible.board.render.page import share, visible
from crucible.board.render.reports.words import Fact, facts, many, mean, spread, t_interval, with_error
from crucible.kernel.stats import Summary

TRUTHS = {X: "frozen tier 3", Y: "organic holdout"}


class Seed(msgspec.Struct, frozen=True):
    seed: int
    frozen_tier3: float
    organic_holdout: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One condition; `number` stands for it where its name finds no room."""

    number: int
    condition: str
    frozen_tier3: Summary
    organic_holdout: Summary
    seeds: Sequence[Seed]
    on_frontier: bool
    knee: bool
    meets_floor: bool
    dominated_by: Sequence[str]


class Base(msgspec.Struct, frozen=True):
    frozen_tier3: float
    organic_holdout: float


class ParetoReport(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    points: Sequence[Point]
    base: Base | None
    floors: Mapping[str, float]
    recommended: str | None
    sentence: str
    """The RECOMMENDATION, with its evidence."""
    caveats: Sequence[str]
    notes: Sequence[str]
    facts: Sequence[Fact]


def outline(report: ParetoReport) -> Outline:
    return Outline(
        kind="Pareto report",
        title=report.title,
        lede=_lede(report),
        numbers=_numbers(report),
        notes=[said(name(note)) for note in report.notes],
        sections=[
            Section("Retention against generalisation", picture=_picture(report)),
            Section(
                "The recommendation", said=[said(name(report.sentence))], points=[said(name(c)) for c in report.caveats]
            ),
            Section("Every condition", tables=[_table(report)]),
            Section("How it was measured", points=_measured(report)),
        ],
        facts=facts(report.facts),
    )


def _chosen(report: ParetoReport) -> Point | None:
    return next((point for point in report.points if point.condition == report.recommended), None)


def _knee(report: ParetoReport) -> Point | None:
    return next((point for point in report.points if point.knee), None)


def _lede(report: ParetoReport) -> list[Sentence]:
    chosen, knee = _chosen(report), _knee(report)
    frontier = sum(point.on_frontier for point in report.points)
    among = f"{frontier} of {many(len(report.points), 'condition')} {'is' if frontier == 1 else 'are'} on the frontier."
    if len(report.points) == 1:
        among = "It is the only condition, so there is nothing to trade."
    if chosen:
        both = f"{mean(chosen.frozen_tier3)} of frozen tier 3 and {mean(chosen.organic_holdout)} of the organic holdout"
        of = f", {'means of ' if len(chosen.seeds) > 1 else ''}{_seeds(chosen)}."
        return [said("Take ", name(chosen.condition, important=True), ": it passes ", strong(both), of), said(among)]
    if knee:
        why = ", is above it on neither truth."
        return [
            said("Keep the base encoder: the best trade-off, ", name(knee.condition, important=True), why),
            said(among),
        ]
    return [said(f"No condition meets the floor {_floors(report.floors)}, so none is recommended."), said(among)]


def _numbers(report: ParetoReport) -> list[Number]:
    point = _chosen(report) or _knee(report)
    if point is None:
        return []
    numbers = []
    for label, value, base in (
        ("Frozen tier 3", point.frozen_tier3, report.base.frozen_tier3 if report.base else None),
        ("Organic holdout", point.organic_holdout, report.base.organic_holdout if report.base else None),
    ):
        more = said(
            f"base {share(base)}" if base is not None else "no base encoder",
            *([f"; {spread(value)} SE"] if value.se is not None else []),
        )
        numbers.append(Number(label, mean(value), more))
    on = [point for point in report.points if point.on_frontier]
    numbers.append(
        Number("On the frontier", f"{len(on)} of {len(report.points)}", said(f"{_seeds(on[0])} each" if on else ""))
    )
    return numbers


def _seeds(point: Point) -> str:
    return many(len(point.seeds) or point.frozen_tier3.n, "seed")


def _floors(floors: Mapping[str, float]) -> str:
    return " and ".join(f"{TRUTHS.get(metric, metric)} ≥ {share(low)}" for metric, low in floors.items())


# --- picture -----------------------------------------------------------------------------------------------------------


def _picture(report: ParetoReport) -> Picture:
    marks = [
        Mark(
            number=point.number,
            name=visible(point.condition),
            x=point.frozen_tier3.mean,
            y=point.organic_holdout.mean,
            x_se=point.frozen_tier3.se,
            y_se=point.organic_holdout.se,
            seeds=[(seed.frozen_tier3, seed.organic_holdout) for seed in point.seeds],
            on_frontier=point.on_frontier,
            knee=point.knee,
        )
        for point in report.points
    ]
    base = (report.base.frozen_tier3, report.base.organic_holdout) if report.base else None
    caption = (
        "Up and to the right is better. Filled circles are on the frontier (the line), hollow ones are "
        "dominated, the diamond "
        "is the knee, the triangle the base encoder. Small dots are single seeds, crosses ± 1 standard error "
        "over them. "
        "A number stands for a condition whose name found no room; the table below has both."
    )
    return Picture(
        "Frozen tier 3 against the organic holdout",
        _in_words(report),
        lambda width: scatter(marks, base, {key: low for key, low in report.floors.items() if key in TRUTHS}, width),
        said(caption),
    )


def _in_words(report: ParetoReport) -> str:
    told = [
        f"{point.number}, {visible(point.condition)}: frozen tier 3 {mean(point.frozen_tier3)}, organic holdout "
        f"{mean(point.organic_holdout)}, {'on the frontier' if point.on_frontier else 'dominated'}"
        f"{', the knee' if point.knee else ''}."
        for point in report.points
    ]
    if report.base:
        base = report.base
        told.append(
            f"Base encoder: frozen tier 3 {share(base.frozen_tier3)}, organic holdout {share(base.organic_holdout)}."
        )
    if report.floors:
        told.append(f"Floor: {_floors(report.floors)}.")
    return " ".join(told)


# --- tables ------------------------------------------------------------------------------------------------------------


def _table(report: ParetoReport) -> Table:
    columns = ["condition", "no.", "on the frontier", "frozen tier 3", "95% (t)", "organic holdout", "95% (t)", "seeds"]
    rows = []
    for point in report.points:
        both = [[with_error(value), t_interval(value)] for value in (point.frozen_tier3, point.organic_holdout)]
        on = "knee" if point.knee and point.on_frontier else "yes" if point.on_frontier else _dominated(point, report)
        rows.append([point.condition, str(point.number), on, *both[0], *both[1], str(point.frozen_tier3.n)])
        if report.floors:
            rows[-1].append("yes" if point.meets_floor else "no")
    if report.base:
        base = report.base
        rows.append(["base encoder", "", "", share(base.frozen_tier3), "", share(base.organic_holdout), "", "1"])
        rows[-1] += [""] if report.floors else []
    marked = frozenset(i for i, point in enumerate(report.points) if point.condition == report.recommended)
    caption = "Means over seeds ± the standard error in percentage points, and the 95% interval by Student's t"
    return Table(caption, [*columns, *(["meets the floor"] if report.floors else [])], rows, marked=marked)


def _dominated(point: Point, report: ParetoReport) -> str:
    numbers = {other.condition: other.number for other in report.points}
    by = sorted(numbers[other] for other in point.dominated_by if other in numbers)
    shown = ", ".join(map(str, by[:3])) + (f" and {len(by) - 3} more" if len(by) > 3 else "")
    return f"no, behind {shown}" if by else "no"


def _measured(report: ParetoReport) -> list[Sentence]:
    return [
        said(
            "Frozen tier 3 is what the model must not lose: the hardest bundles of the frozen eval set. The "
            "organic holdout is what it has not seen: mined bundles that share no sense with training."
        ),
        said(
            "A condition is on the frontier unless another is at least as good on both and better on one. The "
            "knee is the frontier's point farthest beyond the straight line between its two ends."
        ),
        said(
            "Every seed is a training run of its own. With three seeds a 95% interval by Student's t is 4.3 "
            "standard errors wide on each side; where intervals overlap, the order may be chance."
        ),
    ]
