"""`crucible init`: a folder name -> a project with a configuration, sample data if asked for, and the next commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.contrast import project

app = typer.Typer(add_completion=False)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder to create; it must not exist, or be empty.")],
    sample_data: Annotated[
        bool, typer.Option("--sample-data", help="With data for a first run: frozen bundles, mined pools, events.")
    ] = False,
    template: Annotated[str, typer.Option(help="basic, production or sweep.")] = "basic",
    json: output.AsJson = False,
) -> None:
    """Start a project: a configuration, and with --sample-data everything a first training run needs.

    Example: crucible init my-project --sample-data --template basic
    """
    made = project.create(folder, template, sample_data=sample_data)
    if json:
        output.json_document(made)
        return
    output.out(f"{made.folder}: {len(made.files)} files, template {made.template}")
    output.out("Next:")
    for step in made.next:
        output.out(f"  {step}")
