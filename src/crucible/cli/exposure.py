"""`crucible exposure`: settings -> expected exposures, status, remedy; or a training log -> realised exposures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer

from crucible.cli import output
from crucible.contrast.exposure import Exposure, expected_exposure
from crucible.contrast.realised import Report, realised
from crucible.errors import BadConfig

app = typer.Typer(add_completion=False)


@app.command()
def exposure(
    steps: Annotated[int | None, typer.Option(help="Training steps S.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size B.")] = None,
    tier3_probability: Annotated[
        float | None, typer.Option(help="Probability of a tier-3 item per batch slot.")
    ] = None,
    legacy_ratio: Annotated[
        float | None, typer.Option(help="Share of tier-3 draws that go to the legacy pool.")
    ] = None,
    legacy_pool: Annotated[int | None, typer.Option(help="Number of legacy bundles.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Count what a run really drew: its log.jsonl. Needs none of the options above.")
    ] = None,
    items: Annotated[Path | None, typer.Option(help="The run's items.jsonl; beside the log if not given.")] = None,
    json: output.AsJson = False,
) -> None:
    """How often each legacy item is expected to be seen: E = S x B x p x r / L, and whether that is healthy.

    With --log: how often each item of every tier and pool was seen in a training run, beside what was expected.

    Example: crucible exposure --steps 10000 --batch-size 32 --tier3-probability 0.10 --legacy-ratio 0.75 --legacy-pool 454
    """
    given = {
        "--steps": steps,
        "--batch-size": batch_size,
        "--tier3-probability": tier3_probability,
        "--legacy-ratio": legacy_ratio,
        "--legacy-pool": legacy_pool,
    }
    if log is not None:
        _refuse([name for name, value in given.items() if value is not None])
        report = realised(log, items)
        if json:
            output.json_document(report)
        else:
            _print_report(report)
        for note in report.notes:
            output.say(note)
        for warning in report.warnings:
            output.say(f"warning: {warning}")
        return
    if items is not None:
        raise click.UsageError("--items belongs to --log")
    if steps is None or batch_size is None or tier3_probability is None or legacy_ratio is None or legacy_pool is None:
        missing = [name for name, value in given.items() if value is None]
        raise click.UsageError(f"Missing option '{missing[0]}' (or give a training log with --log)")
    result = expected_exposure(
        steps=steps,
        batch_size=batch_size,
        tier3_probability=tier3_probability,
        legacy_ratio=legacy_ratio,
        legacy_pool=legacy_pool,
    )
    if json:
        output.json_document(result)
    else:
        _print_expected(result)


def _refuse(given: list[str]) -> None:
    if given:
        raise BadConfig(f"{given[0]} and --log are two different questions", fix=f"Leave out {' and '.join(given)}.")


def _print_expected(result: Exposure) -> None:
    output.out(f"{result.expected:.1f} expected exposures per legacy item: {result.status}. {result.action}.")
    if result.healthy_with:
        remedy = result.healthy_with
        ways = [f"--steps {remedy.steps}"] if remedy.steps else []
        ways += [f"--legacy-ratio {remedy.legacy_ratio:.3f}"] if remedy.legacy_ratio else []
        ways += [f"--legacy-pool {remedy.legacy_pool}"] if remedy.legacy_pool else []
        output.out("Healthy with any one of: " + (", ".join(ways) or "nothing, because nobody draws from the pool"))


def _print_report(report: Report) -> None:
    output.out(f"{report.log}: {report.steps} steps of {report.batch_size} items")
    columns = ("group", "rarest is", "items", "expected", "mean", "min", "q10", "q50", "q90", "max", "never seen")
    rows = [
        (
            one.group,
            one.minimum_status,
            one.items,
            None if one.expected is None else f"{one.expected:.1f}",
            f"{one.mean:.1f}",
            one.minimum,
            *(f"{one.quantiles[name]:.0f}" for name in ("q10", "q50", "q90")),
            one.maximum,
            one.never_seen,
        )
        for one in report.groups
    ]
    output.table("", columns, rows, left=2)
    for one in report.groups:
        if one.never_seen:
            output.out(f"never seen in {one.group}: {', '.join(one.never_seen_ids)}{_more(one.never_seen)}")


def _more(count: int) -> str:
    return f", … {count} in all" if count > 10 else ""
