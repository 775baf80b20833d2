"""`crucible bundles build | check`: events -> bundles, and everything that is wrong or doubtful in a bundle file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.cli.progress import progress
from crucible.contrast.check import MAX_SHOWN, Report
from crucible.contrast.check import check as check_file
from crucible.contrast.corpus import publish
from crucible.contrast.corpus.build import Plan
from crucible.contrast.corpus.stats import Stats
from crucible.errors import BadData

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Build bundles from events, and check bundle files.")

StyleOption = Annotated[
    str, typer.Option(help="examples: positives and negatives are examples; glosses: they are definitions.")
]
Limit = Annotated[int | None, typer.Option(help="Keep a seeded sample of this many bundles.")]
Seed = Annotated[int, typer.Option(help="Seed of every draw: same seed, same bytes.")]
Within = Annotated[int, typer.Option(help="At most this many negatives from other senses of the word; 0 needs none.")]
Sibling = Annotated[int, typer.Option(help="At most this many negatives from related senses (a shared group).")]
CrossLemma = Annotated[int, typer.Option(help="At most this many negatives from other words.")]


@app.command()
def build(
    events: Annotated[
        Path, typer.Argument(help="Events, one JSON object a line: event_id, sense (lemma#sense), text.")
    ],
    out: Annotated[Path, typer.Option(help="Bundle file to write.")],
    style: StyleOption = "examples",
    limit: Limit = None,
    seed: Seed = 42,
    within: Within = 8,
    sibling: Sibling = 3,
    cross_lemma: CrossLemma = 3,
    json: output.AsJson = False,
) -> None:
    """Build bundles from your own events: every example with a positive of its sense and negatives of other senses.

    Events that share a "group", or name each other's sense in "siblings", give sibling negatives.

    Example: crucible bundles build events.jsonl --out bundles.jsonl --seed 42
    """
    plan = Plan(style=style, within=within, sibling=sibling, cross_lemma=cross_lemma, seed=seed)
    made = publish.own_bundles(events, out, plan, progress, limit=limit)
    if json:
        output.json_document(made)
    else:
        print_stats(made)
    output.say(f"written to {out}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Bundle file in any accepted format: see docs/formats.md.")],
    json: output.AsJson = False,
) -> None:
    """Check a bundle file: format, bad lines with field and fix, duplicates, negatives that equal the positive.

    Exits with 3 if a line is no bundle or there is none; duplicates and doubtful bundles are only reported.

    Example: crucible bundles check bundles.jsonl --json
    """
    report = check_file(file)
    if json:
        output.json_document(report)
    else:
        _print_report(report)
    if not report.clean:
        raise typer.Exit(BadData.exit_code)


def print_stats(made: Stats) -> None:
    """What a build gave, for people."""
    sampled = f" (a sample of {made.available})" if made.available > made.bundles else ""
    events = ", ".join(f"{count} {kind}" for kind, count in made.events_by_kind.items())
    output.out(f"{made.bundles} bundles{sampled}, style {made.style}, seed {made.seed}; events: {events}")
    output.table("", ("part of speech", "bundles"), made.bundles_by_pos.items())
    rows = [
        (source, made.asked[source], count, made.bundles_with_source[source], count / made.bundles)
        for source, count in made.negatives_by_source.items()
    ]
    output.table("", ("negatives", "at most", "in all", "bundles with one", "a bundle"), rows)
    for reason, count in made.anchors_left_out.items():
        output.say(f"{count} examples are no anchor: {reason.replace('_', ' ')}")


def _print_report(report: Report) -> None:
    compressed = "" if report.compression == "none" else f", {report.compression}"
    output.out(f"{report.file}: format {report.format or 'unknown'}{compressed}")
    output.out(f"{report.valid} bundles, {report.invalid} invalid lines, {report.texts} different texts")
    if report.negatives:
        spread = report.negatives
        output.out(f"negatives a bundle: {spread.min} to {spread.max}, on average {spread.mean:.2f}")
    for name, counts in (("negatives by source", report.sources), ("bundles by tier", report.tiers)):
        if counts:
            output.out(f"{name}: " + ", ".join(f"{what} {count}" for what, count in counts.items()))
    if report.problems:
        shown = report.problems[:MAX_SHOWN]
        rows = [(p.line, p.field or "–", _short(p.problem), _short(p.fix)) for p in shown]
        output.table("", ("line", "field", "problem", "fix"), rows, left=4)
        if report.problems_total > len(shown):
            output.out(f"… and {report.problems_total - len(shown)} more: --json lists {len(report.problems)}")
    for what, count, ids in _doubts(report):
        start = f"warning: {count} {what}"
        output.out(f"{start}: {_short(', '.join(ids), output.WIDTH - len(start) - 2)}" if ids else start)
    for sentence in report.header_disagrees:
        output.out(f"warning: the header disagrees: {sentence}")
    if report.clean:
        output.say("every line is a bundle")
    elif not report.valid:
        output.say("no bundle in this file")


def _doubts(report: Report) -> list[tuple[str, int, list[str]]]:
    repeats = [name for group in report.duplicates.groups for name in group.ids[1:]]
    doubts = [
        ("bundles repeat an earlier one", report.duplicates.count, repeats),
        (
            "bundles have a negative equal to the positive",
            report.identical_negatives.count,
            report.identical_negatives.ids,
        ),
        (
            "bundles have a negative equal to the anchor",
            report.anchor_in_negatives.count,
            report.anchor_in_negatives.ids,
        ),
        ("bundles have the same negative twice", report.duplicate_negatives.count, report.duplicate_negatives.ids),
        ("bundles have an anchor equal to the positive", report.anchor_is_positive, []),
    ]
    return [doubt for doubt in doubts if doubt[1]]


def _short(text: str, width: int = 48) -> str:
    text = output.visible(text)
    return text if len(text) <= width else text[: width - 1] + "…"
