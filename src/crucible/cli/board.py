"""`crucible board show`: the ledger of a folder of runs -> the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.board import leaderboard, rows
from crucible.cli import output
from crucible.errors import BadConfig

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Rows and ranks from the records of many runs.")


@app.callback()
def board() -> None:
    """Rows and ranks from the records of many runs."""


@app.command()
def show(
    root: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    track: Annotated[str | None, typer.Option(help="Only this track.")] = None,
    json: output.AsJson = False,
) -> None:
    """Show the leaderboard: official and provisional rows, ranks with their ranges, ties, public against hidden.

    Example: crucible board show --root runs --track mini
    """
    if not (root / rows.LEDGER).is_file():
        raise BadConfig(
            f"{root} holds no runs: there is no {rows.LEDGER} in it",
            fix="Give the folder that `crucible ari run --root` wrote to.",
        )
    held = rows.read(root)
    standings = leaderboard.standings(rows.rows(held.records, track))
    if held.unjudged:
        output.say(f"{len(held.unjudged)} runs have no record yet: {', '.join(held.unjudged[:5])}")
    if json:
        output.json_document(standings)
        return
    for pin in dict.fromkeys(standing.pin for standing in standings):
        _table([standing for standing in standings if standing.pin == pin])
    if not standings:
        output.say("no row yet: grade a run with `crucible ari grade RUN --exam EXAM`")


def _table(standings: list[leaderboard.Standing]) -> None:
    first = standings[0]
    exam = f"exam {first.exam[:12]}" if first.exam else "not judged"
    columns = ("rank", "subject", "status", "score %", "± SE", "seeds", "public %", "gap", "tied with")
    output.table(f"Track {first.track}, {exam}, {first.rule}", columns, map(_cells, standings), left=3)
    for standing in standings:
        for aside in standing.invalid:
            output.out(f"  invalid, never averaged: {aside.run} ({aside.reason})")
        for aside in standing.not_counted:
            output.out(f"  not counted: {aside.run}: {aside.reason}")
        for flag in standing.flags:
            output.out(f"  {standing.subject}: {flag}")


def _cells(standing: leaderboard.Standing) -> tuple[object, ...]:
    low, high = standing.rank_range or (None, None)
    rank = output.cell(None) if low is None else f"{low}" if low == high else f"{low}-{high}"
    numbers = [_percent(n) for n in (standing.score, standing.se)]
    return (
        rank,
        standing.subject,
        standing.status,
        *numbers,
        standing.n_seeds,
        _percent(standing.public_score),
        _percent(standing.gap),
        ", ".join(standing.tied_with) or None,
    )


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
