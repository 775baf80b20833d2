"""Numbers -> Altair charts -> inline SVG that reads on light and dark pages; knows no page, no report and no file.

Text and lines take the colour of the page (`currentColor`), fills are chosen to stand out on white and on near-black alike, and
no chart has a background. The same data gives the same bytes.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

if (
    TYPE_CHECKING
):  # Altair takes a second to load: the functions below do it, so that an evaluation without a chart never waits
    import altair as alt
    from altair.typing import ChartType

BLUE, ORANGE, GREY, PURPLE = "#3a7fc2", "#c8691c", "#7d8590", "#9a5fc0"
"""At least 3 : 1 against #ffffff and #14171b, and apart for the colour-blind."""
INK = "currentColor"
WIDE, NARROW = 760, 328
"""The widths, in CSS pixels, at which charts are drawn: beside a text column, and on a phone."""

VEGA_LITE = "6.4"
"""The compiler that is built into vl-convert; named, because the newest one would change the bytes."""


class TierRate(NamedTuple):
    """One bar: a share of 1 with its interval. `rate` and `interval` are None for an empty tier, which gets no bar."""

    name: str
    n: int
    rate: float | None
    interval: tuple[float, float] | None
    of_all: bool = False
    """The row over all tiers: drawn in grey, because it is not one of them."""


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f}%"


