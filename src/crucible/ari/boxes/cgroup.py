"""Limits for one job -> cgroups that hold them, v1 or v2 or a mixture; and the end of everything in them. Starts no job.

A machine may have the controllers in the old hierarchies and `cgroup.kill` in the new one, or only one of the two, or
none that this user may write. `made.held` says what was really set, read back from the kernel; what is missing there is
not in force.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "crucible-"
_PERIOD_US = 100_000
_V1 = ("memory", "pids", "cpu")
_UNIFIED = "unified"


@dataclass(frozen=True)
class Caps:
    """What a job may use at most; None where it is not limited."""

    memory_bytes: int | None = None
    pids: int | None = None
    cpus: float | None = None


@dataclass
class Cgroup:
    """The groups of one job, one in each hierarchy that could be used."""

    folders: dict[str, Path] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    """Which limits are in force, each with the words that say how much and by what."""

    def add(self, pid: int) -> None:
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def pids(self) -> set[int]:
        """Every process in any of the groups."""
        found: set[int] = set()
        for folder in self.folders.values():
            with contextlib.suppress(FileNotFoundError):
                found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return found

    def kill(self) -> None:
        """Ends every process: by the kernel at once where it can, otherwise one by one until the caller sees none."""
        unified = self.folders.get(_UNIFIED)
        if unified is not None and (unified / "cgroup.kill").exists():
            (unified / "cgroup.kill").write_text("1")
            return
        for pid in self.pids() - {0}:  # 0 is how a process of another namespace shows
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def peak_bytes(self) -> int:
        for hierarchy, name in ((_UNIFIED, "memory.peak"), ("memory", "memory.max_usage_in_bytes")):
            with contextlib.suppress(OSError, KeyError):
                return int((self.folders[hierarchy] / name).read_text())
        return 0

    def oom_kills(self) -> int:
        """How often the kernel ended a process of the job because its memory was used up."""
        for hierarchy, name in ((_UNIFIED, "memory.events"), ("memory", "memory.oom_control")):
            with contextlib.suppress(OSError, KeyError):
                text = (self.folders[hierarchy] / name).read_text()
                return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))
        return 0

    def remove(self) -> bool:
        """Whether all of it is gone; a group with a process in it cannot be removed."""
        for hierarchy, folder in list(self.folders.items()):
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                continue
            del self.folders[hierarchy]
        return not self.folders


def make(caps: Caps) -> Cgroup:
    """New groups beside this process's own ones, so that whatever limits us limits the job too."""
    made, name = Cgroup(), f"{PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
    own = _own_folders()
    for controller in _V1:
        if controller in own:
            folder = _new(own[controller], name)
            if folder is not None:
                made.folders[controller] = folder
                made.held |= _set_v1(folder, controller, caps)
    if _UNIFIED in own:
        wanted = {name for name in _V1 if name not in made.folders}
        folder = _new_unified(own[_UNIFIED], _mount_of(own[_UNIFIED]), name, wanted)
        if folder is not None:
            made.folders[_UNIFIED] = folder
            made.held |= {**_set_v2(folder, caps), **made.held}
            if (folder / "cgroup.kill").exists():
                made.held["kill"] = "cgroup.kill"
    return made


def sweep() -> None:
    """Removes empty groups that a harness left behind when it was killed itself."""
    for hierarchy, own in _own_folders().items():
        places = {own, *own.parents} if hierarchy == _UNIFIED else {own}
        for folder in [group for place in places for group in place.glob(f"{PREFIX}*-*")]:
            owner = folder.name.removeprefix(PREFIX).split("-")[0]
            if not Path("/proc", owner).exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()


# --- where the hierarchies are -----------------------------------------------------------------------------------------


