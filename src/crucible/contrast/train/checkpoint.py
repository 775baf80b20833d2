"""A run's weights at a step <-> checkpoints/step-N: written whole or not at all, sealed with digests, the last two kept.

A checkpoint that is damaged, or that does not belong to the log beside it, is not used: the one before it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crucible.contrast.train import log
from crucible.contrast.train.log import Prefix
from crucible.contrast.train.rundir import RunDir
from crucible.documents import new_folder, read_json, write_json
from crucible.errors import BadData
from crucible.kernel import digest

SEAL = "checkpoint.json"
_KEPT = 2


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint is: its files by digest, and the log it continues."""

    schema: int
    step: int
    log_sha256: str
    files: dict[str, str]


@dataclass(frozen=True)
class Found:
    """Where a run can go on: the newest sound checkpoint, or the very beginning."""

    step: int
    folder: Path | None
    prefix: Prefix
    notes: list[str]
    """Why newer ones were not used."""


@contextlib.contextmanager
def saving(run: RunDir, step: int, log_sha256: str) -> Iterator[Path]:
    """A draft folder for the files; when the block ends well it is sealed, in its place, and the third last is gone."""
    with new_folder(run.step(step)) as draft:
        yield draft
        seal = Seal(1, step, log_sha256, {name: digest.of_file(draft / name) for name in _names(draft)})
        sync_files(draft)
        write_json(draft / SEAL, seal)
    for old in run.steps()[_KEPT:]:
        shutil.rmtree(run.step(old), ignore_errors=True)


def newest(run: RunDir) -> Found:
    """Checkpoints that are not used are removed: the steps after the one that is will be taken again."""
    notes: list[str] = []
    known = log.prefixes(run.log, [0, *run.steps()])
    for step in run.steps():
        problem = _problem(run, step, known)
        if problem is None:
            return Found(step, run.step(step), known[step], notes)
        notes.append(f"the checkpoint of step {step} is not used: {problem}")
        shutil.rmtree(run.step(step), ignore_errors=True)
    return Found(0, None, known[0], notes)


def _problem(run: RunDir, step: int, known: dict[int, Prefix]) -> str | None:
    folder = run.step(step)
    try:
        seal = read_json(folder / SEAL, Seal, "the seal of a checkpoint", "")
    except BadData as error:
        return error.message
    if (seal.schema, seal.step) != (1, step):
        return f"its seal speaks of step {seal.step}"
    if set(_names(folder)) - {SEAL} != set(seal.files):
        return "files are missing or were added"
    changed = [name for name, sha256 in seal.files.items() if digest.of_file(folder / name) != sha256]
    if changed:
        return f"{changed[0]} was changed"
    if step not in known:
        return "the log ends before it"
    return None if known[step].sha256 == seal.log_sha256 else "it belongs to another log"


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def sync_files(folder: Path) -> None:
    """Makes the bytes survive a power cut; libraries write their files without it."""
    for name in _names(folder):
        handle = os.open(folder / name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