def tier_bars(rows: Sequence[TierRate], width: int = WIDE) -> ChartType:
    """Pass rates as horizontal bars from 0 to 100%, with whiskers for the intervals and the numbers to the right."""
    import altair as alt

    places = [f"{place}" for place in range(len(rows))]  # names may repeat; places cannot
    values = [
        {
            "place": place,
            "name": row.name,
            "rate": row.rate,
            "low": row.interval[0] if row.interval else None,
            "high": row.interval[1] if row.interval else None,
            "colour": GREY if row.of_all else BLUE,
            "number": percent(row.rate),
            "count": f"of {row.n:,}",
        }
        for place, row in zip(places, rows, strict=True)
    ]
    # Pages use whatever font the reader has, so room is kept by counting letters, for a wide one.
    names, letter = (150, 13) if width >= WIDE else (122, 12)
    numbers = 64 + 8 * max((len(f"of {row.n:,}") for row in rows), default=0)
    plot = max(60, width - names - numbers)
    side = alt.Y("place:N", sort=places, axis=None, scale=alt.Scale(domain=places, paddingInner=0.45, paddingOuter=0.2))
    ticks = [0, 0.25, 0.5, 0.75, 1] if width >= WIDE else [0, 0.5, 1]
    axis = alt.Axis(format=".0%", values=ticks, domain=False, labelFlush=False)
    share = alt.X("rate:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=axis)
    data = alt.Chart(alt.InlineData(values=values)).encode(y=side)
    measured = data.transform_filter("isValid(datum.rate)").encode(x=share)
    whiskers = data.transform_filter("isValid(datum.low)").encode(x=alt.X("low:Q", scale=alt.Scale(domain=[0, 1])))
    cap = 10
    layers = [
        measured.mark_bar(height=20).encode(color=alt.Color("colour:N", scale=None)),
        whiskers.mark_rule(color=INK, strokeWidth=1.5).encode(x2="high:Q"),
        whiskers.mark_tick(color=INK, thickness=1.5, size=cap, orient="vertical"),
        whiskers.mark_tick(color=INK, thickness=1.5, size=cap, orient="vertical").encode(x="high:Q"),
        data.mark_text(align="left", limit=names - 24, fontSize=letter).encode(text="name:N", x=alt.value(-names)),
        data.mark_text(align="right", fontSize=letter, fontWeight=600).encode(text="number:N", x=alt.value(plot + 58)),
        data.mark_text(align="left", fontSize=12, opacity=0.75).encode(text="count:N", x=alt.value(plot + 64)),
    ]
    return alt.layer(*layers).properties(width=plot, height=alt.Step(36))


def margin_histogram(edges: Sequence[float], counts: Mapping[str, Sequence[int]], width: int = WIDE) -> ChartType:
    """One panel for each tier over a common margin axis, with a line at zero: a bundle passes to the right of it.

    Heights are comparable within a panel only, because tiers differ in size by design. A bar that holds margins on both sides
    of zero is grey; `render.bins` makes none.
    """
    import altair as alt

    if len(edges) < 2 or any(len(row) != len(edges) - 1 for row in counts.values()):
        raise ValueError(f"{len(edges)} edges need one bar less in every tier")
    if not any(map(sum, counts.values())):
        raise ValueError("a histogram needs at least one item")
    span = (min(0.0, edges[0]), max(0.0, edges[-1]))
    plot, height = (width - 64, 96) if width >= WIDE else (width - 54, 76)
    panels = []
    for place, (name, row) in enumerate(counts.items()):
        first, last = place == 0, place == len(counts) - 1
        values = [
            {"low": low, "high": high, "count": number, "colour": _side(low, high)}
            for low, high, number in zip(edges, edges[1:], row, strict=False)
            if number
        ]
        top = max(row, default=0)
        ceiling = max(1.0, top * (1.3 if first else 1.0))  # the words beside the line stand above the bars
        count_axis = alt.Axis(values=_ticks(top), domain=False, format=",d")
        x = alt.X("low:Q", scale=alt.Scale(domain=span, nice=False), axis=_margin_axis(width, labels=last))
        y = alt.Y("count:Q", title=None, scale=alt.Scale(domain=[0, ceiling], nice=False), axis=count_axis)
        bars = alt.Chart(alt.InlineData(values=values)).mark_bar(binSpacing=1)
        bars = bars.encode(x=x, x2="high:Q", y=y, y2=alt.datum(0), color=alt.Color("colour:N", scale=None))
        title = alt.TitleParams(
            f"{name}  ({sum(row):,})" if top else f"{name}  (no items)", anchor="start", frame="group", limit=plot * 0.8
        )
        layers = [bars, *_zero(span, plot, words=first)]
        panels.append(alt.layer(*layers).properties(width=plot, height=height, title=title))
    return alt.vconcat(*panels, spacing=18)


def _margin_axis(width: int, *, labels: bool) -> alt.Axis:
    import altair as alt

    if not labels:
        return alt.Axis(labels=False, ticks=False, grid=False, title=None)
    signed = "datum.value == 0 ? '0' : format(datum.value, '+.3~f')"
    return alt.Axis(labelExpr=signed, tickCount=8 if width >= WIDE else 4, grid=False, labelFlush=False, title="margin")


def _ticks(top: int) -> list[int]:
    """Zero and one or two round counts up to the top; Vega would also write halves of items."""
    step = next(size * 10**power for power in range(20) for size in (1, 2, 5) if size * 10**power * 2.5 >= top)
    return list(range(0, top + 1, step))


def _zero(span: tuple[float, float], plot: int, *, words: bool) -> list[alt.Chart]:
    """The line at zero and what its sides mean; a side too narrow for its word goes without."""
    import altair as alt

    datum = alt.Chart(alt.InlineData(values=[{"zero": 0}])).encode(x=alt.X("zero:Q"))
    layers = [datum.mark_rule(color=INK, strokeWidth=1.5)]
    room = (span[1] - span[0]) * 56 / plot
    sides: list[tuple[str, Literal["left", "right"], int, float]]
    sides = [("fails", "right", -6, -span[0]), ("passes", "left", 6, span[1])]
    for word, align, dx, there in sides:
        if words and there > room:
            mark = datum.mark_text(align=align, dx=dx, fontSize=12, opacity=0.8)
            layers.append(mark.encode(text=alt.value(word), y=alt.value(5)))
    return layers


def _side(low: float, high: float) -> str:
    return BLUE if low >= 0 else ORANGE if high <= 0 else GREY


# --- SVG ---------------------------------------------------------------------------------------------------------------


CONFIG: dict[str, Any] = {
    "background": None,
    "padding": {"left": 2, "right": 8, "top": 4, "bottom": 2},
    "view": {"stroke": None},
    "text": {"color": INK},
    "title": {"color": INK, "fontWeight": 600, "fontSize": 13, "offset": 8},
    "axis": {
        **{f"{part}Color": INK for part in ("label", "title", "tick", "domain", "grid")},
        "labelOpacity": 0.8,
        "tickOpacity": 0.4,
        "domainOpacity": 0.5,
        "gridOpacity": 0.15,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelPadding": 4,
    },
}
"""One look for every chart; a theme that somebody enabled in Altair does not reach it."""


def svg(chart: ChartType, title: str, description: str, *, key: str = "") -> str:
    """The chart as an SVG element for a page: named for screen readers, no background, ids that no other chart has.

    `key` keeps two charts of the same data and title apart. Nothing is ever fetched: a chart that names a URL is an error.
    """
    import vl_convert

    title, description = _drawable(title), _drawable(description)
    spec = _drawable(chart.to_dict(validate=False))  # vl-convert refuses what it cannot draw; checking twice is slow
    spec["config"] = CONFIG
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    head, _, rest = drawn.partition(">")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    if not size:
        raise ValueError("vl-convert returned something that is not an SVG with a size")
    width, height = size.groups()
    rest = re.sub(r'^<rect width="[^"]*" height="[^"]*" fill="[^"]*"\s*/>', "", rest)
    # One picture with one name: the roles and labels of its hundred parts would only be read out in between.
    rest = _in_tags(r' (?:role|aria-[a-z]+|pointer-events)="[^"]*"', lambda _: "", rest)
    # Vega numbers its ids through the life of the process: numbered again, under a name made of the content.
    order: dict[str, int] = {}
    number: Callable[[re.Match[str]], str] = lambda m: f"{m[1]}{order.setdefault(m[2], len(order))}{m[3]}"  # noqa: E731
    rest = _in_tags(r'( id="|url\(#)([^")]+)("|\))', number, rest)
    name = "c" + hashlib.sha256("\0".join([key, title, description, rest]).encode()).hexdigest()[:10]
    rest = _in_tags(r'( id="|url\(#)([^")]+)("|\))', lambda m: f"{m[1]}{name}-{m[2]}{m[3]}", rest)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(description)}</desc>{rest}'
    )


