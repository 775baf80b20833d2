"""What the harness asks of any sandbox: start a job, end it with all its children, say which limits are really in force.

Four methods, so that bubblewrap, Docker and the local double are interchangeable. What a job is for (`role`) decides what
a box mounts and allows; a box that cannot hold a limit says so in `limits()` instead of pretending.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Role = Literal["controller", "trainer", "jail"]


@dataclass(frozen=True)
class Job:
    """One command for a box: an argument list, never a shell line; `env` is the whole environment, nothing is inherited."""

    role: Role
    argv: tuple[str, ...]
    folder: Path
    """Where it starts: the workspace or a folder beneath it, or the unpacked submission."""
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: int = subprocess.DEVNULL
    stdout: int = subprocess.DEVNULL
    stderr: int = subprocess.DEVNULL
    """File descriptors, as `subprocess` takes them. Nothing else of the harness stays open in the job."""


@dataclass(frozen=True)
class Ended:
    """How a job's first process ended: its exit status as a shell shows it (128 + signal), and its peak memory."""

    status: int
    peak_bytes: int


class Running(Protocol):
    """A job that was started."""

    def wait(self, seconds: float) -> Ended | None:
        """How its first process ended, or None if it still runs after `seconds`."""


class Box(Protocol):
    kind: str

    def limits(self) -> dict[str, str]:
        """Each limit and what holds it here; "none" where nothing does."""

    def start(self, job: Job) -> Running: ...

    def end(self, running: Running) -> Ended:
        """Kills the job and everything it started; returns when nothing of it is alive."""

    def close(self) -> None:
        """Ends every job of this box."""
