"""What every test may rely on: one thread, no network, repeatable examples, and the real command in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

# Disks and processes of a shared machine are slow at times: no deadline, and slowness is no failure. On CI the examples are
# the same every time, so that a red build says something about the change.
settings.register_profile("here", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


class Ran(NamedTuple):
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document of --json; anything else on stdout is a failure."""
        return json.loads(self.out)


@pytest.fixture
def crucible(tmp_path: Path) -> Callable[..., Ran]:
    """Runs `crucible ARGS` for real, in a fresh folder: `crucible("ledger", "verify", path) -> (code, out, err)`."""
    folder = tmp_path / "cwd"

    def run(
        *args: object,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: str = "",
        file_limit: int | None = None,
    ) -> Ran:
        """`file_limit` is a full disk: no file may grow beyond that many bytes."""
        folder.mkdir(exist_ok=True)
        limit = file_limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit)))
        done = subprocess.run(
            [sys.executable, "-m", "crucible", *(os.fsencode(str(arg)) for arg in args)],
            cwd=cwd or folder,
            env=os.environ | (env or {}),
            input=stdin.encode(),
            capture_output=True,
            timeout=300,
            preexec_fn=limit or None,
        )
        return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    return run
