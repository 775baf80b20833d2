"""Exposures of pools -> expected against realised over the zones of the reference, and how often single items were seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crucible.board.charts import BLUE, INK, ORANGE, WIDE
from crucible.board.plots.labels import shortened, width_of
from crucible.board.plots.rows import data, down

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

BEND = 10.0
"""The axis is linear below this and logarithmic above: zones and pools seen a thousand times fit on one line."""


class Zone(NamedTuple):
    """From `floor` up to the next zone."""

    floor: float
    name: str


class Seen(NamedTuple):
    """One line: expected exposures of an item, and what the log shows; None where there is no log."""

    name: str
    expected: float | None
    least: float | None
    mean: float | None
    most: float | None


class Group(NamedTuple):
    name: str
    lines: Sequence[Seen]


def over_zones(groups: Sequence[Group], zones: Sequence[Zone], width: int = WIDE) -> ChartType:
    """A panel a group on one axis: a diamond is the expectation, a dot the realised mean, a line goes from minimum to maximum."""
    import altair as alt

    wide = width >= WIDE
    longest = max((width_of(line.name) for group in groups for line in group.lines), default=0.0)
    names = int(min(250.0, longest + 14)) if wide else 0
    plot = width - names - (26 if wide else 30)
    values = [v for g in groups for line in g.lines for v in (line.expected, line.least, line.mean, line.most) if v]
    top = max(80.0, *(value * 1.15 for value in values)) if values else 80.0
    zones = sorted(zones)
    drawn = [
        _panel(group, zones, top, plot, names, place, last=place == len(groups) - 1)
        for place, group in enumerate(groups)
    ]
    return alt.vconcat(*drawn, spacing=14)


def _panel(
    group: Group, zones: Sequence[Zone], top: float, plot: int, names: int, place: int, *, last: bool
) -> alt.LayerChart:
    import altair as alt

    step, centre = (28, 14) if names else (42, 28)
    height = step * len(group.lines)
    values: list[dict[str, Any]] = [
        {
            "name": shortened(line.name, names - 8 if names else plot),
            "expected": line.expected,
            "least": line.least,
            "mean": line.mean,
            "most": line.most,
            "y": n * step + centre,
            "text": n * step + (centre if names else 11),
        }
        for n, line in enumerate(group.lines)
    ]
    lines = data(values).encode(y=down("y", height))
    spread = lines.transform_filter("isValid(datum.least)")
    x = _x("expected", zones, top, plot, last=last)
    layers = [
        *_zones(zones, top, plot, height, words=place == 0),
        spread.mark_rule(color=BLUE, strokeWidth=2).encode(x=_x("least", zones, top, plot, last=last), x2="most:Q"),
        spread.mark_tick(color=BLUE, thickness=2, size=11, orient="vertical").encode(
            x=_x("least", zones, top, plot, last=last)
        ),
        lines.transform_filter("isValid(datum.mean)")
        .mark_point(filled=True, color=BLUE, size=60, opacity=1)
        .encode(x=_x("mean", zones, top, plot, last=last)),
        lines.transform_filter("isValid(datum.expected)")
        .mark_point(shape="diamond", color=INK, size=90, strokeWidth=1.8, opacity=1)
        .encode(x=x),
        lines.mark_text(align="left", fontSize=12).encode(text="name:N", x=alt.value(-names), y=down("text", height)),
    ]
    drawn = alt.layer(*layers).properties(width=plot, height=height)
    if not group.name:
        return drawn
    title = alt.TitleParams(group.name, anchor="start", frame="group", offset=6)
    return drawn.properties(title=title)


def _x(field: str, zones: Sequence[Zone], top: float, plot: int, *, last: bool) -> alt.X:
    import altair as alt

    scale = alt.Scale(type="symlog", constant=BEND, domain=[0, top], nice=False)
    if last:
        ticks = _apart([*(zone.floor for zone in zones), *_round(top)], top, plot)
        axis = alt.Axis(
            values=ticks, format=",d", title="times seen per item", grid=False, domain=False, labelFlush=False
        )
    else:
        axis = alt.Axis(labels=False, ticks=False, grid=False, title=None, domain=False)
    return alt.X(f"{field}:Q", scale=scale, axis=axis)


def _round(top: float) -> list[float]:
    return [float(size * 10**power) for power in range(2, 9) for size in (1, 2, 5) if size * 10**power <= top]


def _pixel(value: float, top: float, plot: int) -> float:
    return math.log1p(value / BEND) / math.log1p(top / BEND) * plot


def _apart(values: Sequence[float], top: float, plot: int) -> list[float]:
    """Those that leave room for their numbers, the zones' own first."""
    kept: list[float] = []
    for value in values:
        if all(abs(_pixel(value, top, plot) - _pixel(one, top, plot)) >= 27 for one in kept):
            kept.append(value)
    return sorted(kept)


