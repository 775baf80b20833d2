"""A results folder -> what kind of output it is, and its files, read and checked; a missing one is named with its maker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from crucible.board.render.reports.words import Fact, Finding
from crucible.contrast import versus
from crucible.contrast.guardrails import Finding as Found
from crucible.contrast.sweeps import sweep as sweeps
from crucible.contrast.sweeps.aggregate import Results
from crucible.contrast.sweeps.sweep import Sweep
from crucible.contrast.train.rundir import RunDir, RunInfo
from crucible.contrast.versus import Loaded
from crucible.documents import open_input, read_json
from crucible.errors import BadData

T = TypeVar("T")
Kind = Literal["run", "sweep", "mining"]
MAKERS: Mapping[Kind, str] = {
    "run": "crucible train --config FILE --output-dir DIR",
    "sweep": "crucible sweep ratio --config FILE --ratios 85_10_5,75_15_10,65_25_10 --seeds 42,123,456 --output-dir DIR",
    "mining": "crucible mine --events FILE --model minilm --existing-tier3 FILE --output OUT.jsonl",
}
NAMES: Mapping[Kind, str] = {"run": "a training run", "sweep": "a sweep", "mining": "the output of mining"}


def kind_of(where: Path) -> Kind:
    """By the file that only this kind of folder has."""
    if not where.exists():
        raise BadData.at(where, "no such folder or file", fix="Give the folder of a run or a sweep, or a stats file.")
    if where.is_file() or list(where.glob("*.stats.json")):
        return "mining"
    if (where / "sweep.json").exists() or (where / "results.json").exists():
        return "sweep"
    if (where / "run.json").exists():
        return "run"
    raise BadData.at(
        where,
        "holds no run.json, no sweep.json and no *.stats.json: it is no output of train, sweep or mine",
        fix=f"Make one: {MAKERS['run']}, or {MAKERS['sweep']}",
    )


def require(where: Path, report: str, wanted: Sequence[Kind]) -> Kind:
    """The kind of `where`, if the report can be made of it."""
    kind = kind_of(where)
    if kind in wanted:
        return kind
    inside = sorted(where.glob("runs/*/*/run.json"))[:1] if kind == "sweep" and "run" in wanted else []
    fix = f"Give one of its runs: --results-dir {inside[0].parent}" if inside else f"Make one: {MAKERS[wanted[0]]}"
    raise BadData.at(
        where, f"is {NAMES[kind]}; a {report} report needs {' or '.join(NAMES[k] for k in wanted)}", fix=fix
    )


def missing(path: Path, what: str, command: str) -> BadData:
    return BadData.at(path, f"is not there: {what}", fix=command)


# --- a run -------------------------------------------------------------------------------------------------------------


def run_info(folder: Path) -> RunInfo:
    found = RunDir(folder).read_info()
    if found is None:
        raise missing(folder / "run.json", "the state of a training run", f"Make it: {MAKERS['run']}")
    return found


def board(folder: Path, name: str) -> Loaded | None:
    """A scoreboard with its items, their digest checked; None where that truth is not configured or not measured yet."""
    path = RunDir(folder).scoreboard(name)
    return versus.load(path) if path.exists() else None


def items_of(loaded: Loaded, folder: Path, name: str) -> Mapping[str, Any]:
    if loaded.items is None:
        path = RunDir(folder).board_items(name)
        raise missing(path, f"the per-item results of {name}.json", f"Run again: {MAKERS['run']}")
    return loaded.items


def found_in(folder: Path) -> list[Found]:
    """Everything the guardrails wrote down, as they wrote it."""
    path = RunDir(folder).findings
    return list(lines(path, Found)) if path.exists() else []


def findings(folder: Path) -> list[Finding]:
    return [
        Finding(one.guardrail, one.level, one.when, one.message, one.step, one.overridden) for one in found_in(folder)
    ]


def lines(path: Path, shape: type[T]) -> Iterator[T]:
    """The lines of a JSONL file; a bad one is named by its number."""
    decode = msgspec.json.Decoder(shape).decode
    with open_input(path, "one JSON object a line") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield decode(line)
            except msgspec.DecodeError as error:
                if not line.endswith(b"\n"):
                    return  # a run that is still going, or was killed: its last line is not whole yet
                raise BadData.at(
                    path, str(error), fix="Restore the file from a copy, or run again.", line=number
                ) from None


# --- a sweep -----------------------------------------------------------------------------------------------------------


def results(folder: Path) -> Results:
    path = folder / sweeps.RESULTS
    if not path.exists():
        again = "Run the same `crucible sweep` again: it goes on where it stopped."
        raise missing(path, "it is written when the runs are done", again)
    found = sweeps.load(folder)
    if not found.rows:
        why = "; ".join(f"{one.condition}: {one.reasons[0]}" for one in found.failed if one.reasons)
        raise BadData.at(
            path, f"no condition has a result: {why}", fix="Change the settings and sweep again.", field="rows"
        )
    return found


def sweep_info(folder: Path) -> Sweep | None:
    path = folder / sweeps.SWEEP
    return read_json(path, Sweep, "the plan of a sweep", f"Make it: {MAKERS['sweep']}") if path.exists() else None


def run_of(folder: Path, condition: str, seed: int) -> Path | None:
    """The folder of one run, where it is there; looked for by name, so that no name leads out of the sweep."""
    runs = folder / "runs"
    found = next((path for path in runs.iterdir() if path.name == condition), None) if runs.is_dir() else None
    path = found and found / f"seed-{seed}"
    return path if path and (path / "run.json").exists() else None


# --- facts -------------------------------------------------------------------------------------------------------------


def run_facts(info: RunInfo, folder: Path) -> list[Fact]:
    return [
        Fact("Run", folder.resolve().name, True),
        Fact("Base encoder", info.encoder["id"]),
        Fact("Its digest", info.encoder["digest"], True),
        Fact("Checkpoint", info.checkpoint or "none yet", True),
        Fact("Configuration", info.config_sha256, True),
        *(Fact(_last(name), sha, True) for name, sha in info.data.items()),
        Fact(
            "Versions", ", ".join(f"{name} {version}" for name, version in info.versions.items()) + f"; {info.device}"
        ),
    ]


def sentence(note: str) -> str:
    """A note with its full stop; its first letter stays, because it may be that of a name."""
    return note if note.endswith((".", "!", "?")) else f"{note}."


def _last(path: str) -> str:
    """The end of a path: where a file lay is a note, its digest is the fact."""
    return "/".join(Path(path).parts[-2:])
