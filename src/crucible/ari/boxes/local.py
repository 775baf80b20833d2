"""A job -> plain processes of this machine, with no isolation at all: for tests and demonstrations, and it says so loudly.

It does end what it started: the job's session, everything descended from it, and everything that carries its mark in the
environment (which a double fork and setsid keep). A process that also wipes its environment escapes; the real boxes kill
by cgroup.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from crucible.ari.box import Ended, Job, Running
from crucible.errors import MachineryFailed, SubjectFailed

WARNING = (
    "the local box isolates NOTHING: the agent and its submission run as you, with your files and your network. "
    "Fit for tests and demonstrations, never for a published score."
)
MARK = "CRUCIBLE_LOCAL_JOB"
_PATIENCE_S = 10.0


class LocalRunning:
    """A started process; a thread reaps it, so that its memory peak is known and no zombie stays."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self.pid = process.pid
        self.mark = mark
        self._process = process
        self._ended: Ended | None = None
        self._done = threading.Event()
        threading.Thread(target=self._reap, name=f"reap-{self.pid}", daemon=True).start()

    def wait(self, seconds: float) -> Ended | None:
        self._done.wait(max(0.0, seconds))
        return self._ended

    def _reap(self) -> None:
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # subprocess must not wait for it a second time
        self._ended = Ended(code if code >= 0 else 128 - code, usage.ru_maxrss * 1024)
        self._done.set()


class LocalBox:
    kind = "local"

    def __init__(self) -> None:
        self._running: list[LocalRunning] = []
        self._starting: set[str] = set()
        """Marks of jobs whose start was not seen to end: a signal may arrive between a process and its handle."""
        self._lock = threading.Lock()

    def limits(self) -> dict[str, str]:
        return {
            "files": "none: everything this user can read or write",
            "network": "none: the host's network",
            "memory": "none",
            "processes": "none",
            "disk": "none",
            "user": "none: the user who started the harness",
            "time": "the harness's clock; kills the session, its descendants and whatever carries the job's mark",
        }

    def start(self, job: Job) -> LocalRunning:
        mark = secrets.token_hex(16)
        with self._lock:
            self._starting.add(mark)
        try:
            process = subprocess.Popen(
                job.argv,
                cwd=job.folder,
                env={**job.env, MARK: mark},
                stdin=job.stdin,
                stdout=job.stdout,
                stderr=job.stderr,
                start_new_session=True,
            )
        except OSError as error:
            self._starting.discard(mark)
            if job.role == "trainer" and not job.folder.is_dir():
                raise SubjectFailed("the folder of the call is gone", fix="Call from a folder that stays.") from None
            raise MachineryFailed(
                f"the local box could not start {job.argv[0]}: {error.strerror or error}",
                fix="Check that the program exists and that the machine has processes and memory left.",
            ) from error
        running = LocalRunning(process, mark)
        with self._lock:
            self._running.append(running)
            self._starting.discard(mark)
        return running

    def end(self, running: Running) -> Ended:
        if not isinstance(running, LocalRunning):
            raise TypeError(f"not a job of this box: {running!r}")
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            alive = list(_family(running))
            for pid in alive:
                _kill(pid)
            ended = running.wait(0.0 if not alive else 0.02)
            if ended is not None and not alive:
                break
            if time.monotonic() > give_up:
                raise MachineryFailed(
                    f"processes {alive} of an ended job are still alive after {_PATIENCE_S:g} s of killing",
                    fix="Look at these processes (state D?) before anything is graded on this machine.",
                )
        with self._lock:
            if running in self._running:
                self._running.remove(running)
        return ended

    def close(self) -> None:
        with self._lock:
            rest = list(self._running)
            lost = set(self._starting)
        for running in rest:
            self.end(running)
        for mark in lost:
            while alive := list(_marked(mark)):
                for pid in alive:
                    _kill(pid)


def _family(running: LocalRunning) -> Iterator[int]:
    """Live processes of the job: by session, by descent, by mark."""
    table = dict(_processes())
    # The first process's number may be used again once it was reaped; until then its session and children are ours.
    roots = {running.pid} if running.wait(0.0) is None else set()
    members = {pid for pid, (_, session) in table.items() if session == running.pid or pid in roots}
    members |= set(_marked(running.mark))
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in table.items() if parent in members} - members
        members |= more
        grown = bool(more)
    yield from members


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}".encode()
    yield from (pid for pid, _ in _processes() if wanted in _environment(pid))


def _processes() -> Iterator[tuple[int, tuple[int, int]]]:
    """(pid, (parent, session)) of every process that is not already dead."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_bytes().rpartition(b") ")[2].split()
        except OSError:  # gone in the meantime
            continue
        if fields[0] not in (b"Z", b"X"):
            yield int(entry.name), (int(fields[1]), int(fields[3]))


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or somebody else's
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise MachineryFailed(
            f"process {pid} of a job cannot be ended: {error.strerror}", fix="End it by hand before grading."
        ) from error
