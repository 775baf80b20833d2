"""`crucible ledger verify | show`: a ledger file -> whether it holds, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.kernel import digest, ledger

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Verify and read hash-chained ledgers.")

File = Annotated[Path, typer.Argument(help="The ledger, a file of JSON lines.")]


@app.command()
def verify(
    file: File,
    head: Annotated[str | None, typer.Option(help="A head digest published earlier: it must still be there.")] = None,
    json: output.AsJson = False,
) -> None:
    """Check every line against its digest and the line before; exit 6 names the first bad one.

    Example: crucible ledger verify runs/ledger.jsonl
    """
    at = ledger.verify(file, head)
    if json:
        output.json_document({"file": str(file), "ok": True, "lines": at.lines, "head": at.digest})
    else:
        output.out(f"{file}: {at.lines} lines, all chained. Head {at.digest}")


@app.command()
def show(
    file: File,
    kind: Annotated[str | None, typer.Option(help="Only lines of this kind.")] = None,
    json: output.AsJson = False,
) -> None:
    """List the lines, verified while they are read.

    Example: crucible ledger show runs/ledger.jsonl --kind record
    """
    lines = list(ledger.read(file, kind))
    if json:
        output.json_document([line.entry for line in lines])
        return
    rows = [(line.entry.n, line.entry.at, line.entry.kind, _short(line.entry.body)) for line in lines]
    output.table(str(file), ("n", "at", "kind", "body"), rows, left=4)


def _short(body: object) -> str:
    text = digest.canonical_json(body).decode()
    return text if len(text) <= 60 else text[:57] + "…"
