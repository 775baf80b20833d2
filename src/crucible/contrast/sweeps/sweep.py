"""Conditions x seeds -> trained runs, one table and a recommendation, in one folder; killed at any time it goes on where it was.

    S/
      sweep.json                     what is swept: kind, conditions, seeds, settings and data by digest; written first
      config.yaml                    the settings that all conditions start from
      runs/CONDITION/seed-N/         run folders (train/rundir.py)
      results.json                   the rows (aggregate.py) and the recommendation; the same bytes however often it was killed
      ledger.jsonl                   every record of every run, and each recommendation

Both truths are measured in every run. Texts are encoded once, here, before any worker starts. What a run gave is decided by
`train`, what the rows mean by the `judge` that the caller brings: this half of the project knows no board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crucible import engine
from crucible.contrast import settings
from crucible.contrast.config import Config
from crucible.contrast.progress import Progress
from crucible.contrast.sweeps import aggregate
from crucible.contrast.sweeps.aggregate import Outcome, Results
from crucible.contrast.sweeps.conditions import Condition, Kind
from crucible.contrast.sweeps.runjobs import Run, alone, environment, finished, trained
from crucible.contrast.sweeps.truths import caveats, encode_once, item_counts, require_truths
from crucible.contrast.train import sources
from crucible.contrast.train.rundir import RunDir, placed
from crucible.documents import as_builtins, read_json, to_json, write_bytes, write_json
from crucible.errors import BadConfig, GuardrailTripped, SubjectFailed
from crucible.kernel import digest, ledger

SWEEP, CONFIG, RESULTS, LEDGER, RUNS = "sweep.json", "config.yaml", "results.json", "ledger.jsonl", "runs"
Judge = Callable[[Results], Mapping[str, Any]]


class Sweep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """sweep.json."""

    schema: int
    kind: Kind
    conditions: list[Condition]
    seeds: list[int]
    config_sha256: str
    data: dict[str, str]
    """Digest of every input file."""


@dataclass(frozen=True)
class Plan:
    """What is to be swept; `overrides` and `enforce` are those of `train`."""

    kind: Kind
    config: Config
    conditions: Sequence[Condition]
    seeds: Sequence[int]
    overrides: Sequence[str] = ()
    enforce: bool = False


def sweep(
    plan: Plan,
    out: Path,
    judge: Judge,
    *,
    parallel: int = 1,
    by: str = "processes",
    on_event: engine.OnEvent | None = None,
    encoding: Progress | None = None,
) -> Results:
    """Trains what is missing and writes the results; called again with the same plan it only does what is not done."""
    config = placed(plan.config)
    runs = jobs(plan, config, out)  # every condition is checked before anything starts
    truths = require_truths(config)
    with alone(out):
        _claim(out, plan, config)
        done = {job.name: Outcome(job.seed, info) for job in runs if (info := finished(job))}
        if len(done) < len(runs):
            encode_once(config, truths, encoding)
        outcomes = engine.map_jobs(
            runs,
            outcome_of,
            workers=parallel,
            engine=by,
            done=lambda job: done.get(job.name),
            on_event=on_event,
            keep_going=True,
            env=environment(config, parallel),
        )
        by_condition: dict[str, tuple[Condition, list[Outcome]]] = {one.name: (one, []) for one in plan.conditions}
        for job, outcome in zip(runs, outcomes, strict=True):
            by_condition[job.condition][1].append(outcome)
        prints = {name: held.fingerprint for name, held in truths.items()}
        found = aggregate.results(
            plan.kind, plan.seeds, by_condition, prints, item_counts(truths), caveats(config, truths)
        )
        found = msgspec.structs.replace(found, recommendation=dict(judge(found)))
        write_json(out / RESULTS, found)
        _log(out, runs, found)
    return found


def load(path: Path) -> Results:
    """The results of a sweep's folder, or of a results.json."""
    file = path / RESULTS if path.is_dir() else path
    return read_json(
        file, Results, "the results of a sweep", "Let the sweep finish: run the same `crucible sweep` again."
    )


# --- runs --------------------------------------------------------------------------------------------------------------------


