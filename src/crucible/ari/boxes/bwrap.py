"""A job -> processes in a bubblewrap sandbox: no network, few files, a user of its own, limits that were seen to hold.

The embedded default for every role. As root a job gets a host user that owns nothing (no user namespace: as root that would
map to root) and cgroups; without root a user namespace, and cgroups only where they are delegated. What is really in force
is measured once by a job that looks at itself; `limits()` says so, and a machine on which it is not so is refused. Kernel
exploits are out of scope: every box shares the host's kernel.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from crucible.ari.box import Ended, Job, Role, Running
from crucible.ari.boxes import cgroup
from crucible.ari.boxes.options import JAIL, SHAPES, Shape, command, options, system_calls, user
from crucible.errors import MachineryFailed, SandboxUnavailable, SubjectFailed

_PATIENCE_S = 10.0
_OTHERWISE = "or use `--box local`, which isolates nothing"


class BwrapRunning:
    """A started sandbox: bubblewrap itself, the first process inside it, and the cgroups around that."""

    def __init__(self, group: cgroup.Cgroup) -> None:
        self.group = group
        self.first = -1
        """A descriptor of the sandbox's first process: a number could be another process's by now."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: Ended | None = None
        self._done = threading.Event()

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        threading.Thread(target=self._reap, args=(process,), name=f"reap-{process.pid}", daemon=True).start()

    def wait(self, seconds: float) -> Ended | None:
        self._done.wait(max(0.0, seconds))
        return self._ended

    def alive(self) -> bool:
        """Whether anything is left; when the first process of a process namespace is gone, all others are."""
        first = self.first >= 0 and not select.select([self.first], [], [], 0)[0]
        return first or (self._process is not None and self._ended is None) or bool(self.group.pids())

    def kill(self, *, monitor: bool) -> None:
        """Everything inside; bubblewrap itself then ends by itself and tells how, unless it must not be waited for."""
        self.group.kill()
        if self.first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.first, signal.SIGKILL)
        if (monitor or self.first < 0) and self._process is not None and self._ended is None:
            self._process.kill()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        _, status, usage = os.wait4(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code  # subprocess must not wait for it a second time
        peak = self.group.peak_bytes() or usage.ru_maxrss * 1024
        self._ended = Ended(code if code >= 0 else 128 - code, peak)
        self._done.set()


class BwrapBox:
    kind = "bwrap"

    def __init__(self, shapes: Mapping[Role, Shape] = SHAPES) -> None:
        self._shapes = dict(shapes)
        self._jobs = _Jobs()
        self._limits = _probed()

    def limits(self) -> dict[str, str]:
        return dict(self._limits)

    def start(self, job: Job) -> BwrapRunning:
        return self._jobs.start(job, self._shapes[job.role])

    def end(self, running: Running) -> Ended:
        return self._jobs.end(running)

    def close(self) -> None:
        self._jobs.close()


class _Jobs:
    """Everything a box has started and not yet ended."""

    def __init__(self) -> None:
        self._running: list[BwrapRunning] = []
        self._lock = threading.Lock()

    def start(self, job: Job, shape: Shape) -> BwrapRunning:
        program, setpriv = _program("bwrap", "bubblewrap"), _program("setpriv", "util-linux")
        running = BwrapRunning(cgroup.make(shape.caps))
        with self._lock:
            self._running.append(running)  # before it starts: a signal in between must not lose it
        begun = False
        try:
            _launch([program], job, shape, running, setpriv)
            begun = True
        except OSError as error:
            if job.role == "trainer" and not job.folder.is_dir():
                raise SubjectFailed("the folder of the call is gone", fix="Call from a folder that stays.") from None
            raise _failed(job, error.strerror or str(error)) from error
        finally:
            if not begun:
                self.end(running)
        return running

    def end(self, running: Running) -> Ended:
        if not isinstance(running, BwrapRunning):
            raise TypeError(f"not a job of this box: {running!r}")
        began = time.monotonic()
        while running.alive() or not running.group.remove():
            running.kill(monitor=time.monotonic() > began + 1)
            if running.wait(0.01) is not None:
                time.sleep(0.002)  # the kernel frees a group a moment after its last process
            if time.monotonic() > began + _PATIENCE_S:
                raise MachineryFailed(
                    f"an ended job is still alive after {_PATIENCE_S:g} s of killing: processes "
                    f"{sorted(running.group.pids())}, cgroups {[str(f) for f in running.group.folders.values()]}",
                    fix="Look at these processes (state D?) before anything is graded on this machine.",
                )
        with self._lock:
            if running in self._running:
                self._running.remove(running)
        if running.first >= 0:
            os.close(running.first)
            running.first = -1
        return running.wait(0.0) or Ended(128 + signal.SIGKILL, 0)

    def close(self) -> None:
        with self._lock:
            rest = list(self._running)
        for running in rest:
            self.end(running)


# --- starting ----------------------------------------------------------------------------------------------------------


def _launch(program: list[str], job: Job, shape: Shape, running: BwrapRunning, setpriv: str) -> None:
    """Started, but held back until its limits are set: nothing of it ever runs outside of them."""
    described, describing = os.pipe()
    held, holding = os.pipe()
    given = [_memory(b"\0".join(map(os.fsencode, options(job, shape)))), _memory(system_calls(job.role))]
    whole = False
    try:
        argv = [*program, "--args", str(given[0]), "--seccomp", str(given[1])]
        argv += ["--info-fd", str(describing), "--block-fd", str(held), "--", *command(job, shape, setpriv)]
        process = subprocess.Popen(
            argv,
            env={},
            stdin=job.stdin,
            stdout=job.stdout,
            stderr=job.stderr,
            pass_fds=(*given, describing, held),
            start_new_session=True,
        )
        running.follow(process)
        os.close(describing)
        describing = -1
        first = _first_process(described, job)
        running.first = os.pidfd_open(first)
        running.group.add(first)
        for number, most in rlimits(running.group, shape):
            resource.prlimit(first, number, (most, most))
        os.write(holding, b"go")
        whole = True
    finally:
        if not whole:
            running.kill(monitor=True)  # before its gate closes, which would let it go
        for fd in (described, describing, held, holding, *given):
            if fd >= 0:
                os.close(fd)


def _memory(data: bytes) -> int:
    """A descriptor to read these bytes from."""
    fd = os.memfd_create("given")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _first_process(described: int, job: Job) -> int:
    """The host's number of the sandbox's first process, as bubblewrap reports it."""
    data, until = b"", time.monotonic() + _PATIENCE_S
    while select.select([described], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(described, 4096)
        if not chunk:
            break
        data += chunk
    try:
        return int(json.loads(data)["child-pid"])
    except (ValueError, KeyError, TypeError):
        raise _failed(job, "bubblewrap gave up before the job began") from None


def rlimits(group: cgroup.Cgroup, shape: Shape) -> Iterator[tuple[int, int]]:
    """What stands in where no cgroup may be made; inherited by everything that starts in the box, but counted for each."""
    if "memory" not in group.held and shape.caps.memory_bytes:
        yield resource.RLIMIT_AS, shape.caps.memory_bytes
    if "pids" not in group.held and shape.caps.pids:
        yield resource.RLIMIT_NPROC, shape.caps.pids


def _program(name: str, package: str) -> str:
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
    if found is None:
        raise SandboxUnavailable(
            f"{name} is not installed", fix=f"Install it (Debian, Ubuntu: apt-get install {package}), {_OTHERWISE}."
        )
    return found


def _failed(job: Job, why: str) -> MachineryFailed:
    return MachineryFailed(
        f"the bwrap box could not start {Path(job.argv[0]).name}: {why}",
        fix="Run `bwrap --unshare-pid --ro-bind / / true` to see why, and check memory and disk of this machine.",
    )


# --- what is in force --------------------------------------------------------------------------------------------------

_LOOK = "cat /proc/self/status /proc/net/dev; setsid sleep 1000 & echo looked; exec sleep 1000"


@functools.cache
def _probed() -> dict[str, str]:
    """The limits of a jail as a job in one sees them; SandboxUnavailable where one of them is not there."""
    cgroup.sweep()
    shape, jobs = SHAPES["jail"], _Jobs()
    ours, theirs = os.pipe()
    try:
        job = Job("jail", ("/bin/sh", "-c", _LOOK), JAIL, {"PATH": "/usr/bin:/bin"}, stdout=theirs, stderr=theirs)
        try:
            running = jobs.start(job, shape)
        except SandboxUnavailable:
            raise
        except MachineryFailed as fault:
            raise _unfit(f"{fault.message} ({_rest(ours)})") from fault
        said = _read_until(ours, b"looked\n")
        inside = running.group.pids()
        jobs.end(running)
    finally:
        jobs.close()
        os.close(ours)
        os.close(theirs)
    lines = [line.partition(":") for line in said.splitlines() if ":" in line]
    seen = {name.strip(): value.split() for name, _, value in lines}
    _require(said, seen, user(shape), inside)
    held = running.group.held
    rest = {"memory": f"{shape.caps.memory_bytes:,} bytes of address space each (rlimit)"}
    rest |= {"pids": f"{shape.caps.pids} (rlimit)", "cpu": "none", "kill": "process namespace"}
    return {
        **{name: held.get(name, otherwise) for name, otherwise in rest.items()},
        "network": "an empty network namespace",
        "seccomp": f"filter of {len(system_calls('jail')) // 8} instructions",
        "uid": f"host user {shape.uid}" if not os.geteuid() else "nobody, in a user namespace of the harness's user",
        "files": "read-only system, Python, torch and numpy; the bundle; nothing else of the host",
        "disk": f"fresh /tmp of {shape.tmp_bytes:,} and /dev/shm of {shape.shm_bytes:,} bytes, in memory",
    }


def _require(said: str, seen: dict[str, list[str]], uid: int, inside: set[int]) -> None:
    if "looked" not in said:
        raise _unfit(said.strip().splitlines()[-1] if said.strip() else "the job said nothing")
    interfaces = {name for name, values in seen.items() if len(values) == 16}
    for good, problem in (
        (seen.get("Seccomp") == ["2"], f"the system-call filter is not in force (Seccomp: {seen.get('Seccomp')})"),
        (seen.get("NoNewPrivs") == ["1"], "a job could gain privileges"),
        (set(seen.get("Uid", [])) == {str(uid)}, f"a job runs as user {seen.get('Uid')} and not as {uid}"),
        (interfaces <= {"lo"}, f"a job sees the network interfaces {sorted(interfaces)}"),
        (not any(map(_lives, inside)), f"processes of {sorted(inside)} outlive a job that was ended"),
    ):
        if not good:
            raise _unfit(problem)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def _read_until(fd: int, end: bytes) -> str:
    data, until = b"", time.monotonic() + _PATIENCE_S
    while not data.endswith(end) and select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
        data += os.read(fd, 65536)
    return data.decode(errors="replace")


def _rest(fd: int) -> str:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 4096).decode(errors="replace").strip() or "it said nothing"
    except BlockingIOError:
        return "it said nothing"


def _unfit(problem: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the bwrap box does not work here: {problem}",
        fix=f"Run as root or allow user namespaces to this user (kernel.unprivileged_userns_clone), {_OTHERWISE}.",
    )
