"""The tutorial is true: its commands run in order in an empty folder, and leave what it speaks of."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial-crucible.md"


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    place, env = tmp_path, os.environ | {"CRUCIBLE_CACHE_DIR": str(tmp_path / "cache")}
    for command in commands():
        first, *rest = shlex.split(command)
        if first == "cd":
            place = place / rest[0]
            continue
        assert first == "crucible"
        done = subprocess.run(
            [sys.executable, "-m", "crucible", *rest], cwd=place, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    made = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    named = set(re.findall(r"(?:--output|--html|-o) (\S+)", TUTORIAL.read_text()))
    assert named - made == set()
    (place / "first.tar.gz").write_bytes((place / "first.tar.gz").read_bytes()[:-1])
    broken = subprocess.run([sys.executable, "-m", "crucible", "capsule", "verify", "first.tar.gz"], cwd=place, env=env)
    assert broken.returncode == 6


def test_the_tutorial_shows_every_command_of_the_loop() -> None:
    shown = {command.split()[1] for command in commands() if command.startswith("crucible")}
    assert shown >= {
        "init",
        "config",
        "eval",
        "exposure",
        "train",
        "compare",
        "report",
        "mine",
        "pool",
        "sweep",
        "pareto",
        "capsule",
    }
