"""`crucible report`: the folder of a run, a sweep or a mining -> one self-contained page, and its main chart as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from crucible.board import pareto
from crucible.board.render import outline as pages
from crucible.board.render.outline import Outline
from crucible.cli import output, report_inputs
from crucible.documents import as_builtins, require_target, write_bytes
from crucible.errors import BadConfig, BadData

app = typer.Typer(add_completion=False)


@app.command()
def report(
    kind: Annotated[str, typer.Option("--type", help=f"One of {', '.join(report_inputs.TYPES)}.")],
    results_dir: Annotated[
        Path, typer.Option(help="Folder of a run or a sweep; for mining the stats file or its folder.")
    ],
    output_file: Annotated[
        Path | None, typer.Option("--output", help="The page, .html; or its main chart alone, .svg or .png.")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Write the main chart as PNG too.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the main chart as SVG too.")] = None,
    floor: Annotated[
        list[str] | None, typer.Option(help="pareto only: least value of a metric, e.g. frozen_tier3=0.30; repeatable.")
    ] = None,
    json: output.AsJson = False,
) -> None:
    """One self-contained page about a run, a sweep or a mining: no script, no network, light and dark, phone and desktop.

    Example: crucible report --type pareto --results-dir sweeps/ratio --output pareto.html --png pareto.png
    """
    targets = _targets(output_file, png, svg, json)
    for path in targets:
        require_target(path)
    floors = dict(pareto.floor(text) for text in floor or [])
    found, outline = report_inputs.read(kind, results_dir, floors)
    for path, make in targets.items():
        write_bytes(path, make(outline))
    if json:
        written = [str(path) for path in targets]
        output.json_document({"type": kind, "results_dir": str(results_dir), "written": written, **as_builtins(found)})
    else:
        for sentence in outline.lede:
            output.out("".join(bit.text for bit in sentence))
    if targets:
        output.say(f"wrote {', '.join(map(str, targets))}")


def _targets(
    output_file: Path | None, png: Path | None, svg: Path | None, json: bool
) -> dict[Path, Callable[[Outline], bytes]]:
    """Every file to write and how; the end of the output's name says what it is."""
    found: dict[Path, Callable[[Outline], bytes]] = {}
    makers: dict[str, Callable[[Outline], bytes]] = {".html": _html, ".htm": _html, ".png": _png, ".svg": _svg}
    if output_file is not None:
        make = makers.get(output_file.suffix.lower())
        if make is None:
            raise BadConfig(
                f"--output {output_file} ends in none of .html, .svg and .png", fix="Give it the end of what you want."
            )
        found[output_file] = make
    for path, make in ((png, _png), (svg, _svg)):
        if path is not None:
            if path in found:
                raise BadConfig(f"{path} would be written twice", fix="Give every output a name of its own.")
            found[path] = make
    if not found and not json:
        raise BadConfig("nothing to write", fix="Give --output FILE.html, --png FILE, --svg FILE or --json.")
    return found


def _html(outline: Outline) -> bytes:
    return pages.html(outline).encode()


def _png(outline: Outline) -> bytes:
    return pages.png(_picture(outline))


def _svg(outline: Outline) -> bytes:
    return pages.svg(_picture(outline))


def _picture(outline: Outline) -> pages.Picture:
    found = pages.main_picture(outline)
    if found is None:
        raise BadData(
            f"this {outline.kind} has no chart: nothing was measured", fix="Write the page: --output FILE.html"
        )
    return found
