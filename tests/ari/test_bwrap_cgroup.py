"""Cgroups of both generations: where a job's group goes, what is set in it, and that only what was read back counts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from crucible.ari.boxes import cgroup
from crucible.ari.boxes.bwrap import rlimits
from crucible.ari.boxes.options import SHAPES

from .conftest import alive, wait_for

UNIFIED = cgroup._own_folders().get("unified") if os.geteuid() == 0 else None


def folder_with(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


def test_limits_of_the_second_generation_are_set_and_read_back(tmp_path: Path) -> None:
    names = {"memory__max": "max", "memory__swap.max": "max", "pids__max": "max", "cpu__max": "max 100000"}
    held = cgroup._set_v2(folder_with(tmp_path, **names), cgroup.Caps(1 << 30, 64, 1.5))
    assert held == {
        "memory": "1,073,741,824 bytes (cgroup v2)",
        "pids": "64 (cgroup v2)",
        "cpu": "1.5 cores (cgroup v2)",
    }
    assert (tmp_path / "memory.max").read_text() == str(1 << 30)
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    assert (tmp_path / "cpu.max").read_text() == "150000 100000"


def test_what_the_kernel_does_not_take_is_not_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", lambda self, text: len(text))  # taken, but without effect
    for name in ("memory.max", "pids.max", "cpu.max"):
        with (tmp_path / name).open("w") as stream:
            stream.write("max")
    assert cgroup._set_v2(tmp_path, cgroup.Caps(1 << 30, 64, 1.0)) == {}
    assert cgroup._set_v2(tmp_path / "nowhere", cgroup.Caps(1 << 30, 64, 1.0)) == {}


def test_without_a_cgroup_rlimits_stand_in_and_with_one_they_do_not() -> None:
    shape = SHAPES["jail"]
    assert len(list(rlimits(cgroup.Cgroup(), shape))) == 2
    assert list(rlimits(cgroup.Cgroup(held={"memory": "x", "pids": "y"}), shape)) == []


@pytest.mark.skipif(UNIFIED is None, reason="no second-generation hierarchy that this user may write")
def test_the_nearest_place_with_the_controllers_is_found_on_a_real_hierarchy() -> None:
    assert UNIFIED is not None
    top = cgroup._mount_of(UNIFIED)
    free = set((top / "cgroup.controllers").read_text().split())
    before = set((top / "cgroup.subtree_control").read_text().split())
    if not free - before:
        pytest.skip("every controller is passed on already, or none is left to this hierarchy")
    wanted = {min(free - before)}
    try:
        folder = cgroup._new_unified(UNIFIED, top, f"{cgroup.PREFIX}test-{os.getpid()}", wanted)
        assert folder is not None and wanted <= set((folder / "cgroup.controllers").read_text().split())
        folder.rmdir()
    finally:
        for name in wanted:
            (top / "cgroup.subtree_control").write_text(f"-{name}")
    none = cgroup._new_unified(UNIFIED, top, f"{cgroup.PREFIX}test-{os.getpid()}", {"no-such-controller"})
    assert none is not None  # still good for killing
    none.rmdir()


@pytest.mark.skipif(UNIFIED is None, reason="no second-generation hierarchy that this user may write")
def test_a_group_kills_everything_in_it_at_once() -> None:
    made = cgroup.make(cgroup.Caps())
    inside = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(20)]
    for process in inside:
        made.add(process.pid)
    assert made.pids() == {process.pid for process in inside}
    made.kill()
    assert [process.wait(20) for process in inside] == [-signal.SIGKILL] * 20
    wait_for(made.remove)
    assert not any(alive(process.pid) for process in inside)
