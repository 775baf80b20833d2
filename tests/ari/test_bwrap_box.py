"""The real sandbox: what a job in it sees, what it cannot do, what it may use, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crucible.ari.box import Ended, Job, Role
from crucible.ari.boxes import bwrap, cgroup
from crucible.ari.boxes.bwrap import BwrapBox
from crucible.ari.boxes.options import SHAPES, Shape
from crucible.errors import SandboxUnavailable

from .conftest import alive, open_files, wait_for

SMALL: dict[Role, Shape] = {
    role: replace(shape, caps=cgroup.Caps(200 << 20, 40, 1.0), tmp_bytes=1 << 20) for role, shape in SHAPES.items()
}
ROOT = os.geteuid() == 0
root_only = pytest.mark.skipif(not ROOT, reason="cgroups and host users need root")


@pytest.fixture
def box() -> Iterator[BwrapBox]:
    box = BwrapBox(SMALL)
    yield box
    box.close()
    assert groups_left() == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    workspace.chmod(0o777)
    return workspace


def groups_left() -> list[Path]:
    """Cgroups of this process that still exist."""
    return [
        group
        for place in cgroup._own_folders().values()
        for group in place.glob(f"{cgroup.PREFIX}{os.getpid()}-*")
        if group.exists()
    ]


def run(box: BwrapBox, folder: Path, *argv: str, seconds: float = 60, role: Role = "trainer") -> tuple[Ended, str]:
    ours, theirs = os.pipe()
    try:
        env = {"PATH": "/usr/bin:/bin", "GIVEN": "yes"}
        running = box.start(Job(role, argv, folder, env, stdout=theirs, stderr=theirs))
    finally:
        os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        ended = running.wait(seconds)
        box.end(running)
        return ended or Ended(-1, 0), stream.read().decode(errors="replace")


def python(box: BwrapBox, folder: Path, code: str) -> Any:
    """What the program prints as JSON."""
    _, said = run(box, folder, sys.executable, "-I", "-c", code)
    return json.loads(said)


def test_a_job_sees_its_folder_and_nothing_of_the_host(box: BwrapBox, folder: Path) -> None:
    (folder / "own").write_text("mine")
    (folder.parent / "secret").write_text("SECRET")
    seen = python(
        box,
        folder,
        """
import glob, json, os, socket
print(json.dumps({
    "top": sorted(os.listdir("/")), "here": os.getcwd(), "own": open("own").read(), "tmp": os.listdir("/tmp"),
    "env": sorted(os.environ), "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "first": open("/proc/1/cmdline").read(),
    "processes": len(glob.glob("/proc/[0-9]*")), "net": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
    "uid": os.getuid(), "groups": os.getgroups(), "host": os.uname().nodename,
    "status": {line.split(":")[0]: line.split(":")[1].strip() for line in open("/proc/self/status")},
}))""",
    )
    beyond = set(seen["top"]) - {
        "usr",
        "bin",
        "sbin",
        "lib",
        "lib32",
        "lib64",
        "etc",
        "proc",
        "dev",
        "tmp",
        "workspace",
    }
    pythons = {Path(place).parts[1] for place in (sys.prefix, sys.base_prefix)}
    assert beyond <= pythons
    assert (seen["here"], seen["own"]) == ("/workspace", "mine")
    under_tmp = {Path(place).parts[2] for place in (sys.prefix, sys.base_prefix) if Path(place).parts[1] == "tmp"}
    assert set(seen["tmp"]) == under_tmp  # nothing, unless Python itself was installed there
    assert {"GIVEN", "PATH"} <= set(seen["env"]) <= {"GIVEN", "PATH", "PWD", "LC_CTYPE"}
    assert seen["fds"][:3] == [0, 1, 2] and len(seen["fds"]) == 4  # and the one that lists them
    assert str(folder.parent) not in seen["first"]
    assert seen["processes"] <= 3 and seen["net"] == ["lo"] and seen["host"] == "box"
    assert seen["uid"] == (SHAPES["trainer"].uid if ROOT else 65534)
    assert set(seen["groups"]) <= {seen["uid"], 65534}
    status = seen["status"]
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_only_the_pinned_runtime_is_there_and_no_weights(box: BwrapBox, folder: Path) -> None:
    seen = python(
        box,
        folder,
        """
import importlib.util, json, os, sys
weights = (".safetensors", ".onnx", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".npz", ".msgpack")
found = [os.path.join(f, n) for top in (sys.prefix, sys.base_prefix) for f, _, names in os.walk(top) for n in names
         if n.endswith(weights) and os.path.getsize(os.path.join(f, n)) > 100_000]
