"""What a training run leaves on disk, spelled in one place, and the one document that says how far it is. Trains nothing.

R/
  config.yaml            the settings with every default filled in
  run.json               RunInfo: what went in, how far it is, what came out; written anew as the run moves on
  items.jsonl            {"index", "id", "digest", "tier", "pool", "sense"} of every training item
  log.jsonl              one line a step; no times in it, so that it is the same bytes however often the run was killed
  checkpoints/step-N/    weights and optimiser after step N, for resuming; the last two are kept
  checkpoint/            the trained model: `crucible eval --model head:R`, or st:R/checkpoint
  scoreboards/           base-frozen.json, base-organic.json, step-N-frozen.json …, frozen.json, organic.json, items beside each
  findings.jsonl         what the guardrails found, in order
  ledger.jsonl           run.started, one record a scoreboard, run.finished with the digest of every file above
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from crucible.contrast import settings
from crucible.contrast.config import Config
from crucible.documents import as_builtins, read_bytes, read_json, to_json, write_bytes
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest

METRICS = ("frozen_tier3", "frozen_overall", "frozen_tier3_q10", "organic_holdout", "organic_q10")
State = Literal["training", "done", "blocked"]
_MADE_BY = "Give a folder of `crucible train`."


class PoolExposure(msgspec.Struct, frozen=True):
    """How often the items of one tier-3 pool were meant to be seen, and were; null where the pool is empty."""

    expected: float | None
    status: str | None
    realised_mean: float | None
    realised_min: int | None
    never_seen: int


class RunInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    state: State
    seed: int
    steps: int
    steps_done: int
    encoder: dict[str, str]
    """The one that training starts from: id and digest."""
    subject: str
    train: Literal["head", "full"]
    data: dict[str, str]
    """Digest of every input file."""
    groups: dict[str, int]
    exposure: dict[str, PoolExposure]
    notes: list[str]
    overrides: list[str]
    metrics: dict[str, float | None]
    checkpoint: str | None
    """Digest of the trained encoder, as its records carry it."""
    config_sha256: str
    versions: dict[str, str]
    device: str
    seconds: float


class ItemLine(msgspec.Struct, frozen=True):
    """One line of items.jsonl."""

    index: int
    id: str
    digest: str
    tier: str
    pool: str
    sense: str | None


class RunDir:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.info = path / "run.json"
        self.items = path / "items.jsonl"
        self.log = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.checkpoint = path / "checkpoint"
        self.scoreboards = path / "scoreboards"
        self.findings = path / "findings.jsonl"
        self.ledger = path / "ledger.jsonl"

    def step(self, number: int) -> Path:
        return self.checkpoints / f"step-{number:08d}"

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, the latest first; whether it is sound is not said here."""
        found = (re.fullmatch(r"step-(\d{8,})", path.name) for path in self.checkpoints.glob("step-*"))
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def scoreboard(self, name: str) -> Path:
        """`frozen`, `base-organic`, `step-00000500-frozen`, …"""
        return self.scoreboards / f"{name}.json"

    def board_items(self, name: str) -> Path:
        return self.scoreboards / f"{name}.items.jsonl"

    def files(self) -> list[Path]:
        """Every file whose digest closes the run, in a fixed order; run.json and the ledger come last and not here."""
        inside = [path for folder in (self.checkpoint, self.scoreboards) for path in folder.rglob("*")]
        return [self.config, self.items, self.log, self.findings, *sorted(path for path in inside if path.is_file())]

    def read_info(self) -> RunInfo | None:
        """None where nothing has begun."""
        if not self.info.exists():
            return None
        return read_json(self.info, RunInfo, "the state of a training run", _MADE_BY)

    def write_info(self, info: RunInfo) -> None:
        write_bytes(self.info, to_json(info))

    def read_config(self) -> Config:
        """As it was written: a training run's own file extends nothing and holds no variable."""
        try:
            tree = yaml.safe_load(read_bytes(self.config, "the settings of a run").replace(b"$${", b"${"))
            return msgspec.convert(tree, type=Config)
        except (yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
            raise IntegrityBroken(f"{self.config} was changed: {error}", fix="Restore it from a copy.") from None


def placed(config: Config) -> Config:
    """The same settings with absolute paths: they mean the same from everywhere and in a file of any folder."""
    data, experiment = config.data, config.experiment
    kind, colon, place = config.model.encoder.partition(":")
    local = colon and (kind in ("npy", "onnx", "head") or (kind == "st" and Path(place).exists()))
    return msgspec.structs.replace(
        config,
        data=msgspec.structs.replace(
            data,
            bundles=tuple(os.path.abspath(one) for one in data.bundles),  # noqa: PTH100  links stay as they were named
            frozen_eval=_absolute(data.frozen_eval),
            organic_eval=_absolute(data.organic_eval),
            embeddings_cache=_absolute(data.embeddings_cache),
        ),
        model=msgspec.structs.replace(config.model, encoder=f"{kind}:{_absolute(place)}") if local else config.model,
        experiment=msgspec.structs.replace(experiment, output_dir=_absolute(experiment.output_dir)),
    )


def _absolute(path: str | None) -> str | None:
    return path and os.path.abspath(path)  # noqa: PTH100


def require_same_run(run: RunDir, info: RunInfo, config: Config, seed: int, data: dict[str, str]) -> None:
    """A folder belongs to one configuration, one seed and one set of inputs; the first difference is named."""
    if info.schema != 1:
        raise BadData.at(run.info, f"is {info.schema}, this crucible reads 1", field="schema", fix="Update crucible.")
    if digest.of_file(run.config) != info.config_sha256:
        raise IntegrityBroken(f"{run.config} is not what {run.info.name} says it is", fix="Restore it from a copy.")
    before, now = _compared(run.read_config()), _compared(config)
    differences = [f"{key} is {now[key]!r}, there it is {before[key]!r}" for key in before if before[key] != now[key]]
    if info.seed != seed:
        differences.append(f"the seed is {seed}, there it is {info.seed}")
    if list(info.data.values()) != list(data.values()):
        changed = sorted({*info.data.items()} ^ {*data.items()})
        differences.append(f"the data is not the same: {', '.join(dict.fromkeys(name for name, _ in changed))}")
    if differences:
        raise BadConfig(
            f"{run.path} holds another run: " + "; ".join(differences),
            fix="Give another --output-dir, or the settings it was begun with (its config.yaml).",
            facts={"differences": differences},
        )


def _compared(config: Config) -> dict[str, Any]:
    """Dotted keys and values of what makes a run what it is. Inputs are compared by digest, not by where they lie."""
    tree = settings.digest_input(config)
    tree.pop("data")
    tree["experiment"] = tree["experiment"] | {"name": config.experiment.name}
    return _flat(as_builtins(tree), "")


def _flat(tree: dict[str, Any], before: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": repr(value)}
    return found
