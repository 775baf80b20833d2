"""One training run -> a page that says what it gained on both truths, what it cost, and what the guardrails think of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from crucible.board.plots.curves import Curve, losses
from crucible.board.plots.truths import Pair, before_and_after
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong, whole
from crucible.board.render.page import between, count, share, signed, visible
from crucible.board.render.reports.words import Fact, Finding, facts, findings_section, many, tripped

Stretch = tuple[float, float, float, float]
"""Of the loss: middle step, mean, lowest, highest."""


class Rate(msgspec.Struct, frozen=True):
    """A share of items, with the 95% Wilson interval; null where there are no items."""

    n: int
    passed: int
    share: float | None
    interval: tuple[float, float] | None
    q10: float | None


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One line: an eval set, or one of its tiers. `p` is McNemar's over the items, null where it was not computed."""

    name: str
    eval_set: str
    headline: bool
    base: Rate | None
    trained: Rate | None
    p: float | None = None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    subject: str
    encoder: str
    train: str
    state: str
    steps: int
    steps_done: int
    seed: int
    groups: Mapping[str, int]
    truths: Sequence[Truth]
    loss: Sequence[Stretch]
    findings: Sequence[Finding]
    overrides: Sequence[str]
    notes: Sequence[str]
    facts: Sequence[Fact]


TRAINED = {"head": "a projection head over the stored vectors of", "full": "all weights of"}


def outline(report: RunSummary) -> Outline:
    sections = []
    if any(_measured_at_all(truth) for truth in report.truths):
        sections.append(Section("Both truths, before and after", picture=_picture(report), tables=[_table(report)]))
    if report.loss:
        sections.append(Section("Loss", picture=_loss(report)))
    sections.append(findings_section(report.findings, report.overrides))
    sections.append(Section("What it was trained on", tables=[_data(report)]))
    sections.append(Section("How it was measured", points=_measured()))
    return Outline(
        kind="training summary",
        title=report.title,
        lede=_lede(report),
        numbers=_numbers(report),
        notes=[said(name(note)) for note in report.notes],
        sections=sections,
        facts=facts(report.facts),
        warning=_warning(report),
    )


def _warning(report: RunSummary) -> Sentence:
    if report.state == "done":
        return ()
    done = f"{count(report.steps_done)} of {count(report.steps)} steps"
    why = "A guardrail stopped this run" if report.state == "blocked" else "This run is not finished"
    return said(strong(f"{why}: "), f"{done} are done, so there is no final result.")


def _measured_at_all(truth: Truth) -> bool:
    return any(rate and rate.share is not None for rate in (truth.base, truth.trained))


def _lede(report: RunSummary) -> list[Sentence]:
    told = []
    for truth in report.truths:
        if (
            truth.headline
            and truth.base
            and truth.trained
            and truth.base.share is not None
            and truth.trained.share is not None
        ):
            told.append(f"{truth.name} from {share(truth.base.share)} to {share(truth.trained.share)}")
    how = said(
        f"Trained were {TRAINED.get(report.train, report.train)} ",
        name(report.encoder),
        f", {count(report.steps_done)} steps on {many(sum(report.groups.values()), 'bundle')}, seed {report.seed}.",
    )
    if not told:
        return [said("Neither truth was measured before and after training."), how]
    return [said("Training took ", strong(" and ".join(told)), "."), how]


def _numbers(report: RunSummary) -> list[Number]:
    numbers = []
    for truth in report.truths:
        if truth.headline and truth.trained and truth.trained.share is not None:
            was = share(truth.base.share if truth.base else None)
            number = Number(
                _capital(truth.name),
                share(truth.trained.share),
                said(f"base {was}; 95% ", whole(between(truth.trained.interval))),
            )
            numbers.append(number)
    numbers.append(Number("Guardrails", count(len(report.findings)), said(tripped(report.findings) or "none tripped")))
    return numbers


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- pictures and tables -----------------------------------------------------------------------------------------------


def _picture(report: RunSummary) -> Picture:
    pairs = [
        Pair(
            visible(_capital(truth.name)),
            truth.base.share if truth.base else None,
            truth.base.interval if truth.base else None,
            truth.trained.share if truth.trained else None,
            truth.trained.interval if truth.trained else None,
        )
        for truth in report.truths
        if _measured_at_all(truth)
    ]
    words = " ".join(
        f"{pair.name}: {share(pair.base)} before, {share(pair.trained)} after, 95% interval "
        f"{between(pair.trained_interval)}."
        for pair in pairs
    )
    caption = (
        "Share of bundles passed. Hollow: the base encoder; filled: the trained model. "
        "Lines are 95% Wilson intervals over the items."
    )
    return Picture("Both truths, before and after", words, lambda width: before_and_after(pairs, width), said(caption))


def _table(report: RunSummary) -> Table:
    columns = [
        "",
        "bundles",
        "base",
        "95% interval",
        "trained",
        "95% interval",
        "change",
        "p (McNemar)",
        "Q10, base",
        "trained",
    ]
    rows = []
    for truth in report.truths:
        base, trained = truth.base, truth.trained
        change = None
        if base and trained and base.share is not None and trained.share is not None:
            change = (trained.share - base.share) * 100
        rows.append(
            [
                _capital(truth.name),
                count(base.n if base else trained.n if trained else None),
                share(base.share if base else None),
                between(base.interval if base else None),
                share(trained.share if trained else None),
                between(trained.interval if trained else None),
                signed(change, 1),
                "–" if truth.p is None else "< 0.001" if truth.p < 0.001 else f"{truth.p:.3f}",
                signed(base.q10 if base else None, 3),
                signed(trained.q10 if trained else None, 3),
            ]
        )
    marked = frozenset(place for place, truth in enumerate(report.truths) if truth.headline)
    return Table(
        "Pass rates with 95% Wilson intervals, the change in percentage points, and the 10% quantile of the margins",
        columns,
        rows,
        marked=marked,
    )


def _loss(report: RunSummary) -> Picture:
    first, last = report.loss[0], report.loss[-1]
    start, end = count(round(first[0])), count(round(last[0]))
    words = f"The loss goes from {first[1]:.3f} around step {start} to {last[1]:.3f} around step {end}."
    curve = Curve("loss", report.loss, True)
    caption = "Means of equal stretches of the log; the band is the range within each."
    return Picture("Loss by training step", words, lambda width: losses([curve], width), said(caption))


def _data(report: RunSummary) -> Table:
    names = {"legacy": "tier 3, legacy pool", "organic": "tier 3, organic pool", "expanded": "tier 3, expanded pool"}
    tiers = {"tier1_easy": "tier 1, easy", "tier2_robust": "tier 2, robust"}
    rows = [[(names | tiers).get(group, group), count(size)] for group, size in report.groups.items()]
    return Table("Training bundles", ["group", "bundles"], rows)


def _measured() -> list[Sentence]:
    return [
        said(
            "A bundle is passed when its positive is more similar to the anchor than every negative. Frozen tier "
            "3 is what the model must not lose, the organic holdout what it has not seen."
        ),
        said(
            "Base and trained model were scored on the same bundles. Intervals are over the items of one run; p is "
            "McNemar's exact test over the bundles that only one of the two passes, corrected by Holm over the tiers. "
            "Neither says what another seed would give: a sweep does."
        ),
    ]