there = [n for n in ("numpy", "crucible", "msgspec", "pytest", "sentence_transformers") if importlib.util.find_spec(n)]
print(json.dumps([found, there]))""",
    )
    assert seen == [[], ["numpy"]]


@root_only
def test_a_job_cannot_read_what_belongs_to_the_harness(box: BwrapBox, folder: Path) -> None:
    """Not even a file that is mounted for it: it is another user, and not root under another name."""
    (folder / "private").write_text("SECRET")
    (folder / "private").chmod(0o600)
    ended, said = run(box, folder, "/bin/cat", "private")
    assert ended.status != 0 and "SECRET" not in said and "denied" in said


REFUSED = """
import ctypes, errno, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    return errno.errorcode.get(ctypes.get_errno(), "done") if libc.syscall(number, *args) < 0 else "done"
def family(number):
    try:
        socket.socket(number, socket.SOCK_DGRAM).close()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
x = os.uname().machine == "x86_64"
said = {
    "ptrace": call(101 if x else 117, 0, 0, 0, 0), "unshare": call(272 if x else 97, 0x10000000),
    "mount": call(165 if x else 40, b"a", b"/tmp", b"tmpfs", 0, None), "bpf": call(321 if x else 280, 0, 0, 0),
    "keyctl": call(250 if x else 219, 0, 0, 0), "setns": call(308 if x else 268, 0, 0),
    "clone3": call(435, 0, 0), "clone": call(56 if x else 220, 0x10000011, 0, 0, 0, 0),
    "vsock": family(40), "packet": family(17), "inet": family(2), "unix": family(1), "getpid": call(39 if x else 172),
    "x32": call(0x40000000 + 39) if x else "ENOSYS",
}
print(json.dumps(said))
"""


def test_the_filter_refuses_what_it_must_and_lets_the_rest_through(box: BwrapBox, folder: Path) -> None:
    said = python(box, folder, REFUSED)
    for name in ("ptrace", "unshare", "mount", "bpf", "keyctl", "setns", "clone"):
        assert said[name] == "EPERM", name
    assert (said["clone3"], said["x32"]) == ("ENOSYS", "ENOSYS")
    assert (said["vsock"], said["packet"]) == ("EAFNOSUPPORT", "EAFNOSUPPORT")
    assert (said["inet"], said["unix"], said["getpid"]) == ("done", "done", "done")


def test_a_network_that_is_not_there_cannot_be_reached(box: BwrapBox, folder: Path) -> None:
    code = """
import errno, json, socket
def reach(family, address):
    try:
        socket.create_connection(address, 2) if family == 2 else socket.socket(family).connect(address)
        return "reached"
    except OSError as error:
        return "no"
print(json.dumps([reach(2, ("192.0.2.1", 80)), reach(2, ("169.254.169.254", 80)), reach(2, ("127.0.0.1", 22)), reach(10, ("::1", 22))]))"""
    assert python(box, folder, code) == ["no"] * 4


def test_exit_codes_and_signals_come_through(box: BwrapBox, folder: Path) -> None:
    assert run(box, folder, "/bin/sh", "-c", "exit 7")[0].status == 7
    assert run(box, folder, "/bin/sh", "-c", "kill -TERM $$")[0].status == 128 + signal.SIGTERM
    assert run(box, folder, "/nowhere/to/be/found")[0].status != 0


BROOD = """
import os, signal, time
for number in range(25):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(name, signal.SIG_IGN)
        time.sleep(600)
open("ready", "w").close()
time.sleep(600)
"""


@root_only
def test_ending_kills_a_whole_brood_and_confirms_it(folder: Path) -> None:
    before, box = (
        open_files(),
        BwrapBox({**SMALL, "trainer": replace(SMALL["trainer"], caps=cgroup.Caps(1 << 30, 400))}),
    )
    running = box.start(Job("trainer", (sys.executable, "-I", "-c", BROOD), folder, {"PATH": "/usr/bin:/bin"}))
    wait_for((folder / "ready").exists)
    wait_for(lambda: len(running.group.pids()) > 50)
    inside = running.group.pids()
    ended = box.end(running)
    assert not any(map(alive, inside))
    assert ended.status == 128 + signal.SIGKILL
    assert (groups_left(), open_files()) == ([], before)


@root_only
def test_a_job_dies_with_the_harness(folder: Path) -> None:
    """SIGKILL, so that the harness can do nothing about it any more."""
    program = f"""
import pathlib, sys, time
from crucible.ari.box import Job
from crucible.ari.boxes.bwrap import BwrapBox
code = "import os, time; os.fork(); os.fork(); open('ready', 'w').close(); time.sleep(600)"
running = BwrapBox().start(Job("trainer", (sys.executable, "-I", "-c", code), pathlib.Path({str(folder)!r}), {{}}))
while len(running.group.pids()) < 4:
    time.sleep(0.02)
