"""`crucible compare A B …`: scoreboards -> differences with a test, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import typer

from crucible.cli import output
from crucible.contrast.versus import Comparison, Versus, compare_all, load
from crucible.errors import BadConfig
from crucible.kernel.compare import RULES

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    scoreboards: Annotated[
        list[Path], typer.Argument(help="Two or more; the first is what the others are compared with.")
    ],
    allow_fingerprint_mismatch: Annotated[
        bool,
        typer.Option("--allow-fingerprint-mismatch", help="Look at different eval sets; the output is watermarked."),
    ] = False,
    rule: Annotated[str, typer.Option(help=f"For rows of several seeds: {', '.join(RULES)}.")] = "t_overlap",
    flips: Annotated[int, typer.Option(help="How many flipped items to list.")] = 0,
    json: output.AsJson = False,
) -> None:
    """Compare scoreboards of one eval set, tier by tier; exit 5 if their fingerprints differ.

    Scoreboards made with `crucible eval --subject NAME --model-seed N` are seeds of one row.

    Example: crucible compare old.json new.json
    """
    if len(scoreboards) < 2:
        raise click.UsageError("one scoreboard alone cannot be compared; give two or more")
    if rule not in RULES:
        raise BadConfig(f"unknown rule {rule!r}", fix=f"Known rules: {', '.join(RULES)}.")
    boards = [load(path) for path in scoreboards]
    result = compare_all(boards, allow_mismatch=allow_fingerprint_mismatch, rule=rule)
    if result.watermark:
        output.say(f"{result.watermark}: {' against '.join(result.fingerprints)}")
    if json:
        output.json_document(result)
        return
    if any(row.n_seeds > 1 for row in result.rows):
        _print_rows(result)
    for versus in result.comparisons:
        _print_versus(versus, result.watermark, flips)
    for caveat in result.caveats:
        output.out(f"Note: {caveat}.")


def _print_rows(result: Comparison) -> None:
    columns = ("subject", "seeds", "pass rate", "std", "min", "max", "95% (1.96)", "95% (t)")
    rows = []
    for row in result.rows:
        s = row.groups["overall"]["pass_rate"]
        if s is not None:
            rows.append((row.subject, s.n, s.mean, s.std, s.min, s.max, _interval(s.ci95, ""), _interval(s.ci95_t, "")))
    output.table("Rows", columns, rows)


def _print_versus(versus: Versus, watermark: str | None, flips: int) -> None:
    title = f"Pass rate of {versus.b} (b) against {versus.a} (a)"
    columns = ("", "n", "a", "b", "b - a", "95% interval", "won", "lost", "p", "p Holm")
    rows = [
        (name, g.n, *g.pass_rate, g.delta_pass_rate, _interval(g.interval), g.wins, g.losses, _p(g.p), _p(g.p_holm))
        for name, g in versus.groups.items()
    ]
    output.table(f"{watermark}: {title}" if watermark else title, columns, rows)
    output.out(versus.sentence)
    output.out(f"Test: {versus.test}.")
    for name, ids in versus.flips.items():
        if flips and ids:
            output.out(f"{name}: {', '.join(ids[:flips])}")


def _interval(bounds: tuple[float, float] | None, sign: str = "+") -> str | None:
    return None if bounds is None else f"{bounds[0]:{sign}.3f} {bounds[1]:{sign}.3f}"


def _p(value: float | None) -> str | None:
    return None if value is None else f"{value:.2g}"
