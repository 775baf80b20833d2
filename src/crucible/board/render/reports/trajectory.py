"""Both truths after more and more steps -> a page that says how long to train, and where the overfitting cliff is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from crucible.board.plots.curves import Line, Place, trajectory
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong
from crucible.board.render.page import between, count, share
from crucible.board.render.reports.words import Fact, facts, many


class Value(msgspec.Struct, frozen=True):
    """A share with its band: ± 1 SE over seeds in a sweep, Wilson over items in a run; no band for a single seed of a sweep."""

    share: float
    band: tuple[float, float] | None
    seeds: Sequence[float] = ()


class Point(msgspec.Struct, frozen=True):
    """After so many steps; 0 is the base encoder."""

    step: int
    frozen_tier3: Value | None
    organic_holdout: Value | None


class Cliff(msgspec.Struct, frozen=True):
    from_step: int
    to_step: int
    message: str


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    source: Literal["run", "sweep"]
    points: Sequence[Point]
    cliff: Cliff | None
    seeds: int
    notes: Sequence[str]
    facts: Sequence[Fact]


FROZEN, ORGANIC = "frozen tier 3", "organic holdout"


def outline(report: Trajectory) -> Outline:
    return Outline(
        kind="step trajectory",
        title=report.title,
        lede=_lede(report),
        numbers=_numbers(report),
        notes=[said(name(note)) for note in report.notes],
        sections=[
            Section("Both truths by training steps", picture=_picture(report)),
            Section("Every evaluation", tables=[_table(report)]),
            Section("How it was measured", points=_measured(report)),
        ],
        facts=facts(report.facts),
    )


def _best(report: Trajectory) -> tuple[Point, Value] | None:
    """The steps with the highest organic holdout; of equals the fewest."""
    found = [(point, point.organic_holdout) for point in report.points if point.organic_holdout and point.step]
    return max(found, key=lambda pair: (pair[1].share, -pair[0].step), default=None)


def _lede(report: Trajectory) -> list[Sentence]:
    best, last = _best(report), report.points[-1]
    said_so = []
    if best:
        point, value = best
        where = f"after {count(point.step)} steps" + (", the most that were tried" if point.step == last.step else "")
        said_so.append(said(f"The organic holdout is highest {where}, at ", strong(share(value.share)), "."))
    if report.cliff:
        between_them = f"between {count(report.cliff.from_step)} and {count(report.cliff.to_step)} steps"
        said_so.append(
            said(
                "There is an overfitting cliff ",
                strong(between_them),
                ": frozen tier 3 rises while the organic holdout falls.",
            )
        )
    elif best:
        said_so.append(said("No overfitting cliff: nowhere does frozen tier 3 rise while the organic holdout falls."))
    else:
        frozen = last.frozen_tier3
        if frozen:
            said_so.append(
                said(
                    f"After {count(last.step)} steps {share(frozen.share)} of frozen tier 3 pass; no organic "
                    "holdout was measured."
                )
            )
    return said_so


def _numbers(report: Trajectory) -> list[Number]:
    numbers, last = [], report.points[-1]
    if best := _best(report):
        point, value = best
        numbers.append(Number("Best organic holdout", share(value.share), said(f"after {count(point.step)} steps")))
        if point.frozen_tier3:
            numbers.append(Number("Frozen tier 3 there", share(point.frozen_tier3.share), said(_base(report))))
    if last.organic_holdout:
        numbers.append(
            Number("Organic at the end", share(last.organic_holdout.share), said(f"after {count(last.step)} steps"))
        )
    if last.frozen_tier3:
        numbers.append(
            Number("Frozen tier 3 at the end", share(last.frozen_tier3.share), said(f"after {count(last.step)} steps"))
        )
    return numbers


def _base(report: Trajectory) -> str:
    first = report.points[0]
    return f"base {share(first.frozen_tier3.share)}" if first.step == 0 and first.frozen_tier3 else "no base encoder"


def _picture(report: Trajectory) -> Picture:
    lines = [
        Line(FROZEN, [_place(point.step, point.frozen_tier3) for point in report.points if point.frozen_tier3]),
        Line(ORGANIC, [_place(point.step, point.organic_holdout) for point in report.points if point.organic_holdout]),
    ]
    cliff = (report.cliff.from_step, report.cliff.to_step) if report.cliff else None
    words = " ".join(
        f"After {count(point.step)} steps: {FROZEN} {share(point.frozen_tier3.share if point.frozen_tier3 else None)}, "
        f"{ORGANIC} {share(point.organic_holdout.share if point.organic_holdout else None)}."
        for point in report.points
    )
    if report.cliff:
        words += f" The cliff lies between {count(report.cliff.from_step)} and {count(report.cliff.to_step)} steps."
    bands = " Bands are 95% Wilson intervals over the items."
    if report.source == "sweep":
        bands = " Bands are ± 1 standard error over the seeds, which are the small dots."
        bands = bands if report.seeds > 1 else " One seed: there is no band."
    caption = f"Step 0 is the base encoder. Circles and the blue line are {FROZEN}, squares and the orange line {ORGANIC}.{bands}"
    return Picture(
        "Both truths by training steps",
        words,
        lambda width: trajectory(lines, cliff, width),
        said(caption),
    )


def _place(step: int, value: Value) -> Place:
    return Place(step, value.share, value.band, value.seeds)


def _table(report: Trajectory) -> Table:
    band = "± 1 SE" if report.source == "sweep" else "95% interval"
    rows = []
    for point in report.points:
        row = [count(point.step) + (" (base)" if point.step == 0 else "")]
        for value in (point.frozen_tier3, point.organic_holdout):
            row += [share(value.share if value else None), between(value.band) if value else "–"]
        rows.append(row)
    inside = {report.cliff.from_step, report.cliff.to_step} if report.cliff else set()
    marked = frozenset(place for place, point in enumerate(report.points) if point.step in inside)
    caption = "Marked: the two sides of the cliff" if marked else "Both truths after every evaluation"
    return Table(caption, ["steps", FROZEN, band, ORGANIC, band], rows, marked=marked)


def _measured(report: Trajectory) -> list[Sentence]:
    how = (
        f"Every point is the mean of {many(report.seeds, 'training run')} of that many steps, each from the start."
        if report.source == "sweep"
        else "Every point is an evaluation of one training run on its way. One run: other seeds may turn elsewhere."
    )
    points = [
        said(how),
        said(
            "The cliff (guardrail G8) is the first place where more steps raise frozen tier 3 and lower the "
            "organic holdout. It compares means only; where bands overlap, it may be chance."
        ),
    ]
    if report.cliff:
        points.append(said(strong("G8: "), name(report.cliff.message)))
    return points
