"""A source tree -> its modules and what each imports, by reading and never by importing; shared by the laws."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "crucible"

APART = ("ari/brief", "ari/images", "ari/jail")
"""Programs that run elsewhere: they import nothing of ours, and nobody imports them."""


class Module(NamedTuple):
    name: str
    """Dotted, as Python imports it; a package goes by its own name."""
    place: str
    """Relative to src/crucible, without the suffix: `kernel/digest`, `kernel/__init__`."""
    tree: ast.Module

    def within(self, *places: str) -> bool:
        return any(self.place == place or self.place.startswith(place + "/") for place in places)


class Import(NamedTuple):
    target: str
    """The module that is imported; for `from package import name`, the submodule if there is one."""
    line: int
    inside_function: bool


def modules(source: Path) -> dict[str, Module]:
    """Every module under `source`, which stands for the package `crucible` whatever its own name is."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source).with_suffix("").as_posix()
        name = ".".join(["crucible", *place.split("/")]).removesuffix(".__init__")
        found[name] = Module(name, place, ast.parse(path.read_text(), str(path)))
    return found


def imports(module: Module, known: dict[str, Module]) -> Iterator[Import]:
    package = module.name if module.place.endswith("__init__") else module.name.rpartition(".")[0]
    for node, inside in _walk(module.tree, False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, inside)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                apart = any(f"{full}.".startswith(f"crucible.{place.replace('/', '.')}.") for place in APART)
                yield Import(full if full in known or apart else base, node.lineno, inside)


def _walk(node: ast.AST, inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from _walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def tracked(root: Path) -> list[Path]:
    """The files of the project: what git knows or would take, and without git everything that is not a build product."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    inside = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=root, capture_output=True, text=True)
    if listed.returncode == 0 and inside.stdout.strip() == str(root):
        return sorted({root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()})
    skipped = {".git", ".venv", "demo", "build", "dist", "__pycache__", ".hypothesis"}
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file()
        and not any(part in skipped or part.endswith(("_cache", ".egg-info")) for part in path.relative_to(root).parts)
    )


def script(name: str) -> ModuleType:
    """scripts/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plant(root: Path, files: dict[str, str]) -> Path:
    """A small tree with a violation in it, to show that a law bites."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
