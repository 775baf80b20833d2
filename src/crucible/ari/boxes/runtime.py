"""The Python that runs us -> what a box has to mount so that the same Python, with torch and numpy, runs inside it.

Only the interpreter, its standard library and the packages that torch and numpy need: of what else is installed beside
them (this harness, other people's models) nothing is visible in a box.
"""

from __future__ import annotations

import functools
import re
import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

SYSTEM = Path("/usr")
"""Mounted whole in every box that has a Python."""
LIBRARIES = ("numpy", "torch")
"""The pinned runtime of a submission, beyond the standard library."""
_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")


@dataclass(frozen=True)
class Runtime:
    """Paths of this machine, each mounted read-only under its own name."""

    parts: tuple[Path, ...]
    """What makes up the installations of Python that lie outside the system's own."""
    links: tuple[Path, ...]
    """Names of theirs that only point to another one of these parts, and must stay that."""
    hidden: tuple[Path, ...]
    """Folders of installed packages, which are covered with an empty one."""
    packages: tuple[Path, ...]
    """What shows in them again."""


@functools.cache
def runtime() -> Runtime:
    roots = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent]
    prefixes = [root for root in dict.fromkeys(roots) if not root.is_relative_to(SYSTEM)]
    parts = [prefix / name for prefix in prefixes for name in _PARTS if (prefix / name).exists()]
    links = [part for part in parts if part.is_symlink() and part.parent / part.readlink() in parts]
    folders = [_behind(Path(found), links) for found in site.getsitepackages([sys.prefix, sys.base_prefix])]
    hidden = [folder for folder in dict.fromkeys(folders) if folder.is_dir()]
    searched = [_behind(Path(found), links) for found in sys.path]
    packages = [
        folder / name
        for folder in hidden
        if folder in searched
        for name in sorted(_names())
        if (folder / name).exists()
    ]
    return Runtime(tuple(part for part in parts if part not in links), tuple(links), tuple(hidden), tuple(packages))


def _behind(path: Path, links: list[Path]) -> Path:
    """The same place by the name it is mounted under: lib64 of an environment is often lib."""
    for link in links:
        if path.is_relative_to(link):
            return link.parent / link.readlink() / path.relative_to(link)
    return path


@functools.cache
def versions() -> dict[str, str]:
    """What answers a question: for the record. A library that lies elsewhere than with Python is not there in a box."""
    found, there = {"python": sys.version.split()[0]}, {path.name for path in runtime().packages}
    for name in LIBRARIES:
        known = _distribution(name)
        if known is not None and name in there:
            found[name] = known.version
    return found


@functools.cache
def _names() -> frozenset[str]:
    """The top names of everything that the libraries need, transitively."""
    todo, seen, names = list(LIBRARIES), set[str](), set[str]()
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        known = None if name in seen else _distribution(name)
        seen.add(name)
        if known is not None:
            names |= set(_tops(known))
            # An optional need ("extra") is none; one for another platform is not installed here.
            needs = [need for need in known.requires or [] if "extra ==" not in need]
            todo += [re.split(r"[^A-Za-z0-9._-]", need, maxsplit=1)[0] for need in needs]
    return frozenset(names)


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _tops(known: Distribution) -> Iterator[str]:
    listed = known.read_text("RECORD") or known.read_text("top_level.txt") or known.metadata["Name"]
    for line in listed.splitlines():
        top = line.split(",")[0].split("/")[0].strip('"')
        if top not in ("", "..", "__pycache__") and not top.endswith(".pth"):
            yield top
