"""What `crucible mine` counted -> a page on how many candidates are dangerous again and again, and where the others went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from crucible.board.plots.mining import Passed, Stage, funnel, passes
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong
from crucible.board.render.page import count, decimal, share
from crucible.board.render.reports.words import Fact, facts, many

STRENGTHS = ("ultra", "mid", "low", "none")


class Bar(msgspec.Struct, frozen=True):
    passes: int
    items: int
    strength: str


class Loss(msgspec.Struct, frozen=True):
    """Candidates that did not become bundles: at which point, and why."""

    where: str
    reason: str
    items: int


class MiningReport(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    candidates: int
    tested: int
    accepted: int
    written: int
    pass_rate: float
    threshold: float
    threshold_source: str
    lineups: int
    min_passes: int
    seed: int
    bars: Sequence[Bar]
    strength: Mapping[str, int]
    effective_lineups: Mapping[str, float]
    losses: Sequence[Loss]
    events: int
    senses: int
    encoder: str
    notes: Sequence[str]
    facts: Sequence[Fact]


def outline(report: MiningReport) -> Outline:
    return Outline(
        kind="mining report",
        title=report.title,
        lede=_lede(report),
        numbers=_numbers(report),
        notes=[*_warnings(report), *(said(name(note)) for note in report.notes)],
        sections=[
            Section(
                "How many lineups each candidate passed",
                picture=_passes(report),
                folded=[("Every bar as a table", _bars(report))],
            ),
            Section("What became of the candidates", picture=_funnel(report), tables=[_losses(report)]),
            Section("How it was measured", points=_measured(report)),
        ],
        facts=facts(report.facts),
    )


def _lede(report: MiningReport) -> list[Sentence]:
    rate = f"{count(report.accepted)} of {count(report.tested)}"
    return [
        said(
            "Mining accepted ",
            strong(f"{rate} candidates ({report.pass_rate * 100:.2f}%)"),
            f": each was dangerous in at least {report.min_passes} of {many(report.lineups, 'lineup')}.",
        ),
        said(f"{many(report.written, 'bundle was', 'bundles were')} written."),
    ]


def _numbers(report: MiningReport) -> list[Number]:
    accepted = dict.fromkeys(STRENGTHS, 0)
    for bar in report.bars:
        if bar.passes >= report.min_passes:
            accepted[bar.strength] += bar.items
    told = ", ".join(f"{count(accepted[word])} {word}" for word in STRENGTHS if accepted[word])
    return [
        Number(
            "Mining pass rate",
            f"{report.pass_rate * 100:.2f}%",
            said(f"{count(report.accepted)} of {count(report.tested)} tested"),
        ),
        Number("Accepted", count(report.accepted), said(told or "none")),
        Number("Threshold", decimal(report.threshold, 4), said(name(report.threshold_source))),
        Number(
            "Effective lineups",
            decimal(report.effective_lineups.get("mean"), 2),
            said(f"of {report.lineups}; at least {decimal(report.effective_lineups.get('min'), 0)}"),
        ),
    ]


def _warnings(report: MiningReport) -> list[Sentence]:
    few = int(report.effective_lineups.get("too_few", 0))
    if not few:
        return []
    return [
        said(
            f"{many(few, 'candidate')} had too few distinct lineups to count as validated, and {'was' if few == 1 else 'were'} "
            ""
            ""
            "refused."
        )
    ]


def _passes(report: MiningReport) -> Picture:
    bars = [Passed(bar.passes, bar.items, bar.strength) for bar in report.bars]
    words = " ".join(
        f"{bar.passes} of {report.lineups}: {many(bar.items, 'candidate')}, {bar.strength}." for bar in report.bars
    )
    begins = {
        word: min((bar.passes for bar in report.bars if bar.strength == word), default=None) for word in STRENGTHS
    }
    told = ", ".join(f"{word} from {begins[word]}" for word in STRENGTHS[:3] if begins[word] is not None)
    caption = (
        "Candidates by the number of lineups in which their danger reached the threshold; accepted from "
        f"{report.min_passes}. The strength goes by the share of lineups: {told}."
    )
    return Picture("Lineups passed", words, lambda width: passes(bars, report.min_passes, width), said(caption))


def _bars(report: MiningReport) -> Table:
    rows = [
        [
            str(bar.passes),
            count(bar.items),
            share(bar.items / report.tested if report.tested else None),
            bar.strength,
            "yes" if bar.passes >= report.min_passes else "no",
        ]
        for bar in report.bars
    ]
    return Table(
        "Candidates by lineups passed", ["lineups passed", "candidates", "of tested", "strength", "accepted"], rows
    )


def _funnel(report: MiningReport) -> Picture:
    def of(part: int, whole: int, what: str) -> str:
        return f"({part / whole * 100:.1f}% of {what})" if whole else ""

    stages = [
        Stage("candidates", report.candidates, ""),
        Stage("tested", report.tested, of(report.tested, report.candidates, "them")),
        Stage("accepted", report.accepted, of(report.accepted, report.tested, "tested")),
        Stage("written", report.written, of(report.written, report.accepted, "accepted")),
    ]
    words = " ".join(f"{stage.name}: {count(stage.items)} {stage.note}".strip() + "." for stage in stages)
    return Picture(
        "From candidates to bundles",
        words,
        lambda width: funnel(stages, width),
        said("All bars are on one scale from zero."),
    )


def _losses(report: MiningReport) -> Table:
    rows = [[loss.where, loss.reason, count(loss.items)] for loss in report.losses if loss.items]
    rows = rows or [["", "nothing was lost on the way", "0"]]
    return Table("Why candidates did not become bundles", ["where", "reason", "candidates"], rows, left=2)


def _measured(report: MiningReport) -> list[Sentence]:
    return [
        said(
            f"Candidates come from {many(report.events, 'event')} of {many(report.senses, 'sense')}. For each, "
            f"{report.lineups} "
            f"lineups of negatives are drawn (seed {report.seed}), without repetition inside a lineup."
        ),
        said(
            "A lineup is passed when its danger (the similarity of the most similar negative less that of the "
            "positive) under ",
            name(report.encoder),
            f" is at least {decimal(report.threshold, 4)}. To pass here means to be dangerous: the opposite of a "
            "model that passes a bundle.",
        ),
        said("Small negative pools repeat themselves: effective lineups are the distinct ones."),
    ]
