"""One model's evaluation as plain numbers and texts -> one self-contained HTML page. Computes no statistic of its own.

The page is read from the top: how many bundles pass, where, by what margin, and then the bundles that went worst in full text.
It needs no network and no script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from crucible.board import charts
from crucible.board.render.bins import Histogram
from crucible.board.render.page import between, count, page, share, signed, visible

if TYPE_CHECKING:
    from altair.typing import ChartType

BESIDE = 5
"""Negatives of a card that are in sight; the others are there, folded."""


class TierRow(msgspec.Struct, frozen=True):
    """The statistics of one tier, or of all; null where it is empty, because a missing number is not zero."""

    name: str
    n: int
    correct: int
    pass_rate: float | None
    interval: tuple[float, float] | None
    """Wilson, 95%."""
    mean_margin: float | None
    median: float | None
    q10: float | None
    q90: float | None
    mean_rank: float | None
    mean_rank_pessimistic: float | None = None
    """Ties counted against the positive."""
    n_ties: int = 0


class Negative(msgspec.Struct, frozen=True):
    text: str
    similarity: float


class Bundle(msgspec.Struct, frozen=True):
    """One bundle in full text, with what the model made of it."""

    id: str
    tier: str
    margin: float
    rank: int
    anchor: str
    positive: str
    positive_similarity: float
    negatives: Sequence[Negative]


class Encoding(msgspec.Struct, frozen=True):
    """Where the vectors came from."""

    unique_texts: int
    cached: int
    encoded: int


class EvalReport(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    model_id: str
    model_digest: str
    eval_set: str
    version: str
    fingerprint: str
    """The whole line, `EVAL_FINGERPRINT: …`."""
    timestamp: str
    checkpoint_path: str
    overall: TierRow
    tiers: Sequence[TierRow]
    """From the easiest to the hardest."""
    histogram: Histogram
    worst: Sequence[Bundle]
    """The lowest margin first; at most 20 are useful."""
    encoding: Encoding | None = None
    watermark: str | None = None
    """Why the numbers must not be used as a result; said at the top and in the title; printed pages point there."""
    notes: Sequence[str] = ()


def render(report: EvalReport) -> str:
    return page(
        "eval_report.html",
        report=report,
        rows=[report.overall, *report.tiers],
        weakest=_weakest(report.tiers),
        bars=_bars(report),
        histogram=_histogram(report.histogram),
        bins=_bins(report.histogram),
        cards=[_Card(bundle, *_by_outcome(bundle)) for bundle in report.worst],
        beside=BESIDE,
    )


# --- charts ------------------------------------------------------------------------------------------------------------


class Drawn(msgspec.Struct, frozen=True):
    """One chart at two widths; the page shows the one that fits."""

    wide: str
    narrow: str


def _both_widths(title: str, words: str, draw: Callable[[int], ChartType]) -> Drawn:
    wide, narrow = (charts.svg(draw(width), title, words, key=str(width)) for width in (charts.WIDE, charts.NARROW))
    return Drawn(wide, narrow)


def _bars(report: EvalReport) -> Drawn | None:
    if not report.overall.n:
        return None
    rates = [_rate(report.overall, of_all=True), *(_rate(row) for row in report.tiers)]
    return _both_widths("Pass rate by tier", _bars_in_words(rates), lambda width: charts.tier_bars(rates, width))


def _rate(row: TierRow, *, of_all: bool = False) -> charts.TierRate:
    return charts.TierRate(visible(row.name), row.n, row.pass_rate, row.interval, of_all)


def _bars_in_words(rates: Sequence[charts.TierRate]) -> str:
    """The text alternative says what the bars say, number by number."""
    return " ".join(
        f"{rate.name}: {share(rate.rate)} of {count(rate.n)} pass, 95% interval {between(rate.interval)}."
        if rate.n
        else f"{rate.name}: empty."
        for rate in rates
    )


def _histogram(histogram: Histogram) -> Drawn | None:
    if not any(map(sum, histogram.counts.values())):
        return None
    counts = {visible(tier): row for tier, row in histogram.counts.items()}
    return _both_widths(
        "Margins by tier",
        _histogram_in_words(histogram),
        lambda width: charts.margin_histogram(histogram.edges, counts, width),
    )


def _histogram_in_words(histogram: Histogram) -> str:
    """Where the bulk lies; every count is in the table below the chart."""
    said = []
    for tier, row in histogram.counts.items():
        if not sum(row):
            said.append(f"{visible(tier)}: empty.")
            continue
        filled = [place for place, number in enumerate(row) if number]
        top = max(filled, key=lambda place: row[place])
        low, high = histogram.edges[filled[0]], histogram.edges[filled[-1] + 1]
        said.append(
            f"{visible(tier)}: {count(sum(row))} margins between {signed(low, 2)} and {signed(high, 2)}, "
            f"most often from {signed(histogram.edges[top], 2)} to {signed(histogram.edges[top + 1], 2)}."
        )
    return " ".join(["A bundle passes where its margin is above zero.", *said])


class _Bin(msgspec.Struct, frozen=True):
    low: float
    high: float
    counts: Sequence[int]


def _bins(histogram: Histogram) -> list[_Bin]:
    edges, rows = histogram.edges, list(histogram.counts.values())
    return [_Bin(edges[i], edges[i + 1], [row[i] for row in rows]) for i in range(len(edges) - 1)]


# --- words -------------------------------------------------------------------------------------------------------------


def _weakest(tiers: Sequence[TierRow]) -> TierRow | None:
    """The tier with the lowest pass rate; of equals the hardest."""
    measured = [row for row in tiers if row.pass_rate is not None]
    return min(reversed(measured), key=lambda row: row.pass_rate or 0.0, default=None)


class _Card(msgspec.Struct, frozen=True):
    bundle: Bundle
    negatives: Sequence[tuple[str, Negative]]
    """With what each did to the positive, in words; the most similar first."""
    beaten: int
    tied: int


def _by_outcome(bundle: Bundle) -> tuple[list[tuple[str, Negative]], int, int]:
    nearest = sorted(bundle.negatives, key=lambda negative: -negative.similarity)
    said = [(_outcome(negative.similarity, bundle.positive_similarity), negative) for negative in nearest]
    outcomes = [outcome for outcome, _ in said]
    return said, outcomes.count("beats"), outcomes.count("ties")


def _outcome(similarity: float, positive: float) -> str:
    return "beats" if similarity > positive else "ties" if similarity == positive else "below"
