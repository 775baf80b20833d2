"""Conditions on two truths -> a scatter with spread, frontier, knee, base encoder and floors, every label apart. Decides nothing.

A filled circle is on the frontier, a hollow one is dominated, a diamond is the knee, a triangle the base encoder: the colours
only repeat it. Where names find no room, numbers stand in their place, and the table beside the chart has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from crucible.board.charts import BLUE, GREY, INK, ORANGE, WIDE, percent
from crucible.board.plots.labels import HEIGHT, Box, Spot, place, shortened, width_of
from crucible.board.plots.rows import data as inline

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

X, Y = "frozen_tier3", "organic_holdout"
TITLES = {X: "passes frozen tier 3 (retention)", Y: "passes organic holdout (generalisation)"}
ROOM = 1.7
"""The base encoder or a floor may stretch an axis this much; farther out it stands at the edge."""
LABELLED = 40
"""More points than this and only those on the frontier have a label."""


class Mark(NamedTuple):
    """One condition: means over seeds, standard errors (None for one seed), and the seeds themselves."""

    number: int
    name: str
    x: float
    y: float
    x_se: float | None
    y_se: float | None
    seeds: Sequence[tuple[float, float]]
    on_frontier: bool
    knee: bool


class _Plane(NamedTuple):
    """Shares <-> pixels of the plot; both ways, because labels are placed in pixels and drawn in shares."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int
    height: int

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0]) * self.width
        return across, (self.y[1] - y) / (self.y[1] - self.y[0]) * self.height

    def share(self, across: float, down: float) -> tuple[float, float]:
        x = self.x[0] + across / self.width * (self.x[1] - self.x[0])
        return x, self.y[1] - down / self.height * (self.y[1] - self.y[0])


class _Base(NamedTuple):
    x: float
    y: float
    label: str
    shape: str


def scatter(
    marks: Sequence[Mark], base: tuple[float, float] | None, floors: Mapping[str, float], width: int = WIDE
) -> ChartType:
    import altair as alt

    wide = width >= WIDE
    plane = _plane(marks, base, floors, (width - 72, 400) if wide else (width - 78, 320))
    at_base = _base(plane, base, wide) if base else None
    shown_floors = {name: value for name, value in floors.items() if _inside(value, plane, name)}
    layers = [
        *_floors(plane, shown_floors),
        *_frontier(marks),
        *_spread(marks),
        *_points(marks, plane, wide),
        *([_base_mark(at_base)] if at_base else []),
        *_labels(marks, at_base, plane, shown_floors, wide),
    ]
    return alt.layer(*layers).properties(width=plane.width, height=plane.height)


# --- where things are --------------------------------------------------------------------------------------------------


def _plane(
    marks: Sequence[Mark],
    base: tuple[float, float] | None,
    floors: Mapping[str, float],
    size: tuple[int, int],
) -> _Plane:
    xs = [x for m in marks for x in (m.x - (m.x_se or 0), m.x + (m.x_se or 0), *(s[0] for s in m.seeds))]
    ys = [y for m in marks for y in (m.y - (m.y_se or 0), m.y + (m.y_se or 0), *(s[1] for s in m.seeds))]
    more_x = ([base[0]] if base else []) + ([floors[X]] if X in floors else [])
    more_y = ([base[1]] if base else []) + ([floors[Y]] if Y in floors else [])
    return _Plane(_domain(xs, more_x), _domain(ys, more_y), *size)


def _domain(values: Sequence[float], more: Sequence[float]) -> tuple[float, float]:
    """Around the conditions, and around what else is near enough not to squeeze them; one point has nothing to squeeze."""
    low, high = min(values), max(values)
    span, alone = max(high - low, 0.02), high - low < 1e-9
    for one in more:
        if alone or max(high, one) - min(low, one) <= ROOM * span:
            low, high = min(low, one), max(high, one)
    edge = max(high - low, 0.02) * 0.09
    return low - edge, high + edge


def _inside(value: float, plane: _Plane, name: str) -> bool:
    low, high = plane.x if name == X else plane.y
    return low <= value <= high


def _base(plane: _Plane, base: tuple[float, float], wide: bool) -> _Base:
    """On the chart, or at its edge with the numbers and a triangle that points to where it is."""
    across, down = plane.pixel(*base)
    edge = 8.0
    kept = min(max(across, edge), plane.width - edge), min(max(down, edge), plane.height - edge)
    off_x, off_y = across - kept[0], down - kept[1]
    if abs(off_x) < edge and abs(off_y) < edge:
        return _Base(*base, "base encoder", "triangle-up")
    sideways: Literal["triangle-left", "triangle-right"] = "triangle-left" if off_x < 0 else "triangle-right"
    shape = sideways if abs(off_x) >= abs(off_y) else "triangle-down" if off_y > 0 else "triangle-up"
    said = (
        f"{percent(base[0])} frozen, {percent(base[1])} organic" if wide else f"{percent(base[0])} / {percent(base[1])}"
    )
    return _Base(*plane.share(*kept), f"base, off the chart: {said}" if wide else f"base {said}", shape)


