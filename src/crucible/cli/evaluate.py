"""`crucible eval`: a model and an eval set -> scoreboard, per-item results, and a record in a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.contrast import encode
from crucible.contrast import evalset as evalsets
from crucible.contrast.evaluate import evaluate, to_record, write
from crucible.contrast.scoreboard import Scoreboard
from crucible.errors import BadConfig
from crucible.kernel import ledger as ledgers
from crucible.kernel.record import to_builtins

app = typer.Typer(add_completion=False)


@app.command("eval")
def eval_(
    model: Annotated[str, typer.Option(help="Encoder to evaluate, e.g. hashing or hashing:512.")],
    eval_set: Annotated[Path, typer.Option(help="Folder of a frozen eval set.")],
    output_file: Annotated[Path, typer.Option("--output", help="Scoreboard JSON to write.")],
    items: Annotated[
        Path | None, typer.Option(help="Per-item results to write; beside the scoreboard if not given.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to append the record to.")] = None,
    version: Annotated[str | None, typer.Option(help="Version of the eval set; the latest if not given.")] = None,
    json: output.AsJson = False,
) -> None:
    """Evaluate a model on a frozen eval set.

    Example: crucible eval --model hashing --eval-set evalsets/demo --output board.json --items items.jsonl --ledger runs.jsonl
    """
    items = items or output_file.with_name(f"{output_file.stem}.items.jsonl")
    if items.resolve() == output_file.resolve():
        raise BadConfig(f"--items and --output are both {items}", fix="Give them two different files.")
    encoder = encode.by_name(model)
    result = evaluate(evalsets.load(eval_set, version), encoder)
    board = write(result, output_file, items)
    if ledger:
        ledgers.append(ledger, "record", to_builtins(to_record(result)))
    if json:
        output.json_document(board)
    else:
        _print(board)
    output.say(f"wrote {output_file} and {items}" + (f", recorded in {ledger}" if ledger else ""))


def _print(board: Scoreboard) -> None:
    header = board.eval_header
    output.out(f"{header.model['id']} on {header.eval_set} {header.version}   EVAL_FINGERPRINT: {header.fingerprint}")
    columns = ("", "n", "pass rate", "mean margin", "median", "Q10", "Q90", "mean rank", "ties")
    rows = [
        (name, s.n, s.pass_rate, s.mean_margin, s.median_margin, s.q10_margin, s.q90_margin, s.mean_rank, s.n_ties)
        for name, s in {"overall": board.overall, **board.by_tier}.items()
    ]
    output.table("", columns, rows)
