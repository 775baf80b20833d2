"""Values by training step -> lines: the loss of a run or of many conditions, and both truths with bands and the cliff."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crucible.board.charts import BLUE, GREY, INK, ORANGE, WIDE
from crucible.board.plots.labels import apart, width_of
from crucible.board.plots.rows import data, room

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

POINTS = 160
"""A line has no more points than this: each stands for the mean of the steps around it."""


class Curve(NamedTuple):
    """One line of a loss chart: (step, mean, lowest, highest) of each stretch; the chosen one is drawn in colour."""

    name: str
    points: Sequence[tuple[float, float, float, float]]
    chosen: bool


def thinned(
    steps: Sequence[int], values: Sequence[float], most: int = POINTS
) -> list[tuple[float, float, float, float]]:
    """Equal stretches of the log, each as its middle step, mean, lowest and highest value."""
    size = max(1, math.ceil(len(steps) / most))
    found = []
    for start in range(0, len(steps), size):
        stretch = values[start : start + size]
        middle = (steps[start] + steps[min(start + size, len(steps)) - 1]) / 2
        found.append((middle, math.fsum(stretch) / len(stretch), min(stretch), max(stretch)))
    return found


def losses(curves: Sequence[Curve], width: int = WIDE) -> ChartType:
    """The chosen curve last and in colour, with the range of its steps behind it; the others grey."""
    import altair as alt

    wide = width >= WIDE
    ends = [value for curve in curves for _, mean, low, high in curve.points for value in (mean, low, high)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    edge = max(high - low, abs(high) * 0.02, 1e-9) * 0.06
    last = max((point[0] for curve in curves for point in curve.points), default=1.0)
    steps = alt.Axis(title="training step", format=",d", tickCount=6 if wide else 4, labelFlush=False, grid=False)
    x = alt.X("step:Q", scale=alt.Scale(domain=[0, last], nice=False), axis=steps)
    axis = alt.Axis(title="loss", tickCount=5, domain=False, grid=True)
    y = alt.Y(
        "loss:Q",
        scale=alt.Scale(domain=[max(0.0, low - edge) if low >= 0 else low - edge, high + edge], zero=False, nice=False),
        axis=axis,
    )
    layers = []
    for curve in sorted(curves, key=lambda one: one.chosen):
        values = [{"step": s, "loss": m, "low": a, "high": b} for s, m, a, b in curve.points]
        line = data(values)
        if curve.chosen and any(b > a for _, _, a, b in curve.points):
            layers.append(line.mark_area(color=BLUE, opacity=0.22).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"))
        colour, weight = (BLUE, 2.0) if curve.chosen else (GREY, 1.0)
        layers.append(
            line.mark_line(color=colour, strokeWidth=weight, opacity=1 if curve.chosen else 0.8).encode(x=x, y=y)
        )
        if len(values) == 1:
            layers.append(line.mark_point(color=colour, filled=True, size=40).encode(x=x, y=y))
    return alt.layer(*layers).properties(width=width - (72 if wide else 64), height=220 if wide else 180)


# --- both truths over steps --------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """One share after so many steps: its band (None without one) and the seeds behind it."""

    step: int
    share: float
    band: tuple[float, float] | None
    seeds: Sequence[float] = ()


class Line(NamedTuple):
    name: str
    places: Sequence[Place]


def trajectory(
    lines: Sequence[Line], cliff: tuple[int, int] | None, width: int = WIDE, *, marked: int | None = None
) -> ChartType:
    """One line a truth with its name at the end, bands, seeds as small dots; the cliff is shaded. `marked` is a step count."""
    import altair as alt

    wide = width >= WIDE
    colours, shapes = (BLUE, ORANGE), ("circle", "square")
    beside = max((width_of(line.name) * 1.07 for line in lines), default=0.0) + 14 if wide else 0.0
    plot, height = int(width - 66 - beside) if wide else width - 80, 320 if wide else 270
    domain = _shares(lines)
    x = _steps(lines, wide)
    digits = ".1%" if domain[1] - domain[0] < 0.04 else ".0%"
    axis = alt.Axis(title="share passed", format=digits, tickCount=6, domain=False, grid=True)
    y = alt.Y("share:Q", scale=alt.Scale(domain=list(domain), nice=False, zero=False), axis=axis)
    layers = [*_cliff(cliff, x, height), *_marked(marked, x)]
    for line, colour, shape in zip(lines, colours, shapes, strict=False):
        values = [_point(place) for place in line.places]
        if not values:
            continue
        one = data(values)
        if any(value["low"] is not None for value in values):
            banded = one.transform_filter("isValid(datum.low)")
            layers.append(banded.mark_area(color=colour, opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"))
            layers.append(banded.mark_rule(color=colour, opacity=0.6).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"))
        seeds = [{"step": p.step, "share": s} for p in line.places for s in p.seeds if len(p.seeds) > 1]
        if seeds:
            layers.append(data(seeds).mark_circle(color=colour, size=14, opacity=0.7).encode(x=x, y=y))
        layers.append(one.mark_line(color=colour, strokeWidth=2).encode(x=x, y=y))
        layers.append(one.mark_point(color=colour, shape=shape, filled=True, size=50, opacity=1).encode(x=x, y=y))
    layers += [room(0, plot + beside)] if wide else []
    layers += _names(lines, colours, shapes, domain, plot, height, wide)
    return alt.layer(*layers).properties(width=plot, height=height)


def _point(place: Place) -> dict[str, Any]:
    low, high = place.band or (None, None)
    return {"step": place.step, "share": place.share, "low": low, "high": high}


def _shares(lines: Sequence[Line]) -> tuple[float, float]:
    ends = [v for line in lines for p in line.places for v in (p.share, *(p.band or ()), *p.seeds)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    edge = max(high - low, 0.02) * 0.06
    return low - edge if low - edge > 0 or low < 0 else -0.015 * (high - low), high + edge


def _steps(lines: Sequence[Line], wide: bool) -> alt.X:
    """A root scale where step counts differ by more than twelve times: the first of them would share one pixel."""
    import altair as alt

    steps = sorted({place.step for line in lines for place in line.places if place.step > 0})
    spread = bool(steps) and steps[-1] > 12 * steps[0] and len(steps) <= 8
    scale = alt.Scale(type="sqrt" if spread else "linear", domain=[0, steps[-1] if steps else 1], nice=False)
    if len(steps) <= (8 if wide else 4) and spread:
        axis = alt.Axis(
            title="training steps (root scale)", format=",d", values=[0, *steps], labelOverlap=True, grid=False
        )
    else:
        axis = alt.Axis(title="training steps", format=",d", tickCount=6 if wide else 3, labelFlush=False, grid=False)
    return alt.X("step:Q", scale=scale, axis=axis)


def _cliff(cliff: tuple[int, int] | None, x: alt.X, height: int) -> list[alt.Chart]:
    import altair as alt

    if cliff is None:
        return []
    span = data([{"step": cliff[0], "to": cliff[1], "middle": (cliff[0] + cliff[1]) / 2, "word": "cliff"}])
    area = span.mark_rect(color=INK, opacity=0.10).encode(x=x, x2="to:Q", y=alt.value(0), y2=alt.value(height))
    word = span.mark_text(fontSize=12, fontWeight=600, baseline="top", dy=4)
    return [area, word.encode(x=alt.X("middle:Q"), text="word:N", y=alt.value(0))]


def _marked(step: int | None, x: alt.X) -> list[alt.Chart]:
    if step is None:
        return []
    rule = data([{"step": step}]).mark_rule(color=INK, strokeDash=[5, 4], opacity=0.7)
    return [rule.encode(x=x)]


def _names(
    lines: Sequence[Line],
    colours: Sequence[str],
    shapes: Sequence[str],
    domain: tuple[float, float],
    plot: int,
    height: int,
    wide: bool,
) -> list[alt.Chart]:
    """Beside the last point of each line, moved apart where the lines end together; above the plot on a phone."""
    import altair as alt

    shown = [(line, colour, shape) for line, colour, shape in zip(lines, colours, shapes, strict=False) if line.places]
    layers = []
    if not wide:
        across = -40.0
        for line, colour, shape in shown:
            dot = data([{}]).mark_point(color=colour, shape=shape, filled=True, size=50, opacity=1)
            layers.append(dot.encode(x=alt.value(across), y=alt.value(-14)))
            text = data([{"name": line.name}]).mark_text(align="left", fontSize=12)
            layers.append(text.encode(text="name:N", x=alt.value(across + 9), y=alt.value(-14)))
            across += width_of(line.name) + 26
        return layers
    down = [(domain[1] - line.places[-1].share) / (domain[1] - domain[0]) * height for line, _, _ in shown]
    for (line, _, _), place in zip(shown, apart(down, 17.0, 8.0, height - 8.0), strict=True):
        text = data([{"name": line.name}]).mark_text(align="left", fontSize=12, fontWeight=600)
        layers.append(text.encode(text="name:N", x=alt.value(plot + 10), y=alt.value(place)))
    return layers
