"""`crucible sweep ratio | steps | ablation`: conditions x seeds -> trained runs, one table, one recommendation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from crucible.board import pareto as board
from crucible.cli import output
from crucible.cli.overrides import DEFAULT, EXTRA, ConfigFile, configured
from crucible.cli.pareto import Floors, floors_of, mark, recommend, spread
from crucible.cli.progress import progress
from crucible.cli.watching import watching
from crucible.contrast.config import Config
from crucible.contrast.sweeps import conditions
from crucible.contrast.sweeps.aggregate import Results, Row
from crucible.contrast.sweeps.conditions import Condition, Kind
from crucible.contrast.sweeps.sweep import Plan
from crucible.contrast.sweeps.sweep import sweep as run_sweep
from crucible.contrast.train.rundir import METRICS
from crucible.documents import as_builtins
from crucible.errors import BadConfig, SubjectFailed

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Train conditions x seeds, measure both truths, recommend one."
)

Seeds = Annotated[str | None, typer.Option(help="Seeds with commas; experiment.seeds if not given.")]
OutputDir = Annotated[Path | None, typer.Option(help="Folder of the sweep; experiment.output_dir if not given.")]
Parallel = Annotated[int, typer.Option(min=1, help="Runs at the same time, each with one thread.")]
Check = Annotated[
    bool, typer.Option("--check-guardrails", help="Stop runs on critical and severe findings, not only on errors.")
]
Override = Annotated[
    list[str] | None, typer.Option("--guardrail-override", help="A guardrail that may not stop a run; recorded in it.")
]


@dataclass(frozen=True)
class _Asked:
    """The options that every kind of sweep has."""

    seeds: str | None
    output_dir: Path | None
    parallel: int
    floor: Sequence[str] | None
    check_guardrails: bool
    guardrail_override: Sequence[str] | None
    json: bool


@app.command(context_settings=EXTRA)
def ratio(
    ctx: typer.Context,
    ratios: Annotated[str, typer.Option(help="Percent legacy_organic_expanded of the tier-3 draws, with commas.")],
    config: ConfigFile = DEFAULT,
    seeds: Seeds = None,
    output_dir: OutputDir = None,
    parallel: Parallel = 1,
    floor: Floors = None,
    check_guardrails: Check = False,
    guardrail_override: Override = None,
    json: output.AsJson = False,
) -> None:
    """Sweep how the tier-3 draws are shared between the pools.

    Run the same command again after a kill: what is done is skipped. Settings are overridden as --section.key VALUE.

    Example: crucible sweep ratio --config crucible.yaml --ratios 85_10_5,75_15_10 --seeds 42,123,456 --output-dir sweeps/ratio
    """
    asked = _Asked(seeds, output_dir, parallel, floor, check_guardrails, guardrail_override, json)
    _run("ratio", configured(config, ctx.args), lambda _: conditions.ratios(ratios), asked)


@app.command(context_settings=EXTRA)
def steps(
    ctx: typer.Context,
    steps: Annotated[str, typer.Option(help="Numbers of training steps, with commas.")],
    config: ConfigFile = DEFAULT,
    seeds: Seeds = None,
    output_dir: OutputDir = None,
    parallel: Parallel = 1,
    floor: Floors = None,
    check_guardrails: Check = False,
    guardrail_override: Override = None,
    json: output.AsJson = False,
) -> None:
    """Sweep how long to train, and look for the overfitting cliff (guardrail G8).

    Example: crucible sweep steps --config crucible.yaml --steps 500,1000,2000 --seeds 42,123,456 --output-dir sweeps/steps
    """
    asked = _Asked(seeds, output_dir, parallel, floor, check_guardrails, guardrail_override, json)
    _run("steps", configured(config, ctx.args), lambda _: conditions.steps(steps), asked)


@app.command(context_settings=EXTRA)
def ablation(
    ctx: typer.Context,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help='NAME=KEY:VALUE[;KEY:VALUE], e.g. "deep=model.hidden:512".')
    ] = None,
    config: ConfigFile = DEFAULT,
    seeds: Seeds = None,
    output_dir: OutputDir = None,
    parallel: Parallel = 1,
    floor: Floors = None,
    check_guardrails: Check = False,
    guardrail_override: Override = None,
    json: output.AsJson = False,
) -> None:
    """Sweep the configuration against variants of it; without --set, against itself with one part less at a time.

    Example: crucible sweep ablation --set "no_tier3=curriculum.tier_probabilities:[0.7,0.3,0.0]" --output-dir sweeps/parts
    """
    asked = _Asked(seeds, output_dir, parallel, floor, check_guardrails, guardrail_override, json)
    _run("ablation", configured(config, ctx.args), lambda own: conditions.ablations(set_ or (), own), asked)


def _run(kind: Kind, config: Config, conditions_of: Callable[[Config], list[Condition]], asked: _Asked) -> None:
    out = asked.output_dir or (Path(config.experiment.output_dir) if config.experiment.output_dir else None)
    if out is None:
        raise BadConfig("there is no place for the sweep", fix="Give --output-dir DIR, or set experiment.output_dir.")
    floors = floors_of(asked.floor)
    for metric in floors:
        if metric not in METRICS:
            raise BadConfig(f"--floor {metric}: no run has that metric", fix=f"They have: {', '.join(METRICS)}.")
    plan = Plan(
        kind=kind,
        config=config,
        conditions=conditions_of(config),
        seeds=conditions.seeds(asked.seeds) if asked.seeds is not None else config.experiment.seeds,
        overrides=asked.guardrail_override or (),
        enforce=asked.check_guardrails,
    )

    def judge(found: Results) -> dict[str, Any]:
        rows = board.configurations(as_builtins(found.rows), str(out))
        made: dict[str, Any] = as_builtins(recommend(rows, found.base, floors))
        return made

    with progress("encoding") as encoding, watching("runs") as on_event:
        found = run_sweep(plan, out, judge, parallel=asked.parallel, on_event=on_event, encoding=encoding)
    if not asked.json:
        _print(found, floors)
    elif found.rows:
        output.json_document(found)
    if not found.rows:
        reasons = "; ".join(f"{one.condition}: {'; '.join(one.reasons)}" for one in found.failed)
        raise SubjectFailed(
            f"no condition gave a result: {reasons}",
            fix=f"Change the settings and sweep into a new folder; {out} keeps what was tried.",
        )
    output.say(f"written to {out}; look at it: crucible report --type pareto --results-dir {out} --output pareto.html")


def _print(found: Results, floors: dict[str, float]) -> None:
    places = board.analyse(board.configurations(as_builtins(found.rows), "results"), floors=floors)
    marks = {place.condition: mark(place) for place in places}
    columns = ("condition", "", "frozen tier 3", "- base", "organic holdout", "- base", "seeds", "legacy seen")
    rows = []
    for row in found.rows:
        gaps = [_gap(row, found.base, name) for name in (board.X, board.Y)]
        truths = (spread(row.frozen_tier3), gaps[0], spread(row.organic_holdout), gaps[1])
        rows.append((row.condition, marks[row.condition], *truths, row.n_seeds, _legacy(row)))
    base = (found.base.get(board.X), None, found.base.get(board.Y), None)
    output.table("", columns, [*rows, ("base encoder", "", *base, None, None)], left=2)
    for one in found.failed:
        output.out(f"{one.condition} gave no result: {'; '.join(one.reasons)}")
    _say_notes(found.rows)
    for finding in found.findings:
        output.out(f"guardrail {finding.guardrail} ({finding.level}): {finding.message}")
    if found.recommendation:
        output.out(found.recommendation["sentence"])
        for caveat in [*found.caveats, *found.recommendation["evidence"]["caveats"]]:
            output.out(f"Note: {caveat}.")


def _say_notes(rows: Sequence[Row]) -> None:
    """What is true of every condition is said once."""
    for note in dict.fromkeys(note for row in rows for note in row.notes):
        named = [row.condition for row in rows if note in row.notes]
        output.say(f"note: {note}" if len(named) == len(rows) else f"note: {', '.join(named)}: {note}")


def _gap(row: Row, base: dict[str, float], metric: str) -> str | None:
    return f"{getattr(row, metric).mean - base[metric]:+.4f}" if metric in base else None


def _legacy(row: Row) -> str | None:
    """How often a legacy item was meant to be seen, and how often the least lucky one was."""
    seen = row.exposure.get("legacy")
    return None if seen is None or seen.expected is None else f"{seen.expected:.1f} (min {seen.realised_min})"
