"""Margins of two models on the same items -> one panel a group: filled bars after training, an outline before, and quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crucible.board.charts import BLUE, INK, WIDE
from crucible.board.plots.labels import width_of
from crucible.board.plots.rows import data, room

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

Quantiles = tuple[float, float, float]
BELOW = 42
"""Pixels under the bars for the quantiles of both models."""


class Panel(NamedTuple):
    """Counts in the bins of the common edges, and Q10, Q50, Q90 of the margins themselves."""

    name: str
    base: Sequence[int]
    trained: Sequence[int]
    base_quantiles: Quantiles
    trained_quantiles: Quantiles


def paired_histograms(edges: Sequence[float], panels: Sequence[Panel], width: int = WIDE) -> ChartType:
    import altair as alt

    wide = width >= WIDE
    plot, tall = (width - 76, 96) if wide else (width - 72, 84)
    span = (min(0.0, edges[0]), max(0.0, edges[-1]))
    drawn = []
    for place, panel in enumerate(panels):
        last = place == len(panels) - 1
        title = alt.TitleParams(f"{panel.name}  ({sum(panel.trained):,})", anchor="start", frame="group", limit=plot)
        layers = [
            room(-width_of("trained") - 8, plot),
            *_bars(edges, panel, span, tall, last, wide),
            *_quantiles(panel, tall),
            *_zero(span, plot, place == 0),
        ]
        drawn.append(alt.layer(*layers).properties(width=plot, height=tall + BELOW, title=title))
    return alt.vconcat(*drawn, spacing=16)


def _x(field: str, span: tuple[float, float], last: bool, wide: bool) -> alt.X:
    import altair as alt

    if last:
        signed = "datum.value == 0 ? '0' : format(datum.value, '+.3~f')"
        axis = alt.Axis(labelExpr=signed, tickCount=8 if wide else 4, grid=False, labelFlush=False, title="margin")
    else:
        axis = alt.Axis(labels=False, ticks=False, grid=False, title=None)
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=list(span), nice=False), axis=axis)


def _bars(
    edges: Sequence[float], panel: Panel, span: tuple[float, float], tall: int, last: bool, wide: bool
) -> list[alt.Chart]:
    """Heights in pixels, so that the quantiles below share the plot; the axis says the counts."""
    import altair as alt

    top = max(1, *panel.base, *panel.trained)
    scale = alt.Scale(domain=[-top * BELOW / tall, top], nice=False)
    axis = alt.Axis(values=_ticks(top), domain=False, format=",d", title=None, grid=True)
    y = alt.Y("count:Q", scale=scale, axis=axis)
    x = _x("low", span, last, wide)
    bars = [{"low": a, "high": b, "count": n} for a, b, n in zip(edges, edges[1:], panel.trained, strict=False) if n]
    filled = data(bars).mark_bar(color=BLUE, binSpacing=1).encode(x=x, x2="high:Q", y=y, y2=alt.datum(0))
    outline = _outline(edges, panel.base)
    line = data(outline).mark_line(color=INK, opacity=0.75, strokeWidth=1.8, strokeJoin="miter")
    return [filled, line.encode(x=x, y=y, order="order:Q")]


def _outline(edges: Sequence[float], counts: Sequence[int]) -> list[dict[str, Any]]:
    """The contour of a histogram, from its first filled bin to its last."""
    filled = [place for place, number in enumerate(counts) if number]
    if not filled:
        return []
    first, last = filled[0], filled[-1]
    points = [(edges[first], 0.0)]
    for place in range(first, last + 1):
        points += [(edges[place], float(counts[place])), (edges[place + 1], float(counts[place]))]
    points.append((edges[last + 1], 0.0))
    return [{"low": x, "count": y, "order": n} for n, (x, y) in enumerate(points)]


def _quantiles(panel: Panel, tall: int) -> list[alt.Chart]:
    """Two lines under the bars, from Q10 to Q90 with a diamond at the median; their names are the key of the panel."""
    import altair as alt

    layers = []
    for name, quantiles, colour, place in (
        ("base", panel.base_quantiles, INK, 15),
        ("trained", panel.trained_quantiles, BLUE, 31),
    ):
        q10, q50, q90 = quantiles
        at = alt.value(tall + place)
        line = data([{"low": q10, "high": q90}]).mark_rule(color=colour, strokeWidth=2)
        ends = data([{"low": q10}, {"low": q90}]).mark_tick(color=colour, thickness=2, size=8, orient="vertical")
        middle = data([{"low": q50}]).mark_point(color=colour, filled=True, shape="diamond", size=55, opacity=1)
        word = data([{"name": name}]).mark_text(align="right", fontSize=12, opacity=0.9)
        layers += [
            line.encode(x=alt.X("low:Q"), x2="high:Q", y=at),
            ends.encode(x=alt.X("low:Q"), y=at),
            middle.encode(x=alt.X("low:Q"), y=at),
            word.encode(text="name:N", x=alt.value(-6), y=at),
        ]
    return layers


def _zero(span: tuple[float, float], plot: int, words: bool) -> list[alt.Chart]:
    import altair as alt

    line = data([{"low": 0.0}]).encode(x=alt.X("low:Q"))
    layers = [line.mark_rule(color=INK, strokeWidth=1.2)]
    room = (span[1] - span[0]) * 60 / plot
    if words and -span[0] > room:
        layers.append(
            line.mark_text(align="right", dx=-6, fontSize=12, opacity=0.8).encode(
                text=alt.value("fails"), y=alt.value(-9)
            )
        )
    if words and span[1] > room:
        layers.append(
            line.mark_text(align="left", dx=6, fontSize=12, opacity=0.8).encode(
                text=alt.value("passes"), y=alt.value(-9)
            )
        )
    return layers


def _ticks(top: int) -> list[int]:
    step = next(size * 10**power for power in range(20) for size in (1, 2, 5) if size * 10**power * 2.5 >= top)
    return list(range(0, top + 1, step))
