"""Margins before and after training, by tier -> a page on whether the model passes by more, and whether its worst got worse."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from crucible.board.plots.margins import Panel, paired_histograms
from crucible.board.render.bins import Histogram
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong
from crucible.board.render.page import count, share, signed, visible
from crucible.board.render.reports.words import Fact, facts

SMALL = 50
"""Below this many items Q10 is optimistic."""


class Margins(msgspec.Struct, frozen=True):
    """One model on one group of items."""

    passed: int
    pass_rate: float
    q10: float
    q50: float
    q90: float


class Group(msgspec.Struct, frozen=True):
    """A tier of the frozen set, or the organic holdout; `whole` marks all tiers together, which get no panel."""

    name: str
    n: int
    base: Margins
    trained: Margins
    whole: bool = False


class MarginReport(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    subject: str
    encoder: str
    groups: Sequence[Group]
    histogram: Histogram
    """`counts` has a row `NAME base` and a row `NAME trained` for every group with a panel."""
    tail: Sequence[str]
    """What guardrail G10 said."""
    notes: Sequence[str]
    facts: Sequence[Fact]


def fell(group: Group) -> bool:
    """The pass rate holds but the worst tenth got worse: what G10 looks for."""
    return group.trained.pass_rate >= group.base.pass_rate and group.trained.q10 < group.base.q10 - 1e-6


def outline(report: MarginReport) -> Outline:
    panels = [group for group in report.groups if not group.whole]
    return Outline(
        kind="margin report",
        title=report.title,
        lede=_lede(report),
        numbers=[
            Number(
                f"Median margin, {group.name}",
                signed(group.trained.q50, 3),
                said(
                    f"base {signed(group.base.q50, 3)}; Q10 {signed(group.base.q10, 3)} to "
                    f"{signed(group.trained.q10, 3)}"
                ),
            )
            for group in panels[-2:]
        ],
        notes=[
            *(said(strong("Guardrail G10. "), name(one)) for one in report.tail),
            *(said(name(n)) for n in report.notes),
        ],
        sections=[
            Section(
                "Margins before and after",
                picture=_picture(report, panels),
                folded=[("Every bar as a table", _bins(report, panels))],
            ),
            Section("Quantiles", tables=[_table(report)]),
            Section("How it was measured", points=_measured()),
        ],
        facts=facts(report.facts),
    )


def _lede(report: MarginReport) -> list[Sentence]:
    hardest = next((group for group in report.groups if "tier 3" in group.name), report.groups[0])
    first = said(
        f"On {hardest.name} the median margin moved from {signed(hardest.base.q50, 3)} to ",
        strong(signed(hardest.trained.q50, 3)),
        f", and {share(hardest.trained.pass_rate)} pass (base {share(hardest.base.pass_rate)}).",
    )
    worse = [group.name for group in report.groups if not group.whole and fell(group)]
    if worse:
        listed = " and ".join([", ".join(worse[:-1]), worse[-1]] if len(worse) > 1 else worse)
        second = said("The worst tenth got worse although the pass rate holds: Q10 fell on ", strong(listed), ".")
    else:
        second = said("On no group did the worst tenth get worse while the pass rate held.")
    return [first, second]


def _picture(report: MarginReport, groups: Sequence[Group]) -> Picture:
    counts = report.histogram.counts
    panels = [
        Panel(
            visible(group.name),
            counts[f"{group.name} base"],
            counts[f"{group.name} trained"],
            (group.base.q10, group.base.q50, group.base.q90),
            (group.trained.q10, group.trained.q50, group.trained.q90),
        )
        for group in groups
    ]
    words = " ".join(
        f"{visible(group.name)}: median {signed(group.base.q50, 3)} before and {signed(group.trained.q50, 3)} after, "
        f"10% quantile {signed(group.base.q10, 3)} and {signed(group.trained.q10, 3)}, "
        f"{share(group.base.pass_rate)} and {share(group.trained.pass_rate)} pass."
        for group in groups
    )
    caption = (
        "Bars are the trained model, the outline is the base encoder on the same bundles. Under each panel a "
        "line runs from "
        "Q10 to Q90 with a diamond at the median. To the right of zero a bundle passes. Each panel has a height "
        "scale of its own."
    )
    edges = report.histogram.edges
    return Picture(
        "Margins before and after training", words, lambda width: paired_histograms(edges, panels, width), said(caption)
    )


def _table(report: MarginReport) -> Table:
    columns = [
        "group",
        "bundles",
        "pass rate, base",
        "trained",
        "Q10, base",
        "trained",
        "Q50, base",
        "trained",
        "Q90, base",
        "trained",
    ]
    rows = []
    for group in report.groups:
        base, trained = group.base, group.trained
        rows.append(
            [
                group.name + (f" ({SMALL} or fewer: Q10 is optimistic)" if group.n < SMALL else ""),
                count(group.n),
                share(base.pass_rate),
                share(trained.pass_rate),
                *(signed(value) for q in ("q10", "q50", "q90") for value in (getattr(base, q), getattr(trained, q))),
            ]
        )
    marked = frozenset(place for place, group in enumerate(report.groups) if fell(group))
    caption = (
        "Marked: Q10 fell although the pass rate holds" if marked else "Quantiles of the margins, linear between items"
    )
    return Table(caption, columns, rows, marked=marked)


def _bins(report: MarginReport, groups: Sequence[Group]) -> Table:
    edges, counts = report.histogram.edges, report.histogram.counts
    columns = ["margin above, up to", *(f"{group.name}, {which}" for group in groups for which in ("base", "trained"))]
    rows = [
        [
            f"{signed(low, 3)} to {signed(high, 3)}",
            *(count(counts[f"{group.name} {which}"][place]) for group in groups for which in ("base", "trained")),
        ]
        for place, (low, high) in enumerate(pairwise(edges))
    ]
    return Table("Bundles by margin", columns, rows)


def _measured() -> list[Sentence]:
    return [
        said(
            "The margin of a bundle is the similarity of its positive less that of its most similar negative. "
            "Above zero it passes; a tie at zero does not."
        ),
        said(
            "Q10 is the margin that a tenth of the bundles stay below: the worst case that a pass rate hides. "
            "Quantiles are linear between items, as NumPy takes them."
        ),
        said("Both models were scored on the same bundles; the tiers are those of the frozen set and never move."),
    ]