class Drawn(msgspec.Struct, frozen=True):
    """One chart at two widths; the page shows the one that fits."""

    wide: str
    narrow: str


def at_both_widths(title: str, words: str, draw: Callable[[int], ChartType]) -> Drawn:
    wide, narrow = (svg(draw(width), title, words, key=str(width)) for width in (WIDE, NARROW))
    return Drawn(wide, narrow)


ALONE_INK, ALONE_PAPER, ALONE_EDGE = "#1c2126", "#ffffff", 16


def alone(chart: ChartType, title: str, description: str) -> str:
    """The chart as an SVG file of its own: with a ground and an ink, because no page lends it any."""
    drawn = svg(chart, title, description, key="alone")
    head, _, rest = drawn.partition(">")
    width, height = (float(re.search(rf' {side}="([\d.]+)"', head)[1]) for side in ("width", "height"))  # type: ignore[index]
    edge = ALONE_EDGE
    box = f"{-edge} {-edge} {width + 2 * edge:g} {height + 2 * edge:g}"
    head = re.sub(r' width="[^"]*" height="[^"]*" viewBox="[^"]*"', "", head)
    ground = f'<rect x="{-edge}" y="{-edge}" width="100%" height="100%" fill="{ALONE_PAPER}"/>'
    words, end, marks = rest.partition("</desc>")
    marks = _in_tags(r"currentColor", lambda _: ALONE_INK, marks)
    size = f'width="{width + 2 * edge:g}" height="{height + 2 * edge:g}" viewBox="{box}"'
    return f"{head} {size}>{words}{end}{ground}{marks}\n"


def png(chart: ChartType, title: str, description: str, scale: float = 2.0) -> bytes:
    import vl_convert

    drawn: bytes = vl_convert.svg_to_png(alone(chart, title, description), scale=scale)
    return drawn


def _in_tags(pattern: str, change: Callable[[re.Match[str]], str], text: str) -> str:
    """Changes markup only: a tier may be called `id="x"`."""
    return re.sub(r"<[^>]*>", lambda tag: re.sub(pattern, change, tag[0]), text)


def _drawable(value: Any) -> Any:
    """Characters that XML has no place for, spelled out: at the first of them vl-convert ends the whole process."""
    if isinstance(value, str):
        return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", lambda m: f"\\u{ord(m[0]):04x}", value)
    if isinstance(value, dict):
        return {_drawable(key): _drawable(inner) for key, inner in value.items()}
    return [_drawable(inner) for inner in value] if isinstance(value, list | tuple) else value