# --- marks -------------------------------------------------------------------------------------------------------------


def _axes(plane: _Plane, wide: bool) -> tuple[alt.X, alt.Y]:
    import altair as alt

    def axis(title: str, domain: tuple[float, float], ticks: int) -> alt.Axis:
        # One decimal where the axis is so short that whole percents would repeat.
        digits = ".1%" if domain[1] - domain[0] < 0.04 else ".0%"
        return alt.Axis(
            title=title, format=digits, tickCount=ticks, grid=True, labelFlush=False, domain=False, titlePadding=8
        )

    x = axis(TITLES[X], plane.x, 8 if wide else 4)
    y = axis(TITLES[Y], plane.y, 7 if wide else 5)
    across = alt.Scale(domain=plane.x, nice=False, zero=False)
    down = alt.Scale(domain=plane.y, nice=False, zero=False)
    return alt.X("x:Q", scale=across, axis=x), alt.Y("y:Q", scale=down, axis=y)


def _points(marks: Sequence[Mark], plane: _Plane, wide: bool) -> list[alt.Chart]:
    x, y = _axes(plane, wide)
    drawn = []
    kinds = (
        ([m for m in marks if not m.on_frontier], "circle", GREY, 52, False),
        ([m for m in marks if m.on_frontier and not m.knee], "circle", BLUE, 62, True),
        ([m for m in marks if m.knee], "diamond", BLUE, 170, True),
    )
    for chosen, shape, colour, size, filled in kinds:
        data = inline([{"x": m.x, "y": m.y} for m in chosen])
        point = data.mark_point(shape=shape, color=colour, size=size, filled=filled, opacity=1, strokeWidth=2)
        drawn.append(point.encode(x=x, y=y))
    return drawn


def _spread(marks: Sequence[Mark]) -> list[alt.Chart]:
    layers = []
    bars = [
        {
            "x": m.x - (m.x_se or 0),
            "x2": m.x + (m.x_se or 0),
            "y": m.y - (m.y_se or 0),
            "y2": m.y + (m.y_se or 0),
            "mx": m.x,
            "my": m.y,
        }
        for m in marks
        if m.x_se is not None and m.y_se is not None
    ]
    if bars:
        rule = inline(bars).mark_rule(color=INK, opacity=0.55, strokeWidth=1.2)
        layers += [rule.encode(x="x:Q", x2="x2:Q", y="my:Q"), rule.encode(x="mx:Q", y="y:Q", y2="y2:Q")]
    for frontier, colour in ((False, GREY), (True, BLUE)):
        seeds = [{"x": x, "y": y} for m in marks for x, y in m.seeds if m.on_frontier == frontier and len(m.seeds) > 1]
        if seeds:
            layers.append(inline(seeds).mark_circle(color=colour, size=12, opacity=0.7).encode(x="x:Q", y="y:Q"))
    return layers


def _frontier(marks: Sequence[Mark]) -> list[alt.Chart]:
    line = sorted({(m.x, m.y) for m in marks if m.on_frontier})
    if len(line) < 2:
        return []
    values = [{"x": x, "y": y, "order": n} for n, (x, y) in enumerate(line)]
    mark = inline(values).mark_line(color=BLUE, strokeWidth=1.5, opacity=0.8)
    return [mark.encode(x="x:Q", y="y:Q", order="order:Q")]


def _base_mark(at: _Base) -> alt.Chart:
    mark = inline([{"x": at.x, "y": at.y}]).mark_point(shape=at.shape, color=ORANGE, size=75, filled=True, opacity=1)
    return mark.encode(x="x:Q", y="y:Q")


def _floors(plane: _Plane, floors: Mapping[str, float]) -> list[alt.Chart]:
    layers = []
    for name, value in floors.items():
        rule = inline([{"at": value}]).mark_rule(color=INK, strokeDash=[5, 4], opacity=0.8)
        layers.append(rule.encode(x="at:Q") if name == X else rule.encode(y="at:Q"))
        words = inline([{"t": _floor_words(value)}]).mark_text(align="left", fontSize=12, opacity=0.8, dx=5)
        box = _floor_box(plane, name, value)
        x, y = plane.share(box.left, (box.top + box.bottom) / 2)
        layers.append(words.encode(text="t:N", x=_at(x, "x"), y=_at(y, "y")))
    return layers


def _floor_words(value: float) -> str:
    return f"floor {percent(value)}"