def jobs(plan: Plan, config: Config, out: Path) -> list[Run]:
    """Every condition with every seed, in that order; a condition whose settings are wrong is an error here."""
    found = []
    title = config.experiment.name or f"{config.model.train} on {config.model.encoder}"
    for condition in plan.conditions:
        named = {**condition.set, "experiment.name": f"{title}, {condition.name}"}
        try:
            own = settings.with_overrides(config, named)
        except BadConfig as error:
            raise BadConfig(f"condition {condition.name}: {error.message}", fix=error.fix, facts=error.facts) from None
        for seed in plan.seeds:
            folder = out / RUNS / condition.name / f"seed-{seed}"
            found.append(Run(condition.name, seed, own, folder, tuple(plan.overrides), plan.enforce))
    return found


def outcome_of(job: Run, report: engine.Report) -> Outcome:
    """In a worker. A run that broke, or that a guardrail stopped, is a result of the sweep and no reason to end it."""
    try:
        return Outcome(job.seed, trained(job, report))
    except (SubjectFailed, GuardrailTripped) as error:
        return Outcome(job.seed, None, error.message)


# --- the folder ----------------------------------------------------------------------------------------------------------------


def _claim(out: Path, plan: Plan, config: Config) -> None:
    """Makes the folder this sweep's own, or finds that it is; another sweep's folder is refused with the first difference."""
    data = sources.digests(config.data)
    tree = settings.digest_input(config)
    tree.pop("data")  # inputs are compared by digest, not by where they lie
    own = Sweep(1, plan.kind, list(plan.conditions), list(plan.seeds), digest.of_json(tree), data)
    path = out / SWEEP
    if path.exists():
        before = read_json(path, Sweep, "a sweep", "Give another --output-dir.")
        found = _differences(out, before, own, tree)
        if found:
            raise BadConfig(
                f"{out} holds another sweep: " + "; ".join(found),
                fix="Give another --output-dir, or the command that it was begun with.",
                facts={"differences": found},
            )
        return
    strange = [one.name for one in out.iterdir() if one.name != CONFIG and one.suffix != ".part"]
    if strange:
        raise BadConfig(
            f"{out} holds other files ({strange[0]}), and no sweep", fix="Give an --output-dir that is new."
        )
    write_bytes(out / CONFIG, settings.dump(config))
    write_json(path, own)


def _differences(out: Path, before: Sweep, own: Sweep, tree: dict[str, Any]) -> list[str]:
    found = [
        f"{what} {_shown(new)}, there {_shown(old)}"
        for what, new, old in (
            ("kind is", own.kind, before.kind),
            ("conditions are", [one.name for one in own.conditions], [one.name for one in before.conditions]),
            ("seeds are", own.seeds, before.seeds),
        )
        if new != old
    ]
    if not found and as_builtins(own.conditions) != as_builtins(before.conditions):
        found.append("conditions have the same names and other settings")
    if own.config_sha256 != before.config_sha256:
        old = settings.digest_input(RunDir(out).read_config())
        old.pop("data")
        a, b = _flat(as_builtins(tree)), _flat(as_builtins(old))
        found += [f"{key} is {a[key]}, there {b[key]}" for key in a if a[key] != b.get(key)] or ["other settings"]
    if list(own.data.values()) != list(before.data.values()):
        changed = sorted({name for name, _ in {*own.data.items()} ^ {*before.data.items()}})
        found.append(f"the data is not the same: {', '.join(changed)}")
    return found


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return found


def _log(out: Path, runs: Sequence[Run], found: Results) -> None:
    """Adds what the ledger does not have yet; a call that changes nothing adds nothing."""
    path = out / LEDGER
    lines = list(ledger.read(path)) if path.exists() else []
    known = {digest.of_json([line.entry.kind, line.entry.body]) for line in lines}
    wanted: list[tuple[str, Any]] = [("sweep.started", as_builtins(read_json(out / SWEEP, Sweep, "a sweep", "")))]
    for run in runs:
        file = RunDir(run.folder).ledger
        if file.exists():
            wanted += [("record", line.entry.body) for line in ledger.read(file, "record")]
    body = {"results_sha256": digest.of_bytes(to_json(found)), "recommendation": found.recommendation}
    wanted.append(("sweep.recommended", body))
    added = []
    for kind, body in wanted:
        own = digest.of_json([kind, as_builtins(body)])
        if own not in known:
            known.add(own)
            added.append((kind, body))
    if added:
        ledger.append_all(path, added)
