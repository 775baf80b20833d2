"""The conditions and seeds of a sweep -> a page that says what was tried, which came out best, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from crucible.board.plots.curves import Curve, losses
from crucible.board.plots.truths import Condition as Line
from crucible.board.plots.truths import by_condition
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong, whole
from crucible.board.render.page import count, share, visible
from crucible.board.render.reports.summary_run import Stretch
from crucible.board.render.reports.words import (
    NAMES,
    Fact,
    Finding,
    facts,
    findings_section,
    many,
    mean,
    t_interval,
    tripped,
)
from crucible.kernel.stats import Summary


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the seeds of one condition; null where a truth is not configured."""

    name: str
    steps: int | None
    seeds: Sequence[int]
    frozen_tier3: Summary | None
    frozen_overall: Summary | None
    organic_holdout: Summary | None
    tiers: Mapping[str, Summary]
    """Pass rates by tier of the frozen set, where the runs' scoreboards are there."""
    loss: Sequence[Stretch]
    """The mean over the seeds."""
    checkpoints: Mapping[str, str]
    """Digest by seed."""


class SweepSummary(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    kind: str
    encoder: str
    train: str
    conditions: Sequence[Condition]
    base: Mapping[str, float | None]
    base_tiers: Mapping[str, float | None]
    recommended: str | None
    sentence: str | None
    """The RECOMMENDATION; null where one truth is missing."""
    groups: Mapping[str, int]
    findings: Sequence[Finding]
    overrides: Sequence[str]
    missing: Sequence[str]
    """Runs that are not done."""
    notes: Sequence[str]
    facts: Sequence[Fact]


def outline(report: SweepSummary) -> Outline:
    sections = [Section("Both truths, by condition", picture=_picture(report), tables=[_table(report)])]
    if report.sentence:
        sections.append(Section("The recommendation", said=[said(name(report.sentence))]))
    if any(one.loss for one in report.conditions):
        sections.append(Section("Loss", picture=_loss(report)))
    sections.append(findings_section(report.findings, report.overrides))
    sections.append(
        Section(
            "How it was measured", points=_measured(), folded=[("The digest of every checkpoint", _checkpoints(report))]
        )
    )
    return Outline(
        kind="sweep summary",
        title=report.title,
        lede=_lede(report),
        numbers=_numbers(report),
        notes=[said(name(note)) for note in report.notes],
        sections=sections,
        facts=facts(report.facts),
        warning=said(strong("Not every run is done: "), name(", ".join(report.missing))) if report.missing else (),
    )


def _best(report: SweepSummary) -> Condition | None:
    named = next((one for one in report.conditions if one.name == report.recommended), None)
    measured = [one for one in report.conditions if one.organic_holdout]
    return named or max(
        measured, key=lambda one: one.organic_holdout.mean if one.organic_holdout else 0.0, default=None
    )


def _runs(report: SweepSummary) -> int:
    return sum(len(one.seeds) for one in report.conditions)


def _lede(report: SweepSummary) -> list[Sentence]:
    best = _best(report)
    tried = f"{many(len(report.conditions), 'condition')} and {many(_runs(report), 'run')}"
    if best is None:
        return [
            said(f"A {report.kind} sweep of {tried}; the organic holdout was not measured, so none is recommended.")
        ]
    numbers = (
        f"{mean(best.frozen_tier3)} of frozen tier 3 (base {share(report.base.get('frozen_tier3'))}) and "
        f"{mean(best.organic_holdout)} of the organic holdout (base {share(report.base.get('organic_holdout'))})"
    )
    what = "is the recommended condition" if best.name == report.recommended else "is best on the organic holdout"
    return [
        said(f"Of {tried}, ", name(best.name, important=True), f" {what}: ", strong(numbers), "."),
        said(
            "Trained was ",
            name(report.encoder),
            f" ({'a projection head' if report.train == 'head' else 'all weights'}) on "
            f"{many(sum(report.groups.values()), 'bundle')}.",
        ),
    ]


def _numbers(report: SweepSummary) -> list[Number]:
    best, numbers = _best(report), []
    if best:
        for label, value, base in (
            ("Frozen tier 3", best.frozen_tier3, report.base.get("frozen_tier3")),
            ("Organic holdout", best.organic_holdout, report.base.get("organic_holdout")),
        ):
            numbers.append(Number(label, mean(value), said(f"base {share(base)}; 95% (t) ", whole(t_interval(value)))))
    numbers.append(Number("Runs", count(_runs(report)), said(f"{many(len(report.conditions), 'condition')}")))
    numbers.append(Number("Guardrails", count(len(report.findings)), said(tripped(report.findings) or "none tripped")))
    return numbers


def _interval(value: Summary | None) -> tuple[float, float] | None:
    return value.ci95_t if value else None


def _picture(report: SweepSummary) -> Picture:
    lines = [
        Line(
            visible(one.name),
            one.frozen_tier3.mean if one.frozen_tier3 else None,
            _interval(one.frozen_tier3),
            one.organic_holdout.mean if one.organic_holdout else None,
            _interval(one.organic_holdout),
            one.name == report.recommended,
        )
        for one in report.conditions
    ]
    base = report.base.get("frozen_tier3"), report.base.get("organic_holdout")
    words = " ".join(
        f"{line.name}: frozen tier 3 {share(line.frozen)}, organic holdout {share(line.organic)}"
        f"{', recommended' if line.chosen else ''}."
        for line in lines
    )
    words += f" Base encoder: {share(base[0])} and {share(base[1])}."
    caption = (
        "Means over seeds; lines are 95% intervals by Student's t, the dashes are the base encoder. "
        "The recommended condition is in bold."
    )
    return Picture("Both truths, by condition", words, lambda width: by_condition(lines, base, width), said(caption))


def _table(report: SweepSummary) -> Table:
    tiers = [
        tier for tier in NAMES if any(tier in one.tiers for one in report.conditions) and tier != "tier3_adversarial"
    ]
    columns = [
        "condition",
        "seeds",
        "steps",
        "frozen tier 3",
        "95% (t)",
        "organic holdout",
        "95% (t)",
        *(NAMES[t] for t in tiers),
        "all tiers",
    ]
    rows = [
        [
            one.name,
            str(len(one.seeds)),
            count(one.steps),
            mean(one.frozen_tier3),
            t_interval(one.frozen_tier3),
            mean(one.organic_holdout),
            t_interval(one.organic_holdout),
            *(mean(one.tiers.get(tier)) for tier in tiers),
            mean(one.frozen_overall),
        ]
        for one in report.conditions
    ]
    base = report.base
    rows.append(
        [
            "base encoder",
            "",
            "",
            share(base.get("frozen_tier3")),
            "",
            share(base.get("organic_holdout")),
            "",
            *(share(report.base_tiers.get(tier)) for tier in tiers),
            share(base.get("frozen_overall")),
        ]
    )
    marked = frozenset(place for place, one in enumerate(report.conditions) if one.name == report.recommended)
    return Table("Pass rates: means over seeds with the 95% interval by Student's t", columns, rows, marked=marked)


def _loss(report: SweepSummary) -> Picture:
    best = _best(report)
    curves = [
        Curve(visible(one.name), one.loss, best is not None and one.name == best.name)
        for one in report.conditions
        if one.loss
    ]
    words = " ".join(f"{curve.name}: from {curve.points[0][1]:.3f} to {curve.points[-1][1]:.3f}." for curve in curves)
    told = said("One line a condition, the mean over its seeds.")
    caption = told + said(" In colour: ", name(best.name), ".") if best and best.loss else told
    return Picture("Loss by training step", words, lambda width: losses(curves, width), caption)


def _checkpoints(report: SweepSummary) -> Table:
    rows = [[one.name, seed, digest] for one in report.conditions for seed, digest in one.checkpoints.items()]
    return Table("Trained models", ["condition", "seed", "digest"], rows, left=3)


def _measured() -> list[Sentence]:
    return [
        said(
            "Every seed is a training run of its own, from the same data; the interval over seeds says what "
            "another seed would give, not what other items would."
        ),
        said(
            "With three seeds a 95% interval by Student's t is 4.3 standard errors wide on each side. One seed "
            "has none: a dash."
        ),
        said(
            "Frozen tier 3 is what the model must not lose, the organic holdout what it has not seen. Both are "
            "always shown, because either alone can be bought with the other."
        ),
    ]
