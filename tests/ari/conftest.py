"""Small tracks, small bundles and a live door, all of them real: sockets, processes and files of this machine."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crucible.ari import track as tracks
from crucible.ari.boxes.local import LocalBox
from crucible.ari.clock import Clock
from crucible.ari.runner import Runner
from crucible.ari.submit import Book
from crucible.ari.track import Track
from crucible.kernel import ledger

ECHO = """
class Model:
    def __init__(self, directory):
        pass

    def next_byte_logits(self, prefix):
        logits = [0.0] * 256
        logits[prefix[-1]] = 1.0
        return logits
"""
"""Repeats the last byte of the prefix for ever."""


def small_track(**changes: Any) -> Track:
    return msgspec.structs.replace(tracks.load("mini"), **{"name": "tiny", **changes})


def write_bundle(folder: Path, code: str = ECHO, **files: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "entry": "model:Model", "weights": []}))
    (folder / "model.py").write_text(code)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@dataclass
class Door:
    """A runner that serves, a workspace, and the shell client as an agent would call it."""

    runner: Runner
    clock: Clock
    book: Book
    workspace: Path
    audit: Path
    env: dict[str, str]

    def call(self, *args: str, cwd: Path | None = None, **more: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["runner", *args], cwd=cwd or self.workspace, env=self.env, capture_output=True, timeout=60, **more
        )

    def begin(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["runner", *args],
            cwd=self.workspace,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def script(self, name: str, text: str) -> str:
        (self.workspace / name).write_text(text)
        return name

    def audited(self) -> list[dict[str, Any]]:
        ledger.verify(self.audit)
        return [line.entry.body for line in ledger.read(self.audit)]


@pytest.fixture
def open_door(tmp_path: Path) -> Iterator[Callable[..., Door]]:
    doors: list[tuple[Runner, LocalBox]] = []

    def make(now: Callable[[], float] | None = None, **numbers: Any) -> Door:
        track, box = small_track(**numbers), LocalBox()
        clock = Clock(track, now) if now else Clock(track)
        workspace, audit = tmp_path / "workspace", tmp_path / "audit.jsonl"
        workspace.mkdir()
        book = Book(tmp_path / "history.jsonl", tmp_path / "artefacts", track, clock, lambda snapshot: (1, 2))
        job_env = {"PATH": "/usr/bin:/bin", "ALLOWED": "yes"}
        runner = Runner(box=box, clock=clock, track=track, book=book, workspace=workspace, audit=audit, job_env=job_env)
        folder = runner.open()
        doors.append((runner, box))
        clock.start()
        env = {
            "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "RUNNER_SOCKET": str(folder / "runner.sock"),
            "RUNNER_WORKSPACE": str(workspace.resolve()),
            "SECRET_OF_THE_AGENT": "must not reach the job",
        }
        return Door(runner, clock, book, workspace, audit, env)

    yield make
    for runner, box in doors:
        runner.close()
        box.close()


def alive(pid: int) -> bool:
    """A process that still runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Returns as soon as the condition holds; fails if it never does."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