def _own_folders() -> dict[str, Path]:
    """The folder of this process in each hierarchy: by controller for v1, `unified` for v2."""
    mounts, found = dict(_mounts()), {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else [_UNIFIED]:
            if name in mounts:
                point, root = mounts[name]
                inside = os.path.relpath(path, root) if path.startswith(root) else "."
                found[name] = (point / inside).resolve()
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def _mounts() -> Iterator[tuple[str, tuple[Path, str]]]:
    """(hierarchy, (mount point, the part of the hierarchy that is mounted there))."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, point = (re.sub(r"\\040", " ", text) for text in before.split()[3:5])
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            yield _UNIFIED, (Path(point), root)
        elif kind == "cgroup":
            for name in set(options.split(",")) & set(_V1):
                yield name, (Path(point), root)


def _mount_of(folder: Path) -> Path:
    return next(above for above in [folder, *folder.parents] if os.path.ismount(above))


def _new(above: Path, name: str) -> Path | None:
    folder = above / name
    try:
        folder.mkdir()
    except OSError:  # read-only, or not ours
        return None
    return folder


def _new_unified(own: Path, top: Path, name: str, wanted: set[str]) -> Path | None:
    """The nearest place upwards where a group has the controllers; failing that, one without, to kill by."""
    places = [above for above in [own, *own.parents] if above.is_relative_to(top)]
    for above in places:
        folder = _new(above, name)
        if folder is None:
            continue
        if _has(folder, wanted) or (_enabled(above, wanted) and _has(folder, wanted)):
            return folder
        folder.rmdir()
    return next((folder for above in places if (folder := _new(above, name)) is not None), None)


def _has(folder: Path, wanted: set[str]) -> bool:
    return wanted <= set((folder / "cgroup.controllers").read_text().split())


def _enabled(above: Path, wanted: set[str]) -> bool:
    try:
        if not wanted <= set((above / "cgroup.controllers").read_text().split()):
            return False
        (above / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(wanted)))
    except OSError:  # a group with processes of its own passes no controller on
        return False
    return True


# --- setting, and reading back -----------------------------------------------------------------------------------------


def _set_v1(folder: Path, controller: str, caps: Caps) -> dict[str, str]:
    held: dict[str, str] = {}
    if controller == "memory" and caps.memory_bytes and _set(folder, "memory.limit_in_bytes", caps.memory_bytes):
        _set(folder, "memory.memsw.limit_in_bytes", caps.memory_bytes)
        held["memory"] = f"{caps.memory_bytes:,} bytes (cgroup v1)"
    if controller == "pids" and caps.pids and _set(folder, "pids.max", caps.pids):
        held["pids"] = f"{caps.pids} (cgroup v1)"
    if controller == "cpu" and caps.cpus:
        _set(folder, "cpu.cfs_period_us", _PERIOD_US)
        if _set(folder, "cpu.cfs_quota_us", int(caps.cpus * _PERIOD_US)):
            held["cpu"] = f"{caps.cpus:g} cores (cgroup v1)"
    return held


def _set_v2(folder: Path, caps: Caps) -> dict[str, str]:
    held: dict[str, str] = {}
    if caps.memory_bytes and _set(folder, "memory.max", caps.memory_bytes):
        _set(folder, "memory.swap.max", 0)
        held["memory"] = f"{caps.memory_bytes:,} bytes (cgroup v2)"
    if caps.pids and _set(folder, "pids.max", caps.pids):
        held["pids"] = f"{caps.pids} (cgroup v2)"
    if caps.cpus and _set(folder, "cpu.max", f"{int(caps.cpus * _PERIOD_US)} {_PERIOD_US}"):
        held["cpu"] = f"{caps.cpus:g} cores (cgroup v2)"
    return held


def _set(folder: Path, name: str, value: object) -> bool:
    """Whether the kernel took the value and says so; memory is rounded to whole pages."""
    try:
        (folder / name).write_text(str(value))
        said = (folder / name).read_text().strip()
    except OSError:
        return False
    return said == str(value) or (said.isdigit() and abs(int(said) - int(str(value))) < os.sysconf("SC_PAGE_SIZE"))
