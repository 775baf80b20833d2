"""Pass rates before and after training -> dots with intervals: one run by eval set and tier, a sweep by condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crucible.board.charts import BLUE, GREY, INK, ORANGE, WIDE, percent
from crucible.board.plots.labels import shortened, width_of
from crucible.board.plots.rows import data as inline
from crucible.board.plots.rows import down, room

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

Interval = tuple[float, float]


class Pair(NamedTuple):
    """One line of the chart: a share before and after, None where it was not measured."""

    name: str
    base: float | None
    base_interval: Interval | None
    trained: float | None
    trained_interval: Interval | None


def before_and_after(pairs: Sequence[Pair], width: int = WIDE) -> ChartType:
    """Two dots a line on an axis from 0 to 100%: hollow for the base encoder, filled for the trained model."""
    import altair as alt

    wide = width >= WIDE
    names = 150 if wide else 0
    widest = max((width_of(_change(pair), 14) for pair in pairs), default=0.0)
    plot = width - names - int(widest) - 38 if wide else width - 44
    step, top = (46, 0.0) if wide else (62, 14.0)
    values = []
    for place, pair in enumerate(pairs):
        middle = place * step + step / 2 + (top if not wide else 0) / 2
        text = _change(pair)
        one = {"name": pair.name, "text": text, "line": middle, "head": place * step + 10}
        for kind, share, interval, off in (
            ("base", pair.base, pair.base_interval, -8),
            ("trained", pair.trained, pair.trained_interval, 8),
        ):
            low, high = interval or (None, None)
            values.append({**one, "kind": kind, "share": share, "low": low, "high": high, "y": middle + off})
    height = step * len(pairs)
    x_axis = alt.Axis(
        format=".0%", values=[0, 0.25, 0.5, 0.75, 1], domain=False, labelFlush=False, grid=True, title=None
    )
    x = alt.X("share:Q", scale=alt.Scale(domain=[0, 1]), axis=x_axis)
    data = inline(values).encode(y=down("y", height))
    whisker = data.transform_filter("isValid(datum.low)")
    dots = data.transform_filter("isValid(datum.share)")
    is_base, first = "datum.kind == 'base'", data.transform_filter("datum.kind == 'base'")
    layers = [
        whisker.mark_rule(color=INK, strokeWidth=1.5, opacity=0.7).encode(x=alt.X("low:Q"), x2="high:Q"),
        dots.transform_filter(is_base).mark_point(color=GREY, size=60, strokeWidth=2, opacity=1).encode(x=x),
        dots.transform_filter(f"!({is_base})").mark_point(filled=True, color=BLUE, size=75, opacity=1).encode(x=x),
    ]
    if wide:
        layers += [
            first.mark_text(align="left", fontSize=13, limit=names - 16).encode(
                text="name:N", x=alt.value(-names), y=down("line", height)
            ),
            room(-names, plot + 22 + widest),
            first.mark_text(align="left", fontSize=13, fontWeight=600).encode(
                text="text:N", x=alt.value(plot + 22), y=down("line", height)
            ),
        ]
    else:
        layers += [
            first.mark_text(align="left", fontSize=12).encode(text="name:N", x=alt.value(0), y=down("head", height)),
            first.mark_text(align="right", fontSize=12, fontWeight=600).encode(
                text="text:N", x=alt.value(plot), y=down("head", height)
            ),
        ]
    return alt.layer(*layers).properties(width=plot, height=height)


def _change(pair: Pair) -> str:
    return f"{percent(pair.base)} → {percent(pair.trained)}"


class Condition(NamedTuple):
    """One condition of a sweep: means over seeds with their interval; `chosen` is the recommended one."""

    name: str
    frozen: float | None
    frozen_interval: Interval | None
    organic: float | None
    organic_interval: Interval | None
    chosen: bool


NUMBER = 58
"""Room for a percentage beside a panel."""


def by_condition(
    conditions: Sequence[Condition], base: tuple[float | None, float | None], width: int = WIDE
) -> ChartType:
    """Two panels with one line a condition; short dashes show where the base encoder stands."""
    import altair as alt

    wide = width >= WIDE
    longest = max((width_of(one.name) for one in conditions), default=0.0)
    names = int(min(250.0, longest + 14)) if wide else 0
    between = 22
    panel = (width - names - 2 * NUMBER - between - 12) // 2 if wide else width - 30
    frozen = [(one.name, one.frozen, one.frozen_interval, one.chosen) for one in conditions]
    organic = [(one.name, one.organic, one.organic_interval, one.chosen) for one in conditions]
    left = _panel("frozen tier 3", frozen, base[0], panel, names)
    right = _panel("organic holdout", organic, base[1], panel, 0 if wide else names)
    return alt.hconcat(left, right, spacing=between) if wide else alt.vconcat(left, right, spacing=20)


def _panel(
    title: str,
    rows: Sequence[tuple[str, float | None, Interval | None, bool]],
    base: float | None,
    width: int,
    names: int,
) -> alt.LayerChart:
    """`names` is the room for names on the left; without it (on a phone) each name stands above its line."""
    import altair as alt

    above = width > 280 and not names  # one panel fills a phone
    step, centre = (40, 27) if above else (26, 13)
    low, high = _domain([share for _, share, _, _ in rows], [i for _, _, i, _ in rows], base)
    values: list[dict[str, Any]] = [
        {
            "name": shortened(name, width - 60 if above else max(names - 8, 0)),
            "share": share,
            "number": percent(share),
            "low": max(interval[0], low) if interval else None,
            "high": min(interval[1], high) if interval else None,
            "colour": BLUE if chosen else GREY,
            "weight": 600 if chosen else 400,
            "base": base,
            "y": n * step + centre,
            "over": n * step + centre - 10,
            "under": n * step + centre + 10,
            "text": n * step + (10 if above else centre),
        }
        for n, (name, share, interval, chosen) in enumerate(rows)
    ]
    height = step * len(rows)
    digits = ".1%" if high - low < 0.04 else ".0%"
    axis = alt.Axis(format=digits, tickCount=4, domain=False, labelFlush=False, grid=True, title=None)
    x = alt.X("share:Q", scale=alt.Scale(domain=[low, high], nice=False, zero=False), axis=axis)
    data = inline(values).encode(y=down("y", height))
    dots = data.transform_filter("isValid(datum.share)").mark_point(filled=True, size=70, opacity=1)
    whisker = data.transform_filter("isValid(datum.low)").mark_rule(color=INK, strokeWidth=1.5, opacity=0.6)
    dash = data.transform_filter("isValid(datum.base)").mark_rule(color=ORANGE, strokeWidth=2, strokeDash=[4, 3])
    layers = [
        dash.encode(x=alt.X("base:Q"), y=down("over", height), y2="under:Q"),
        whisker.encode(x=alt.X("low:Q"), x2="high:Q"),
        dots.encode(x=x, color=alt.Color("colour:N", scale=None)),
    ]
    for weight in (600, 400):
        mine = data.transform_filter(f"datum.weight == {weight}").encode(y=down("text", height))
        texts = mine.mark_text(align="left", fontSize=12, fontWeight=weight)
        numbers = mine.mark_text(align="right", fontSize=12, fontWeight=weight)
        layers.append(numbers.encode(text="number:N", x=alt.value(width if above else width + NUMBER - 4)))
        if names or above:
            layers.append(texts.encode(text="name:N", x=alt.value(0 if above else -names)))
    said = f"{title}, base {percent(base)}" if base is not None else title
    return alt.layer(*layers).properties(
        width=width, height=height, title=alt.TitleParams(said, anchor="start", frame="group")
    )


def _domain(
    shares: Sequence[float | None], intervals: Sequence[Interval | None], base: float | None
) -> tuple[float, float]:
    """Around everything, within 0 and 100%: an interval of three seeds may reach beyond what a share can be."""
    ends = [share for share in shares if share is not None]
    ends += [end for interval in intervals if interval for end in interval]
    ends += [base] if base is not None else []
    low, high = max(0.0, min(ends, default=0.0)), min(1.0, max(ends, default=1.0))
    edge = max(high - low, 0.02) * 0.05
    return low - edge, high + edge
