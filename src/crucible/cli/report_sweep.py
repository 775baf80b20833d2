"""A sweep's folder -> what the summary, Pareto, trajectory and dilution pages show of it. Draws nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crucible.board import pareto as frontier
from crucible.board.pareto import Configuration, Recommendation
from crucible.board.render.reports.dilution import DilutionReport, Exposure
from crucible.board.render.reports.pareto import Base, ParetoReport, Point, Seed
from crucible.board.render.reports.summary_run import Stretch
from crucible.board.render.reports.summary_sweep import Condition, SweepSummary
from crucible.board.render.reports.trajectory import Point as StepPoint
from crucible.board.render.reports.trajectory import Trajectory, Value
from crucible.board.render.reports.words import Fact, Finding
from crucible.cli import report_files as files
from crucible.cli import report_run as runs
from crucible.contrast.sweeps.aggregate import Results, Row, SeedRow
from crucible.contrast.tiers import TIERS
from crucible.contrast.train.rundir import RunInfo
from crucible.documents import as_builtins
from crucible.errors import BadConfig, BadData
from crucible.kernel import stats
from crucible.kernel.stats import Summary

X, Y = frontier.X, frontier.Y


@dataclass(frozen=True)
class Sweep:
    """The results, and the run folders that are still there: by condition and seed."""

    folder: Path
    results: Results
    folders: Mapping[str, Mapping[int, Path]]

    @property
    def rows(self) -> list[Row]:
        return self.results.rows

    @property
    def configurations(self) -> list[Configuration]:
        return frontier.configurations([as_builtins(row) for row in self.rows], str(self.folder))

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def first(self) -> tuple[Path, RunInfo] | None:
        """Any run: what they share (encoder, data) is read from it."""
        found = next((path for seeds in self.folders.values() for path in seeds.values()), None)
        return (found, files.run_info(found)) if found else None

    def infos(self) -> Iterator[tuple[Row, int, Path, RunInfo]]:
        for row in self.rows:
            for seed, path in self.folders[row.condition].items():
                yield row, seed, path, files.run_info(path)


def read(folder: Path) -> Sweep:
    found = files.results(folder)
    folders = {
        row.condition: {
            one.seed: path for one in counted(row) if (path := files.run_of(folder, row.condition, one.seed))
        }
        for row in found.rows
    }
    return Sweep(folder, found, folders)


def counted(row: Row) -> list[SeedRow]:
    """A seed whose checkpoint is that of another one is on record, but it is no evidence."""
    return [one for one in row.seeds if one.counted]


def _recommended(sweep: Sweep, floors: Mapping[str, float]) -> Recommendation:
    base = {key: stats.summary([value]) for key, value in sweep.results.base.items()}
    return frontier.recommend(sweep.configurations, base or None, floors=floors)


def _facts(sweep: Sweep) -> list[Fact]:
    plan = files.sweep_info(sweep.folder)
    found = [Fact("Sweep", sweep.name, True), Fact("Kind", sweep.results.kind)]
    found += [Fact("Configuration", plan.config_sha256, True)] if plan and plan.config_sha256 else []
    if first := sweep.first:
        found += [
            one for one in files.run_facts(first[1], first[0]) if one.word not in ("Run", "Checkpoint", "Configuration")
        ]
        found += runs.eval_facts([files.board(first[0], name) for name in ("frozen", "organic")])
    return found


def _notes(sweep: Sweep) -> list[str]:
    """What a reader must know, and what every run says, once."""
    said = [*sweep.results.caveats, *(note for row in sweep.rows for note in row.notes)]
    said += [f"{one.condition} has no result: {'; '.join(one.reasons)}" for one in sweep.results.failed]
    return [files.sentence(note) for note in dict.fromkeys(said)]


# --- pareto ------------------------------------------------------------------------------------------------------------


def pareto(folder: Path, floors: Mapping[str, float]) -> ParetoReport:
    sweep = read(folder)
    known = {name for one in sweep.configurations for name in one.metrics}
    for metric in sorted(floors.keys() - known):
        raise BadConfig(f"no row of {folder} has a metric {metric!r}", fix=f"They have: {', '.join(sorted(known))}.")
    places = frontier.analyse(sweep.configurations, floors=floors)
    advice = _recommended(sweep, floors)
    points = [
        Point(
            number=number,
            condition=place.condition,
            frozen_tier3=place.x,
            organic_holdout=place.y,
            seeds=[Seed(one.seed, one.frozen_tier3, one.organic_holdout) for one in counted(row)],
            on_frontier=place.on_frontier,
            knee=place.knee,
            meets_floor=place.meets_floor,
            dominated_by=list(place.dominated_by),
        )
        for number, (place, row) in enumerate(zip(places, sweep.rows, strict=True), 1)
    ]
    base = sweep.results.base
    return ParetoReport(
        title=f"{sweep.name}: retention against generalisation",
        points=points,
        base=Base(base[X], base[Y]) if X in base and Y in base else None,
        floors=floors,
        recommended=advice.condition,
        sentence=advice.sentence,
        caveats=[files.sentence(caveat) for caveat in advice.evidence.caveats],
        notes=_notes(sweep),
        facts=_facts(sweep),
    )


# --- summary -----------------------------------------------------------------------------------------------------------


def summary(folder: Path) -> SweepSummary:
    sweep = read(folder)
    advice = _recommended(sweep, {})
    first = sweep.first
    base_board = files.board(first[0], "base-frozen") if first else None
    infos = list(sweep.infos())
    return SweepSummary(
        title=f"{sweep.name}: {sweep.results.kind} sweep",
        kind=sweep.results.kind,
        encoder=first[1].encoder["id"] if first else "the base encoder",
        train=first[1].train if first else "head",
        conditions=[_condition(row, sweep.folders[row.condition]) for row in sweep.rows],
        base=sweep.results.base,
        base_tiers={tier: base_board.board.by_tier[tier].pass_rate for tier in TIERS} if base_board else {},
        recommended=advice.condition,
        sentence=advice.sentence,
        groups=first[1].groups if first else {},
        findings=_findings(sweep),
        overrides=sorted({one for _, _, _, info in infos for one in info.overrides}),
        missing=[
            f"{row.condition}, seed {seed} ({info.state})" for row, seed, _, info in infos if info.state != "done"
        ],
        notes=_notes(sweep),
        facts=_facts(sweep),
    )


def _condition(row: Row, folders: Mapping[int, Path]) -> Condition:
    boards = [files.board(path, "frozen") for path in folders.values()]
    tiers = {}
    for tier in TIERS:
        rates = [one.board.by_tier[tier].pass_rate for one in boards if one]
        known = [rate for rate in rates if rate is not None]
        if known and len(known) == row.n_seeds:
            tiers[tier] = stats.summary(known)
    return Condition(
        name=row.condition,
        steps=row.steps,
        seeds=[one.seed for one in counted(row)],
        frozen_tier3=row.frozen_tier3,
        frozen_overall=row.frozen_overall,
        organic_holdout=row.organic_holdout,
        tiers=tiers,
        loss=_mean_loss([runs.loss(path) for path in folders.values()]),
        checkpoints={str(one.seed): one.checkpoint for one in row.seeds},
    )


def _mean_loss(curves: Sequence[Sequence[Stretch]]) -> list[Stretch]:
    """The mean over seeds, stretch by stretch; the range is that of the seeds."""
    found = []
    for stretch in zip(*curves, strict=False):
        values = [mean for _, mean, _, _ in stretch]
        found.append((stretch[0][0], math.fsum(values) / len(values), min(values), max(values)))
    return found


def _findings(sweep: Sweep) -> list[Finding]:
    """Those of all runs; the same finding of several seeds of one condition is told once, with its seeds."""
    found: dict[tuple[str, ...], tuple[Finding, list[int]]] = {}
    for row, seed, path, _ in sweep.infos():
        for one in files.findings(path):
            own = one.message if one.when == "before" else str(seed)
            key = (row.condition, one.guardrail, one.level, str(one.overridden), own)
            found.setdefault(key, (one, []))[1].append(seed)
    told = [Finding(one.guardrail, one.level, one.when, one.message, one.step) for one in sweep.results.findings]
    for (condition, *_), (one, seeds) in found.items():
        which = ", ".join(map(str, dict.fromkeys(seeds)))
        told.append(
            msgspec.structs.replace(one, where=f"{condition}, seed{'s' if len(set(seeds)) > 1 else ''} {which}")
        )
    return told


# --- trajectory --------------------------------------------------------------------------------------------------------


def trajectory(folder: Path) -> Trajectory:
    sweep = read(folder)
    if sweep.results.kind != "steps":
        first = sweep.first
        other = f", or look at one run that has experiment.eval_every: --results-dir {first[0]}" if first else ""
        make = "crucible sweep steps --config FILE --steps 500,1000,2000 --seeds 42,123,456 --output-dir DIR"
        raise BadData.at(
            folder / "results.json",
            f"is of a {sweep.results.kind} sweep, whose conditions do not differ in their steps: there is no trajectory",
            fix=f"Make one: {make}{other}",
            field="kind",
        )
    rows = sorted(sweep.rows, key=lambda row: row.steps)
    base = sweep.results.base
    points = [StepPoint(0, _point(base.get(X)), _point(base.get(Y)))]
    points += [
        StepPoint(
            row.steps,
            _over_seeds(row.frozen_tier3, [one.frozen_tier3 for one in counted(row)]),
            _over_seeds(row.organic_holdout, [one.organic_holdout for one in counted(row)]),
        )
        for row in rows
    ]
    return Trajectory(
        title=f"{sweep.name}: both truths by steps",
        source="sweep",
        points=[point for point in points if point.frozen_tier3 or point.organic_holdout],
        cliff=next((cliff for one in sweep.results.findings if (cliff := runs.cliff_of(one))), None),
        seeds=max(row.n_seeds for row in rows),
        notes=_notes(sweep),
        facts=_facts(sweep),
    )


def _point(value: float | None) -> Value | None:
    return None if value is None else Value(value, None)


def _over_seeds(found: Summary, seeds: list[float]) -> Value:
    return Value(found.mean, None if found.se is None else (found.mean - found.se, found.mean + found.se), seeds)


# --- dilution ----------------------------------------------------------------------------------------------------------


def dilution(folder: Path) -> DilutionReport:
    sweep = read(folder)
    return DilutionReport(
        title=f"{sweep.name}: exposures by condition",
        rows=[one for row in sweep.rows for one in _exposures(row, sweep.folders[row.condition])],
        levels=runs.LEVELS,
        counts=[],
        conditions=len(sweep.rows),
        seeds=max(row.n_seeds for row in sweep.rows),
        empty_pools=[],
        notes=_notes(sweep),
        facts=_facts(sweep),
    )


def _exposures(row: Row, folders: Mapping[int, Path]) -> list[Exposure]:
    """What the aggregate says (the lowest minimum, the most never seen), and the highest maximum of the logs that are there."""
    most: dict[str, int] = {}
    for path in folders.values():
        for pool, times in runs.times_seen(path, files.run_info(path))[0].items():
            most[pool] = max(most.get(pool, 0), *times)
    return [
        Exposure(
            condition=row.condition,
            pool=pool,
            items=None,
            expected=found.expected,
            status=found.status or "",
            realised_mean=found.realised_mean,
            realised_min=found.realised_min,
            realised_max=most.get(pool),
            never_seen=found.never_seen if found.realised_mean is not None else None,
        )
        for pool, found in row.exposure.items()
        if found.expected is not None
    ]
