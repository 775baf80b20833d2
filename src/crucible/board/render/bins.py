"""Margins by tier -> equal bins with an edge at zero, small whatever the number of items. Draws nothing.

A bin holds what is above its lower edge and up to its upper edge. So a margin of exactly zero, which does not pass, is counted
on the failing side of the line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

WIDTHS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
MOST = 48
"""Bars: as many as a phone can show apart."""


class Histogram(msgspec.Struct, frozen=True):
    """`counts[tier][i]` items lie in (edges[i], edges[i + 1]]; no edges where there are no items."""

    edges: Sequence[float]
    counts: Mapping[str, Sequence[int]]


def binned(margins: Mapping[str, Iterable[float]]) -> Histogram:
    """The narrowest of the round widths that needs no more than MOST bins."""
    tiers = {tier: list(values) for tier, values in margins.items()}
    ends = [end for values in tiers.values() if values for end in (min(values), max(values))]
    if not ends:
        return Histogram((), dict.fromkeys(tiers, ()))
    for tier, values in tiers.items():
        if odd := [value for value in values if not math.isfinite(value)]:
            raise ValueError(f"{len(odd)} margins of {tier} are not numbers, the first is {odd[0]}")
    low, high = min(ends), max(ends)
    width = next((w for w in WIDTHS if math.ceil(high / w) - math.ceil(low / w) + 1 <= MOST), (high - low) / (MOST - 2))
    first, last = math.ceil(low / width), math.ceil(high / width)
    counts = {}
    for tier, values in tiers.items():
        found = Counter(math.ceil(value / width) for value in values)
        counts[tier] = tuple(found[place] for place in range(first, last + 1))
    return Histogram(tuple(round(place * width, 10) for place in range(first - 1, last + 1)), counts)