print(*running.group.pids(), flush=True)
time.sleep(600)
"""
    harness = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert harness.stdout is not None
    inside = [int(pid) for pid in harness.stdout.readline().split()]
    assert len(inside) >= 4 and any(map(alive, inside))
    harness.kill()
    harness.wait()
    wait_for(lambda: not any(map(alive, inside)))
    harness.stdout.close()
    cgroup.sweep()
    assert not [g for p in cgroup._own_folders().values() for g in p.glob(f"{cgroup.PREFIX}{harness.pid}-*")]


@root_only
def test_a_fork_bomb_is_held_and_a_memory_bomb_ends(box: BwrapBox, folder: Path) -> None:
    bomb = "import os\nn = 0\nwhile n < 500:\n    try:\n        if os.fork() == 0: __import__('time').sleep(60)\n        n += 1\n    except OSError: break\nprint(n)"
    ended, said = run(box, folder, sys.executable, "-I", "-c", bomb)
    assert ended.status == 0 and 10 < int(said) <= 40
    ended, _ = run(box, folder, sys.executable, "-I", "-c", "x = [b'x' * (1 << 20) for _ in range(1000)]")
    assert ended.status == 128 + signal.SIGKILL
    assert 100 << 20 < ended.peak_bytes <= 200 << 20


def test_scratch_space_is_limited_and_fresh(box: BwrapBox, folder: Path) -> None:
    fill = "dd if=/dev/zero of=/tmp/full bs=64k count=64 2>&1; ls /tmp"
    _, said = run(box, folder, "/bin/sh", "-c", fill)
    assert "No space left" in said and "full" in said
    assert "full" not in run(box, folder, "/bin/sh", "-c", "ls /tmp /dev/shm")[1]


def test_nothing_but_the_folder_and_scratch_space_can_be_written(box: BwrapBox, folder: Path) -> None:
    places = ["/", "/usr", "/etc", "/dev", "/proc/sys/kernel", sys.prefix, sys.base_prefix]
    tries = "; ".join(f"(echo x > {place}/probe) 2>/dev/null && echo WROTE {place}" for place in places)
    _, said = run(box, folder, "/bin/sh", "-c", f"{tries}; echo y > probe && echo own")
    assert said == "own\n" and (folder / "probe").read_text() == "y\n"


def test_limits_name_what_was_seen_to_hold(box: BwrapBox) -> None:
    limits = box.limits()
    assert {"memory", "pids", "cpu", "network", "seccomp", "uid", "kill", "files", "disk"} == limits.keys()
    assert "network namespace" in limits["network"] and "instructions" in limits["seccomp"]
    if ROOT:
        assert "cgroup" in limits["memory"] and "cgroup" in limits["pids"] and str(SHAPES["jail"].uid) in limits["uid"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Seccomp": ["0"]}, "filter"),
        ({"NoNewPrivs": ["0"]}, "privileges"),
        ({"Uid": ["0"] * 4}, "user"),
        ({"eth0": ["0"] * 16}, "eth0"),
    ],
)
def test_a_machine_that_does_not_hold_a_limit_is_refused(change: dict[str, list[str]], message: str) -> None:
    good = {"Seccomp": ["2"], "NoNewPrivs": ["1"], "Uid": ["60903"] * 4, "lo": ["0"] * 16}
    bwrap._require("looked", good, 60903, set())
    with pytest.raises(SandboxUnavailable, match=message) as caught:
        bwrap._require("looked", {**good, **change}, 60903, set())
    assert caught.value.exit_code == 7 and "--box local" in caught.value.fix


def test_without_bubblewrap_there_is_no_box_and_no_weaker_one_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap.shutil, "which", lambda name, path: None)
    bwrap._probed.cache_clear()
    with pytest.raises(SandboxUnavailable, match="bwrap is not installed") as caught:
        BwrapBox()
    assert "apt-get install bubblewrap" in caught.value.fix and "--box local" in caught.value.fix


def test_what_cannot_start_leaves_nothing(box: BwrapBox, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate must not open for a job whose limits could not be set."""
    before = open_files()
    monkeypatch.setattr(cgroup.Cgroup, "add", lambda self, pid: os.kill(2**22 + 1, 0))
    with pytest.raises(Exception, match="could not start"):
        box.start(Job("trainer", ("/bin/sh", "-c", "touch ran; sleep 600"), folder, {"PATH": "/usr/bin:/bin"}))
    time.sleep(0.2)
    assert not (folder / "ran").exists()
    assert (open_files(), groups_left()) == (before, [])


def test_groups_of_a_dead_harness_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ROOT:
        pytest.skip("cgroups need root")
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    monkeypatch.setattr(os, "getpid", lambda: gone.pid)
    left = list(cgroup.make(cgroup.Caps(1 << 30, 10)).folders.values())
    monkeypatch.undo()
    assert left and all(folder.exists() for folder in left)
    mine = cgroup.make(cgroup.Caps(1 << 30, 10))
    cgroup.sweep()
    assert not any(folder.exists() for folder in left)
    assert all(folder.exists() for folder in mine.folders.values()) and mine.remove()
