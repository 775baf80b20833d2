"""Inline data and the pixel axis of charts whose lines stand one under another. Draws nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crucible.board.charts import INK

if TYPE_CHECKING:
    import altair as alt


def data(values: Sequence[dict[str, Any]]) -> alt.Chart:
    """Values inside the chart: nothing is ever fetched."""
    import altair as alt

    return alt.Chart(alt.InlineData(values=list(values)))


def room(left: float, right: float) -> alt.Chart:
    """A mark that nobody sees and that keeps a chart this wide: readers may have wider letters."""
    import altair as alt

    line = data([{}]).mark_rule(color=INK, opacity=0, strokeWidth=1)
    return line.encode(x=alt.value(left), x2=alt.value(right), y=alt.value(0))


def down(field: str, height: float) -> alt.Y:
    """Pixels from the top. Every layer says that it has no axis: Vega-Lite fails where only some do."""
    import altair as alt

    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[0, height], reverse=True, nice=False), axis=None)