def _floor_box(plane: _Plane, name: str, value: float) -> Box:
    """Beside the line, at its upper or right end, inside the plot."""
    width = width_of(_floor_words(value)) + 6
    if name == X:
        across = min(plane.pixel(value, plane.y[1])[0], plane.width - width)
        return Box(across, 0, across + width, HEIGHT)
    down = max(plane.pixel(plane.x[1], value)[1] - HEIGHT - 2, 0)
    return Box(plane.width - width, down, plane.width, down + HEIGHT)


def _line(plane: _Plane, name: str, value: float) -> Box:
    across, down = plane.pixel(value, value)
    return Box(across, 0, across, plane.height) if name == X else Box(0, down, plane.width, down)


def _at(value: float, side: str) -> Any:
    import altair as alt

    return alt.XDatum(value) if side == "x" else alt.YDatum(value)


# --- labels ------------------------------------------------------------------------------------------------------------


class _Label(NamedTuple):
    x: float
    y: float
    text: str
    bold: bool


def _labels(
    marks: Sequence[Mark], base: _Base | None, plane: _Plane, floors: Mapping[str, float], wide: bool
) -> list[alt.Chart]:
    solid = [_around(plane.pixel(m.x, m.y), 9 if m.knee else 6) for m in marks]
    solid += [_around(plane.pixel(base.x, base.y), 7)] if base else []
    solid += [_floor_box(plane, name, value) for name, value in floors.items()]
    faint = [_around(plane.pixel(x, y), 2) for m in marks for x, y in m.seeds]
    faint += [box for m in marks for box in _bars(plane, m)]
    faint += [_line(plane, name, value) for name, value in floors.items()]
    reach = 37.0 if wide else 17.0
    for mode, farthest in (
        ("names", reach),
        ("some names", reach),
        ("numbers", 66.0),
        ("frontier numbers", 66.0),
        ("none", 66.0),
    ):
        wanted = _wanted(marks, base, plane, mode, 200 if wide else 132)
        points = [plane.pixel(label.x, label.y) for label in wanted]
        widths = [width_of(label.text) * (1.07 if label.bold else 1.0) for label in wanted]
        spots = place(points, widths, (plane.width, plane.height), solid, faint, farthest)
        if spots is not None:
            return _written(wanted, spots, plane)
    return []


def _wanted(marks: Sequence[Mark], base: _Base | None, plane: _Plane, mode: str, most: float) -> list[_Label]:
    """One label for all conditions that stand on the same pixel."""
    groups: dict[tuple[int, int], list[Mark]] = {}
    for mark in marks:
        across, down = plane.pixel(mark.x, mark.y)
        groups.setdefault((round(across / 3), round(down / 3)), []).append(mark)
    found = [_Label(base.x, base.y, base.label, False)] if base else []
    for group in groups.values():
        frontier, knee = any(m.on_frontier for m in group), any(m.knee for m in group)
        if mode == "none" or ((mode == "frontier numbers" or len(marks) > LABELLED) and not frontier):
            continue
        named = mode == "names" or (mode == "some names" and frontier)
        texts = [shortened(m.name, most) if named else str(m.number) for m in group[:3]]
        text = ", ".join(texts) + (f" +{len(group) - 3}" if len(group) > 3 else "") + (" (knee)" if knee else "")
        found.append(_Label(group[0].x, group[0].y, text, knee))
    return found


def _around(pixel: tuple[float, float], reach: float) -> Box:
    return Box(pixel[0] - reach, pixel[1] - reach, pixel[0] + reach, pixel[1] + reach)


def _bars(plane: _Plane, mark: Mark) -> list[Box]:
    if mark.x_se is None or mark.y_se is None:
        return []
    left, down = plane.pixel(mark.x - mark.x_se, mark.y)
    right, _ = plane.pixel(mark.x + mark.x_se, mark.y)
    across, top = plane.pixel(mark.x, mark.y + mark.y_se)
    _, bottom = plane.pixel(mark.x, mark.y - mark.y_se)
    return [Box(left, down - 1, right, down + 1), Box(across - 1, top, across + 1, bottom)]


def _written(labels: Sequence[_Label], spots: Sequence[Spot], plane: _Plane) -> list[alt.Chart]:
    layers, leads = [], []
    for label, spot in zip(labels, spots, strict=True):
        x, y = plane.share(spot.x, spot.y)
        data = inline([{"t": label.text, "x": x, "y": y}])
        text = data.mark_text(align=spot.align, baseline="middle", fontSize=12, fontWeight=600 if label.bold else 400)
        layers.append(text.encode(text="t:N", x="x:Q", y="y:Q"))
        if spot.far:
            leads.append({"x": label.x, "y": label.y, "x2": x, "y2": y})
    if leads:
        rule = inline(leads).mark_rule(color=INK, opacity=0.35, strokeWidth=1)
        layers.insert(0, rule.encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q"))
    return layers
