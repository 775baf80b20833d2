"""One configuration with one seed as a job of the engine -> its finished run, in a worker of its own. Chooses no settings."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crucible import engine
from crucible.contrast import settings
from crucible.contrast.config import Config
from crucible.contrast.train.log import Hooks
from crucible.contrast.train.run import train
from crucible.contrast.train.rundir import RunDir, RunInfo, placed
from crucible.errors import BadConfig, Mistake
from crucible.kernel import digest

_BUSY_S = 10.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Run:
    """One condition with one seed: a job of the engine."""

    condition: str
    seed: int
    config: Config
    folder: Path
    overrides: tuple[str, ...]
    enforce: bool

    @property
    def name(self) -> str:
        return f"{self.condition}/seed-{self.seed}"


def trained(job: Run, report: engine.Report) -> RunInfo:
    """In a worker: the run, resumed where it was."""
    _wait_until_free(job.folder)
    hooks = Hooks(on_step=lambda step: report(step.step, step.steps))
    return train(job.config, job.folder, seed=job.seed, overrides=job.overrides, enforce=job.enforce, hooks=hooks)


def finished(job: Run) -> RunInfo | None:
    """What is on disk of a run that is done; None where `train` has to look at it."""
    info = RunDir(job.folder).read_info()
    if info is None or info.state != "done":
        return None
    same = info.seed == job.seed and info.config_sha256 == digest.of_bytes(settings.dump(placed(job.config)))
    return info if same else None


def environment(config: Config, parallel: int) -> dict[str, str]:
    """One thread a worker: more of them share the cores, and sums come in one order however many workers there are."""
    threads = 1 if config.model.train == "head" else max(1, (os.cpu_count() or 1) // parallel)
    return {**dict.fromkeys(_ONE_THREAD, str(threads)), "TOKENIZERS_PARALLELISM": "false"}


def _wait_until_free(folder: Path) -> None:
    """A worker of a sweep that was just killed may still hold the folder for a moment."""
    if not folder.is_dir():
        return
    until = time.monotonic() + _BUSY_S
    while time.monotonic() < until:
        with contextlib.suppress(Mistake), alone(folder):
            return
        time.sleep(0.2)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process a folder; the lock goes with the process that holds it."""
    if folder.exists() and not folder.is_dir():
        raise BadConfig(f"{folder} is a file, not a place for results", fix="Give another --output-dir.")
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "Wait for it, or give another --output-dir."
            raise Mistake(f"another process works in {folder}", fix=fix) from None
        yield
    finally:
        os.close(handle)
