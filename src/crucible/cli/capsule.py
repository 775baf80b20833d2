"""`crucible capsule pack | verify | unpack | build`: a run <-> one file that anybody can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.cli.overrides import DEFAULT, EXTRA, ConfigFile, configured
from crucible.cli.progress import progress
from crucible.cli.watching import watching
from crucible.contrast.capsules import capsule, capsule_verify
from crucible.contrast.capsules.capsule import About
from crucible.contrast.capsules.capsule_verify import Report
from crucible.contrast.sweeps import conditions, production
from crucible.contrast.sweeps.production import Built
from crucible.contrast.sweeps.selection import Selection
from crucible.errors import BadConfig
from crucible.kernel import digest

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Pack, check and open reproducible runs.")

Target = Annotated[Path, typer.Option("--output", "-o", help="Capsule to write (tar.gz).")]
WithoutData = Annotated[
    bool, typer.Option("--without-data", help="Leave the eval data out; who verifies must bring it.")
]


@app.command()
def pack(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    target: Target,
    without_data: WithoutData = False,
    json: output.AsJson = False,
) -> None:
    """Pack a finished run: settings, checkpoint, scoreboards with items, log, evidence and the eval data.

    Example: crucible capsule pack runs/first -o first.tar.gz
    """
    about = capsule.pack(run, target, with_data=not without_data)
    _packed(target, about, json)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A capsule.")],
    recompute: Annotated[
        bool, typer.Option("--recompute/--no-recompute", help="Score the checkpoint again; needs the base encoder.")
    ] = True,
    sha256: Annotated[str | None, typer.Option(help="Digest of the capsule as it was published.")] = None,
    frozen_eval: Annotated[Path | None, typer.Option(help="The frozen eval set, for a capsule without data.")] = None,
    organic_eval: Annotated[Path | None, typer.Option(help="The organic holdout, for a capsule without data.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", envvar="CRUCIBLE_DEVICE")] = "auto",
    json: output.AsJson = False,
) -> None:
    """Check a capsule: every byte, every digest, the ledger, the pins, and the scores recomputed from the weights.

    Exits with 6 and the file's name if anything was changed, with 1 if it could not be recomputed here.

    Example: crucible capsule verify first.tar.gz
    """
    given = {"frozen": frozen_eval, "organic": organic_eval}
    with progress("recomputing") as recomputing:
        report = capsule_verify.verify(
            file,
            recompute=recompute,
            expected=sha256,
            data={name: path for name, path in given.items() if path is not None},
            device=device,
            progress=recomputing,
        )
    refused = capsule_verify.refused(report)
    if refused:
        raise refused
    if json:
        output.json_document(report)
    else:
        _verified(report, recompute)


@app.command()
def unpack(
    file: Annotated[Path, typer.Argument(help="A capsule.")],
    folder: Annotated[Path, typer.Argument(help="Folder to make; it must not be there yet.")],
    json: output.AsJson = False,
) -> None:
    """Open a capsule into a new folder, all of it or nothing; every digest is checked first.

    Example: crucible capsule unpack first.tar.gz first
    """
    about = capsule.unpack(file, folder)
    model = f"head:{folder}" if about.run["train"] == "head" else f"st:{folder / 'checkpoint'}"
    if json:
        output.json_document({"folder": str(folder), "model": model, "capsule": about})
    else:
        output.out(f"{len(about.manifest) + 1} files in {folder}; try it: crucible eval --model {model} --eval-set …")


@app.command(context_settings=EXTRA)
def build(
    ctx: typer.Context,
    target: Target,
    config: ConfigFile = DEFAULT,
    seeds: Annotated[str | None, typer.Option(help="Seeds with commas; experiment.seeds if not given.")] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="Folder of the runs; experiment.output_dir if not given.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    check_guardrails: Annotated[
        bool, typer.Option("--check-guardrails", help="Stop on critical and severe findings, not only on errors.")
    ] = False,
    guardrail_override: Annotated[
        list[str] | None, typer.Option("--guardrail-override", help="A guardrail that may not stop a run; recorded.")
    ] = None,
    without_data: WithoutData = False,
    json: output.AsJson = False,
) -> None:
    """Train every seed, measure both truths, pack the median seed on the organic holdout with the numbers of all.

    Example: crucible capsule build --config crucible.yaml --seeds 42,123,456 --output-dir runs/production -o model.tar.gz
    """
    settings = configured(config, ctx.args)
    out = output_dir or (Path(settings.experiment.output_dir) if settings.experiment.output_dir else None)
    if out is None:
        raise BadConfig("there is no place for the runs", fix="Give --output-dir DIR, or set experiment.output_dir.")
    with progress("encoding") as encoding, watching("seeds") as on_event:
        made = production.build(
            settings,
            conditions.seeds(seeds) if seeds is not None else settings.experiment.seeds,
            out,
            target,
            overrides=guardrail_override or (),
            enforce=check_guardrails,
            with_data=not without_data,
            parallel=parallel,
            on_event=on_event,
            encoding=encoding,
        )
    if json:
        output.json_document(made)
    else:
        _built(made)


def _packed(target: Path, about: About, json: bool) -> None:
    sha256 = digest.of_file(target)
    if json:
        output.json_document({"capsule": str(target), "sha256": sha256, "about": about})
        return
    output.out(f"{target}: {len(about.manifest)} files, sha256 {sha256}")
    output.out(f"ledger head {about.ledger.digest}")
    if not about.data:
        output.out("The eval data is not in it: who verifies it must bring it.")


def _verified(report: Report, recompute: bool) -> None:
    output.out(f"{report.capsule}: {report.run['subject']}, seed {report.run['seed']}, {report.files} files")
    for what in report.holds:
        output.out(f"  holds: {what}")
    if report.recomputed:
        rows = [
            (name, one.items, one.passes_recorded, one.passes, f"{one.largest_difference:.1e}")
            for name, one in report.recomputed.items()
        ]
        columns = ("scoreboard", "items", "passes recorded", "recomputed", "largest difference")
        output.table("", columns, rows)
    elif not recompute:
        output.out("Not recomputed, as asked.")
    output.out(f"sha256 {report.sha256}, ledger head {report.ledger_head}")
    if report.selection:
        _selection(report.selection)


def _built(made: Built) -> None:
    _selection(made.selection)
    shown = {name: value for name, value in made.base.items() if value is not None}
    output.out("base encoder: " + ", ".join(f"{name} {value:.4f}" for name, value in shown.items()))
    output.out(f"{made.capsule}: seed {made.selection.chosen}, from {made.run}")


def _selection(found: Selection) -> None:
    rows = [
        (
            one.seed,
            "chosen" if one.seed == found.chosen else "",
            one.metrics.get("frozen_tier3"),
            one.metrics.get(found.metric),
        )
        for one in found.seeds
    ]
    output.table("", ("seed", "", "frozen tier 3", "organic holdout"), rows, left=2)
    output.out(f"Chosen: {found.rule}.")
