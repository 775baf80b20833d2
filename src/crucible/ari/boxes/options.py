"""A job and the shape of its role -> the options, the command and the filter that bubblewrap is given. Starts nothing.

Inside, a job sees the system's programs and the pinned Python, read-only; its own folder under a fixed name; a /proc, a /dev
and a fresh /tmp and /dev/shm; and no path of the host beyond those of Python, which only works where it was installed.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crucible.ari.box import Job, Role
from crucible.ari.boxes import cgroup, seccomp
from crucible.ari.boxes.runtime import SYSTEM, runtime

JAIL = Path(__file__).resolve().parent.parent / "jail"
SERVE = "serve.py"
QUESTION_UID = 60904
"""Whoever answers one question in the jail: another user than the zygote that forked it."""
_NOBODY = 65534
_GIB = 1 << 30
_ZYGOTE_CAPABILITIES = ("sys_admin", "setuid", "setgid", "setpcap", "kill")
_SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108  the names inside a box


@dataclass(frozen=True)
class Shape:
    """What a role is: a user that owns nothing on the host, and how much it may use."""

    uid: int
    caps: cgroup.Caps
    tmp_bytes: int = 64 << 20
    shm_bytes: int = 256 << 20


SHAPES: dict[Role, Shape] = {
    "controller": Shape(60901, cgroup.Caps(_GIB, 256, 1.0)),
    "trainer": Shape(60902, cgroup.Caps(None, 1024, None)),
    "jail": Shape(60903, cgroup.Caps(4 * _GIB, 128, 1.0), shm_bytes=64 << 20),
}


def options(job: Job, shape: Shape) -> Iterator[str]:
    """What bubblewrap reads from a descriptor, so that no path of the host shows in its own arguments."""
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--hostname", "box", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")
    if os.geteuid():
        yield from ("--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY))
    else:
        for name in {"setuid", "setgid", "setpcap", *_kept(job.role)}:
            yield from ("--cap-add", f"CAP_{name.upper()}")
    yield from _system(shape)
    if job.role in ("trainer", "jail"):
        yield from _python()
    yield from _own(job)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")
    env = dict(job.env)
    if job.role == "jail":
        env["JAIL_WORLD"] = json.dumps(_world(shape))
    for name, value in env.items():
        yield from ("--setenv", name, rewritten(job, value))


def command(job: Job, shape: Shape, setpriv: str) -> list[str]:
    """As root, what drops to the role's user and then becomes the job; otherwise the job itself."""
    inside = [rewritten(job, part) for part in job.argv]
    if os.geteuid():
        return inside
    kept = "".join(f",+{name}" for name in _kept(job.role))
    drop = [f"--{which}=-all{kept}" for which in ("bounding-set", "inh-caps", "ambient-caps")]
    uid = str(shape.uid)
    return [setpriv, "--reuid", uid, "--regid", uid, "--clear-groups", *drop, "--no-new-privs", "--", *inside]


def system_calls(role: Role) -> bytes:
    if role == "jail":
        return seccomp.program(families=seccomp.LOCAL_FAMILIES, allow=seccomp.TO_MAKE_WORLDS)
    return seccomp.program()


def user(shape: Shape) -> int:
    """Who the job is, as it sees itself."""
    return _NOBODY if os.geteuid() else shape.uid


def rewritten(job: Job, text: str) -> str:
    """A path of the host that is mounted under another name, by that name; anything else as it is."""
    for host, inside in _names(job).items():
        if text == host or text.startswith(host + "/"):
            return inside + text[len(host) :]
    return text


def _names(job: Job) -> dict[str, str]:
    if job.role == "jail":
        return {str(JAIL): "/jail", str(job.folder): "/bundle"}
    return {str(job.folder): "/workspace"}


def _kept(role: Role) -> tuple[str, ...]:
    """The zygote, which is our code alone, makes namespaces for each question and gives these up in them."""
    return _ZYGOTE_CAPABILITIES if role == "jail" else ()


def _world(shape: Shape) -> dict[str, object]:
    """What serve.py is told about the world of one question."""
    sizes = {"/tmp": shape.tmp_bytes, "/dev/shm": shape.shm_bytes}  # noqa: S108
    return {
        "uid": QUESTION_UID,
        "user_namespace": bool(os.geteuid()),
        "scratch": sizes,
        "kept": {name: _python_under(name) for name in sizes},
        "filter": base64.b64encode(seccomp.program(families=seccomp.LOCAL_FAMILIES, apart=True)).decode(),
    }


# --- mounts ------------------------------------------------------------------------------------------------------------


def _system(shape: Shape) -> Iterator[str]:
    yield from ("--ro-bind", str(SYSTEM), str(SYSTEM))
    for place in (Path("/", name) for name in ("bin", "sbin", "lib", "lib32", "lib64")):
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))
        elif place.is_dir():
            yield from ("--ro-bind", str(place), str(place))
    for name in ("/etc/ld.so.cache", "/etc/alternatives"):
        yield from ("--ro-bind-try", name, name)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for name, size in zip(_SCRATCH, (shape.tmp_bytes, shape.shm_bytes), strict=True):
        yield from ("--perms", "1777", "--size", str(size), "--tmpfs", name)


def _python() -> Iterator[str]:
    found = runtime()
    for path in found.parts:
        yield from _parents(path)
        yield from ("--ro-bind", str(path), str(path))
    for path in found.links:
        yield from ("--symlink", str(path.readlink()), str(path))
    for folder in found.hidden:
        yield from ("--perms", "0755", "--tmpfs", str(folder))
    for path in found.packages:
        yield from ("--ro-bind", str(path), str(path))
    for folder in found.hidden:
        yield from ("--remount-ro", str(folder))


def _own(job: Job) -> Iterator[str]:
    if job.role == "jail":
        yield from ("--perms", "0755", "--dir", "/jail", "--ro-bind", str(JAIL / SERVE), f"/jail/{SERVE}")
        yield from ("--ro-bind", str(job.folder), "/bundle", "--chdir", "/bundle")
    else:
        yield from ("--bind", str(job.folder), "/workspace", "--chdir", "/workspace")


def _parents(path: Path) -> Iterator[str]:
    """Folders that only have to be passed through: bubblewrap would make them for their owner alone."""
    for above in list(path.parents)[-2::-1]:
        if not above.is_relative_to(SYSTEM) and str(above) not in _SCRATCH:
            yield from ("--perms", "0755", "--dir", str(above))


def _python_under(name: str) -> list[str]:
    """Folders of a scratch space that a Python lives in: a fresh space must show them again."""
    return sorted({path.relative_to(name).parts[0] for path in runtime().parts if path.is_relative_to(name)})
