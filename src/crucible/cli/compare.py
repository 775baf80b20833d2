"""`crucible compare A B`: two scoreboards -> differences with a test, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.contrast.versus import Comparison, compare_two, load

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="The scoreboard to compare with.")],
    b: Annotated[Path, typer.Argument(help="The scoreboard to judge.")],
    allow_fingerprint_mismatch: Annotated[
        bool,
        typer.Option("--allow-fingerprint-mismatch", help="Look at different eval sets; the output is watermarked."),
    ] = False,
    json: output.AsJson = False,
) -> None:
    """Compare two scoreboards of one eval set, tier by tier; exit 5 if their fingerprints differ.

    Example: crucible compare old.json new.json
    """
    result = compare_two(load(a), load(b), allow_mismatch=allow_fingerprint_mismatch)
    if result.watermark:
        output.say(f"{result.watermark}: {' against '.join(result.fingerprints)}")
    if json:
        output.json_document(result)
    else:
        _print(result)


def _print(result: Comparison) -> None:
    title = f"{result.b['id']} against {result.a['id']}"
    columns = ("", "n", "a", "b", "b - a", "95% interval", "won", "lost", "p", "p Holm")
    rows = [
        (name, g.n, *g.pass_rate, g.delta_pass_rate, _interval(g.interval), g.wins, g.losses, _p(g.p), _p(g.p_holm))
        for name, g in result.groups.items()
    ]
    output.table(f"{result.watermark}: {title}" if result.watermark else f"Pass rate, {title}", columns, rows)
    output.out(result.sentence)


def _interval(bounds: tuple[float, float] | None) -> str | None:
    return None if bounds is None else f"{bounds[0]:+.3f} {bounds[1]:+.3f}"


def _p(value: float | None) -> str | None:
    return None if value is None else f"{value:.2g}"