def _zones(zones: Sequence[Zone], top: float, plot: int, height: int, *, words: bool) -> list[alt.Chart]:
    """The worse the zone, the stronger its tint; a zone too narrow for its word goes without."""
    import altair as alt

    ends = [*(zone.floor for zone in zones[1:]), top]
    layers = []
    for n, (zone, end) in enumerate(zip(zones, ends, strict=True)):
        healthy = n == len(zones) - 1
        left, right = _pixel(zone.floor, top, plot), _pixel(min(end, top), top, plot)
        area = data([{}]).mark_rect(color=BLUE if healthy else ORANGE, opacity=0.14 if healthy else 0.30 - 0.09 * n)
        layers.append(area.encode(x=alt.value(left), x2=alt.value(right), y=alt.value(0), y2=alt.value(height)))
        if words and right - left > width_of(zone.name):
            word = data([{"t": zone.name}]).mark_text(fontSize=12, opacity=0.9)
            layers.append(word.encode(text="t:N", x=alt.value((left + right) / 2), y=alt.value(-10)))
    return layers


# --- single items ------------------------------------------------------------------------------------------------------


class Times(NamedTuple):
    """A pool: items that were seen from `low` to `high` times, for every stretch in which there are any."""

    name: str
    items: int
    never: int
    bars: Sequence[tuple[int, int, int]]


def stretches(counts: Sequence[int], most: int = 60) -> list[tuple[int, int, int]]:
    """Times seen -> (from, to, items) in equal stretches of whole numbers; never seen stays apart from all others."""
    top = max(counts, default=0)
    size = max(1, math.ceil((top + 1) / most))
    found: dict[int, int] = {}
    for count in counts:
        place = -1 if count == 0 else (count - 1) // size
        found[place] = found.get(place, 0) + 1
    return [
        (0, 0, items) if place < 0 else (place * size + 1, place * size + size, items)
        for place, items in sorted(found.items())
    ]


def times_seen(pools: Sequence[Times], width: int = WIDE) -> ChartType:
    """A panel a pool over one axis; items that were never seen stand at zero, in the colour of a warning."""
    import altair as alt

    wide = width >= WIDE
    plot, height = (width - 72, 92) if wide else (width - 62, 80)
    last = max((high for pool in pools for _, high, _ in pool.bars), default=1)
    first = (
        0
        if any(low == 0 for pool in pools for low, _, _ in pool.bars)
        else min((low for pool in pools for low, _, _ in pool.bars), default=0)
    )
    span = [first - 0.5, last + 0.5]
    drawn = []
    for place, pool in enumerate(pools):
        values = [
            {"low": low - 0.5, "high": high + 0.5, "items": items, "colour": ORANGE if high == 0 else BLUE}
            for low, high, items in pool.bars
        ]
        top = max((items for _, _, items in pool.bars), default=1)
        shown = place == len(pools) - 1
        axis = alt.Axis(
            title="times seen" if shown else None,
            labels=shown,
            ticks=shown,
            format=",d",
            tickMinStep=1,
            tickCount=8 if wide else 5,
            grid=False,
            labelFlush=False,
        )
        x = alt.X("low:Q", scale=alt.Scale(domain=span, nice=False, zero=False), axis=axis)
        y_axis = alt.Axis(values=_whole(top), format=",d", domain=False, title=None)
        y = alt.Y("items:Q", scale=alt.Scale(domain=[0, top], nice=False), axis=y_axis)
        bars = data(values).mark_bar(binSpacing=0 if len(values) > 30 else 1)
        bars = bars.encode(x=x, x2="high:Q", y=y, y2=alt.datum(0), color=alt.Color("colour:N", scale=None))
        never = f", {pool.never:,} never seen" if pool.never else ""
        title = alt.TitleParams(f"{pool.name}: {pool.items:,} items{never}", anchor="start", frame="group", limit=plot)
        drawn.append(alt.layer(bars).properties(width=plot, height=height, title=title))
    return alt.vconcat(*drawn, spacing=16)


def _whole(top: int) -> list[int]:
    step = next(size * 10**power for power in range(20) for size in (1, 2, 5) if size * 10**power * 2.5 >= top)
    return list(range(0, top + 1, step))
