"""Points and the sizes of their labels -> a place for every label that covers nothing, in pixels. Pure; draws nothing.

Fonts differ from reader to reader, so the size of a text is counted in letters of a wide font: what fits here fits anywhere.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Align = Literal["left", "center", "right"]
LETTER, HEIGHT = 7.4, 15.0
"""Of a text at 12 px."""
NEAR, FAR = 9.0, (9.0, 17.0, 26.0, 37.0, 50.0, 66.0)
"""Distances from the point; the near ones need no line between the label and its point."""


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class Spot(NamedTuple):
    """Where a text stands: the point of its alignment, at half its height; `far` asks for a line to the point."""

    x: float
    y: float
    align: Align
    far: bool


def width_of(text: str, size: float = 12.0) -> float:
    """Pixels that a text takes at most; letters of East Asian scripts and emoji are about twice as wide."""
    letters = sum(
        0.0 if unicodedata.combining(c) else 1.8 if unicodedata.east_asian_width(c) in "WF" else 1.0 for c in text
    )
    return letters * LETTER * size / 12.0


def shortened(text: str, pixels: float) -> str:
    """The text, or its beginning and an ellipsis, no wider than `pixels`."""
    if width_of(text) <= pixels:
        return text
    kept = text
    while kept and width_of(kept + "…") > pixels:
        kept = kept[:-1]
    return kept.rstrip(" _-.") + "…"


def place(
    points: Sequence[tuple[float, float]],
    widths: Sequence[float],
    frame: tuple[float, float],
    marks: Iterable[Box] = (),
    faint: Iterable[Box] = (),
    farthest: float = FAR[-1],
) -> list[Spot] | None:
    """A spot for each label inside `frame`, off all `marks` and off each other; None where there is no room for all.

    `faint` is what a label may cover where nothing better is left; no label is farther than `farthest` from its point.
    """
    solid, soft = list(marks), list(faint)
    crowd = [sum(math.hypot(x - u, y - v) < 60 for u, v in points) for x, y in points]
    order = sorted(range(len(points)), key=lambda i: (-crowd[i], -widths[i], i))
    spots: dict[int, Spot] = {}
    for i in order:
        best: tuple[float, Spot, Box] | None = None
        for cost, spot in _candidates(points[i], farthest):
            box = _box(spot, widths[i])
            if box.left < 0 or box.top < 0 or box.right > frame[0] or box.bottom > frame[1]:
                continue
            if any(box.covers(other) for other in solid):
                continue
            cost += sum(14.0 for other in soft if box.covers(other))
            cost += 20.0 * _crossed(points[i], spot, solid) if spot.far else 0.0
            if best is None or cost < best[0]:
                best = cost, spot, box
        if best is None:
            return None
        spots[i] = best[1]
        solid.append(best[2])
    return [spots[i] for i in range(len(points))]


def _crossed(point: tuple[float, float], spot: Spot, solid: Sequence[Box]) -> int:
    """Marks and labels under the line from a point to its label, those around the point itself left out."""
    x, y = point
    way = [(x + (spot.x - x) * k / 8, y + (spot.y - y) * k / 8) for k in range(1, 8)]
    others = [box for box in solid if not (box.left <= x <= box.right and box.top <= y <= box.bottom)]
    return sum(any(box.left <= u <= box.right and box.top <= v <= box.bottom for u, v in way) for box in others)


def _candidates(point: tuple[float, float], farthest: float) -> Iterable[tuple[float, Spot]]:
    """Right of the point first, then left, above, below and between; the farther the dearer."""
    x, y = point
    sides: list[tuple[float, float, Align]] = [
        (1.0, 0.0, "left"),
        (-1.0, 0.0, "right"),
        (0.0, -1.3, "center"),
        (0.0, 1.3, "center"),
        (0.8, -0.9, "left"),
        (0.8, 0.9, "left"),
        (-0.8, -0.9, "right"),
        (-0.8, 0.9, "right"),
    ]
    for distance in (one for one in FAR if one <= farthest):
        for rank, (dx, dy, align) in enumerate(sides):
            yield distance + rank * 0.6, Spot(x + dx * distance, y + dy * distance, align, distance > NEAR)


def _box(spot: Spot, width: float) -> Box:
    left = spot.x - {"left": 0.0, "center": width / 2, "right": width}[spot.align]
    return Box(left, spot.y - HEIGHT / 2, left + width, spot.y + HEIGHT / 2)


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved as little as needed to lie `gap` from each other within [low, high], in the same order."""
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    moved = [min(max(places[i], low), high) for i in order]
    for k in range(1, len(moved)):
        moved[k] = max(moved[k], moved[k - 1] + gap)
    if moved and moved[-1] > high:
        moved[-1] = high
        for k in range(len(moved) - 2, -1, -1):
            moved[k] = min(moved[k], moved[k + 1] - gap)
    result = [0.0] * len(places)
    for k, i in enumerate(order):
        result[i] = moved[k]
    return result
