"""What mining found -> bars of lineups passed, coloured by strength with the acceptance line, and a funnel of what was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crucible.board.charts import BLUE, GREY, INK, ORANGE, PURPLE, WIDE
from crucible.board.plots.labels import width_of
from crucible.board.plots.rows import data, down, room

if TYPE_CHECKING:
    import altair as alt
    from altair.typing import ChartType

COLOURS: Mapping[str, str] = {"ultra": ORANGE, "mid": PURPLE, "low": BLUE, "none": GREY}
SMALL = 12
"""Where the accepted bars are this many times lower than the highest, they are shown again on a scale of their own."""


class Passed(NamedTuple):
    """Candidates that were dangerous in so many lineups."""

    passes: int
    items: int
    strength: str


def passes(bars: Sequence[Passed], accepted_from: int, width: int = WIDE) -> ChartType:
    import altair as alt

    accepted = [bar for bar in bars if bar.passes >= accepted_from]
    top, top_accepted = max((bar.items for bar in bars), default=0), max((bar.items for bar in accepted), default=0)
    panels = [_panel(bars, accepted_from, width, "all candidates tested")]
    if top_accepted and top >= SMALL * top_accepted:
        panels.append(_panel(accepted, None, width, "the accepted ones, enlarged"))
    return alt.vconcat(*panels, spacing=22)


def _panel(bars: Sequence[Passed], line: int | None, width: int, title: str) -> alt.LayerChart:
    """Bars on a linear scale with their counts above; strengths are named over the bars they cover."""
    import altair as alt

    wide = width >= WIDE
    plot, height = (width - 24, 150) if wide else (width - 20, 140)
    first, last = min(bar.passes for bar in bars), max(bar.passes for bar in bars)
    top = max(1, *(bar.items for bar in bars))
    share = plot / (last - first + 1)
    values: list[dict[str, Any]] = [
        {
            "low": bar.passes - 0.42,
            "high": bar.passes + 0.42,
            "middle": bar.passes,
            "items": bar.items,
            "said": _short(bar.items, share),
            "colour": COLOURS[bar.strength],
        }
        for bar in bars
    ]
    span = [first - 0.5, last + 0.5]
    ticks = [bar.passes for bar in bars] if share >= 22 else None
    axis = alt.Axis(
        title="lineups passed",
        values=ticks or alt.Undefined,
        tickMinStep=1,
        format="d",
        grid=False,
        ticks=False,
        labelFlush=False,
    )
    x = alt.X("low:Q", scale=alt.Scale(domain=span, nice=False, zero=False), axis=axis)
    y = alt.Y("items:Q", scale=alt.Scale(domain=[0, top * 1.15], nice=False), axis=None)
    chart = data(values).encode(y=y)
    layers = [
        chart.mark_bar(binSpacing=0).encode(x=x, x2="high:Q", y2=alt.datum(0), color=alt.Color("colour:N", scale=None)),
        *_strengths(bars, span, plot),
    ]
    if share >= 22:
        counts = chart.mark_text(baseline="bottom", dy=-3, fontSize=12 if wide else 11)
        layers.append(counts.encode(x=alt.X("middle:Q"), text="said:N"))
    if line is not None:
        at = data([{"at": line - 0.5, "word": "accepted"}]).encode(x=alt.X("at:Q"))
        layers.append(at.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.4))
        layers.append(
            at.mark_text(align="left", dx=6, fontSize=12, fontWeight=600).encode(text="word:N", y=alt.value(22))
        )
    heading = alt.TitleParams(title, anchor="start", frame="group", offset=6)
    return alt.layer(*layers).properties(width=plot, height=height, title=heading)


def _short(items: int, share: float) -> str:
    """The count, in thousands where it would touch its neighbours."""
    full = f"{items:,}"
    return full if width_of(full, 11.5) <= share - 2 or items < 1000 else f"{items / 1000:.0f}k"


def _strengths(bars: Sequence[Passed], span: Sequence[float], plot: int) -> list[alt.Chart]:
    import altair as alt

    groups: dict[str, list[int]] = {}
    for bar in bars:
        groups.setdefault(bar.strength, []).append(bar.passes)
    layers = []
    for strength, found in groups.items():
        low, high = min(found) - 0.44, max(found) + 0.44
        left, right = ((end - span[0]) / (span[1] - span[0]) * plot for end in (low, high))
        line = data([{}]).mark_rule(color=COLOURS[strength], strokeWidth=3)
        layers.append(line.encode(x=alt.value(left), x2=alt.value(right), y=alt.value(-4)))
        if right - left >= width_of(strength):
            word = data([{"t": strength}]).mark_text(fontSize=12, opacity=0.9)
            layers.append(word.encode(text="t:N", x=alt.value((left + right) / 2), y=alt.value(-14)))
    return layers


class Stage(NamedTuple):
    name: str
    items: int
    note: str


def funnel(stages: Sequence[Stage], width: int = WIDE) -> ChartType:
    """One bar a stage, all on one scale from zero, with the count and what it means beside it."""
    import altair as alt

    wide = width >= WIDE
    names = int(max((width_of(stage.name) for stage in stages), default=0.0)) + 16 if wide else 0
    beside = int(max((width_of(f"{stage.items:,} {stage.note}") for stage in stages), default=0.0)) + 16 if wide else 0
    plot = width - names - beside - 16 if wide else width - 30
    step = 32 if wide else 48
    height, top = step * len(stages), max(1, *(stage.items for stage in stages))
    values: list[dict[str, Any]] = [
        {
            "name": stage.name,
            "items": stage.items,
            "number": f"{stage.items:,}",
            "said": f"{stage.items:,} {stage.note}".strip(),
            "y": n * step + (step / 2 if wide else 32),
            "head": n * step + 11,
        }
        for n, stage in enumerate(stages)
    ]
    x = alt.X("items:Q", scale=alt.Scale(domain=[0, top], nice=False), axis=None)
    lines = data(values).encode(y=down("y", height))
    layers = [lines.mark_bar(height=18 if wide else 14, color=BLUE).encode(x=x, x2=alt.datum(0))]
    if wide:
        layers.append(room(-names, plot + beside))
        layers.append(lines.mark_text(align="left", fontSize=13).encode(text="name:N", x=alt.value(-names)))
        layers.append(lines.mark_text(align="left", fontSize=12).encode(text="said:N", x=alt.value(plot + 10)))
    else:
        words = lines.encode(y=down("head", height))
        layers.append(words.mark_text(align="left", fontSize=12, fontWeight=600).encode(text="name:N", x=alt.value(0)))
        layers.append(words.mark_text(align="right", fontSize=12).encode(text="said:N", x=alt.value(plot)))
    return alt.layer(*layers).properties(width=plot, height=height)
