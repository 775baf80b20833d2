from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crucible.ari.box import Job
from crucible.ari.boxes.local import WARNING, LocalBox
from crucible.errors import MachineryFailed

from .conftest import alive, wait_for

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def note(name):
    with open(name + '.tmp', 'w') as f: f.write(str(os.getpid()))
    os.rename(name + '.tmp', name)
if os.fork() == 0:
    note('child'); time.sleep(300)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note('daemon'); time.sleep(300)
    os._exit(0)
if os.fork() == 0:
    os.setpgid(0, 0); note('other-group'); time.sleep(300)
note('first')
time.sleep(300 if sys.argv[1] == 'stay' else 0)
"""
NAMES = ("first", "child", "daemon", "other-group")


@pytest.mark.parametrize("first", ["stay", "leave"])
def test_ending_a_job_ends_everything_it_started(tmp_path: Path, first: str) -> None:
    box = LocalBox()
    (tmp_path / "family.py").write_text(FAMILY)
    running = box.start(Job("trainer", (sys.executable, "family.py", first), tmp_path, {"PATH": "/usr/bin:/bin"}))
    wait_for(lambda: all((tmp_path / name).exists() for name in NAMES))
    pids = [int((tmp_path / name).read_text()) for name in NAMES]
    if first == "leave":
        wait_for(lambda: running.wait(0.0) is not None)
    assert any(map(alive, pids))
    box.end(running)
    assert [pid for pid in pids if alive(pid)] == []


def test_closing_a_box_ends_all_its_jobs_and_no_other_process(tmp_path: Path) -> None:
    box = LocalBox()
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        jobs = [box.start(Job("trainer", ("sleep", "300"), tmp_path, {"PATH": "/usr/bin:/bin"})) for _ in range(3)]
        box.close()
        assert [job.wait(0.0) is not None for job in jobs] == [True] * 3
        assert alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_job_whose_start_was_interrupted_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(process: subprocess.Popen[bytes], mark: str) -> None:
        (tmp_path / "pid").write_text(str(process.pid))
        process.returncode = 0  # nobody will wait for it in this test
        raise KeyboardInterrupt

    monkeypatch.setattr("crucible.ari.boxes.local.LocalRunning", interrupted)
    box = LocalBox()
    with pytest.raises(KeyboardInterrupt):
        box.start(Job("trainer", ("sleep", "300"), tmp_path, {"PATH": "/usr/bin:/bin"}))
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    box.close()
    wait_for(lambda: not alive(pid))


def test_exit_codes_and_signals_come_out_as_a_shell_shows_them(tmp_path: Path) -> None:
    box = LocalBox()

    def ended(script: str) -> int:
        running = box.start(Job("trainer", ("sh", "-c", script), tmp_path, {"PATH": "/usr/bin:/bin"}))
        wait_for(lambda: running.wait(0.0) is not None)
        return box.end(running).status

    assert [ended("exit 0"), ended("exit 3"), ended("kill -9 $$")] == [0, 3, 137]


def test_peak_memory_is_measured(tmp_path: Path) -> None:
    box = LocalBox()
    running = box.start(Job("trainer", (sys.executable, "-c", "x = b'1' * 150_000_000"), tmp_path, {}))
    wait_for(lambda: running.wait(0.0) is not None)
    assert box.end(running).peak_bytes > 140_000_000


def test_a_job_gets_nothing_of_the_environment_and_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "x")
    script = "import os; print(sorted(os.environ)); print(os.listdir('/proc/self/fd'))"
    with (tmp_path / "out").open("wb") as out, (tmp_path / "secret").open("wb"):
        box = LocalBox()
        job = Job("trainer", (sys.executable, "-I", "-c", script), tmp_path, {"ONLY": "this"}, stdout=out.fileno())
        running = box.start(job)
        wait_for(lambda: running.wait(0.0) is not None)
        box.end(running)
    environment, files = (tmp_path / "out").read_text().splitlines()
    assert "HOST_SECRET" not in environment and "ONLY" in environment
    assert len(eval(files)) <= 4


def test_it_says_loudly_that_it_isolates_nothing() -> None:
    assert "isolates NOTHING" in WARNING
    limits = LocalBox().limits()
    assert all(limits[name].startswith("none") for name in ("files", "network", "memory", "user"))


def test_a_program_that_is_not_there_is_the_machinerys_failure(tmp_path: Path) -> None:
    with pytest.raises(MachineryFailed):
        LocalBox().start(Job("controller", ("no-such-program",), tmp_path, {"PATH": "/usr/bin"}))
