"""The import law: who may import whom, no cycles, no hidden imports, a closed kernel, no drawer modules."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from .sources import APART, SOURCE, Module, imports, modules, plant

ANY = None
OURS = ["__init__", "errors", "documents", "engine", "kernel", "contrast", "ari", "board", "cli"]

# The law. The standard library is free for everyone; ANY stands for "what its own image carries".
#
# `__init__` is the package itself: its version, and nothing else.
#
#   who              may import of ours                               from outside
LAW: dict[str, tuple[list[str], list[str] | None]] = {
    "__init__": ([], []),
    "__main__": (["cli"], []),
    "errors": ([], []),
    "documents": (["errors"], ["msgspec"]),
    "engine": (["errors"], []),
    "kernel": (["errors"], ["msgspec"]),
    "contrast": (
        ["__init__", "kernel", "errors", "engine", "documents"],
        ["numpy", "numba", "llvmlite", "msgspec", "zstandard", "pyarrow", "yaml"],
    ),
    "ari": (["__init__", "kernel", "errors", "engine", "documents"], ["msgspec"]),
    "board": (
        ["__init__", "kernel", "errors", "documents"],
        ["msgspec", "jinja2", "altair", "vl_convert", "starlette", "uvicorn"],
    ),
    "cli": (OURS, ["typer", "click", "rich", "msgspec", "uvicorn"]),
    "ari/brief": ([], ANY),
    "ari/images": ([], ANY),
    "ari/jail": ([], ANY),
}

HEAVY = ["torch", "sentence_transformers", "onnxruntime", "tokenizers", "transformers", "datasets"]
# Places that may import more from outside than their package.
MORE = {
    "contrast/encoders": HEAVY,
    "contrast/train": HEAVY,
    "contrast/score_cuda": [*HEAVY, "triton"],
    "ari/boxes": ["docker"],
}

KERNEL = {"__init__", "digest", "pin", "record", "ledger", "stats", "compare"}
DRAWERS = {"utils", "util", "common", "helpers", "helper", "misc", "base", "manager"}
# The declared exceptions, with importlib: cli/main loads the commands from a table, and contrast/score loads the CUDA kernel,
# which cannot even be defined without Triton, only where a CUDA device is asked for; ari/exam/pack loads an operator's private
# families by path.
LOADERS = {"cli/main", "contrast/score", "ari/exam/pack"}


# --- the checkers ------------------------------------------------------------------------------------------------------


def unit(module: Module) -> str:
    """The row of the table that a module stands under."""
    for place in APART:
        if module.within(place):
            return place
    return module.place.split("/")[0]


def allowed_outside(module: Module) -> list[str] | None:
    outside = LAW[unit(module)][1]
    if outside is ANY:
        return ANY
    more = [name for place, names in MORE.items() if module.within(place) for name in names]
    cuda = HEAVY if unit(module) == "contrast" and "cuda" in module.place.rsplit("/", 1)[-1] else []
    return [*outside, *more, *cuda]


def broken_imports(source: Path) -> list[str]:
    """Every import that the table does not allow."""
    known, found = modules(source), []
    for module in known.values():
        if unit(module) not in LAW:
            found.append(f"{module.place}: stands under no row of the import law")
            continue
        ours, outside = LAW[unit(module)][0], allowed_outside(module)
        for target, line, _ in imports(module, known):
            top = target.split(".")[0]
            where = f"{module.place}:{line}: imports {target}"
            if top == "crucible":
                if target not in known:
                    found.append(f"{where}, which is no module of ours")
                elif unit(known[target]) in APART or unit(known[target]) not in [unit(module), *ours]:
                    found.append(where)
            elif outside is not ANY and top not in sys.stdlib_module_names and top not in outside:
                found.append(where)
    return found


def hidden_imports(source: Path) -> list[str]:
    """Imports of ours inside functions, and imports by name at run time."""
    known, found = modules(source), []
    for module in known.values():
        for target, line, inside in imports(module, known):
            if inside and target.split(".")[0] == "crucible":
                found.append(f"{module.place}:{line}: imports {target} inside a function")
            if target == "importlib" and module.place not in LOADERS and unit(module) not in APART:
                found.append(f"{module.place}:{line}: loads modules by name")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
                found.append(f"{module.place}:{node.lineno}: loads modules by name")
    return found


def cycle(source: Path) -> list[str]:
    """One cycle of modules that import each other, or nothing."""
    known = modules(source)
    edges = {name: {i.target for i in imports(module, known) if i.target in known} for name, module in known.items()}
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for target in sorted(edges[name] - {name}):
                if found := visit(target, [*path, name]):
                    return found
            done.add(name)
        return []

    for name in sorted(known):
        if found := visit(name, []):
            return found
    return []


def kernel_modules(source: Path) -> set[str]:
    return {
        path.relative_to(source / "kernel").with_suffix("").as_posix() for path in (source / "kernel").rglob("*.py")
    }


def drawers(source: Path) -> list[str]:
    return [
        m.place for m in modules(source).values() if DRAWERS & {part.strip("_") for part in m.place.lower().split("/")}
    ]


# --- the law holds -----------------------------------------------------------------------------------------------------


def test_every_import_is_in_the_table() -> None:
    assert broken_imports(SOURCE) == []


def test_modules_form_no_cycle() -> None:
    assert cycle(SOURCE) == []


def test_nothing_of_ours_is_imported_inside_a_function_or_by_name() -> None:
    assert hidden_imports(SOURCE) == []


def test_the_kernel_is_a_closed_list() -> None:
    assert kernel_modules(SOURCE) == KERNEL


def test_no_module_is_a_drawer() -> None:
    assert drawers(SOURCE) == []


# --- and bites ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "line", "why"),
    [
        ("errors.py", "import msgspec", "msgspec"),
        ("documents.py", "from crucible.kernel import digest", "crucible.kernel.digest"),
        ("kernel/pin.py", "from crucible import documents", "crucible.documents"),
        ("kernel/pin.py", "import numpy as np", "numpy"),
        ("kernel/pin.py", "def f():\n    import numpy", "numpy"),
        ("contrast/a.py", "from crucible.ari.run import x", "crucible.ari.run"),
        ("contrast/a.py", "from ..ari import run", "crucible.ari.run"),
        ("contrast/a.py", "import torch", "torch"),
        ("contrast/a.py", "import torch.nn.functional as F", "torch"),
        ("contrast/b/cuda/a.py", "import torch", "torch"),
        ("ari/a.py", "from crucible.contrast import a", "crucible.contrast.a"),
        ("ari/a.py", "from crucible.ari.jail import serve", "crucible.ari.jail.serve"),
        ("ari/a.py", "import numpy", "numpy"),
        ("ari/a.py", "import docker", "docker"),
        ("board/a.py", "import crucible.ari.run", "crucible.ari.run"),
        ("board/a.py", "from crucible.contrast.a import x", "crucible.contrast.a"),
        ("contrast/a.py", "from crucible.cli import main", "crucible.cli.main"),
        ("cli/a.py", "import numpy", "numpy"),
        ("cli/a.py", "from crucible.ari.brief import starter", "crucible.ari.brief"),
        ("cli/a.py", "from crucible.ari import jail", "crucible.ari.jail"),
        ("ari/jail/serve.py", "from crucible import errors", "crucible.errors"),
        ("ari/images/x/y.py", "from crucible.kernel import pin", "crucible.kernel.pin"),
        ("shed/a.py", "import os", "no row"),
        ("kernel/pin.py", "import crucible.kernel.gone", "no module of ours"),
    ],
)
def test_an_import_outside_the_table_is_found(tmp_path: Path, place: str, line: str, why: str) -> None:
    files = {
        "__init__.py": "", "errors.py": "", "documents.py": "", "kernel/__init__.py": "", "kernel/digest.py": "",
        "kernel/pin.py": "", "contrast/__init__.py": "", "contrast/a.py": "", "ari/__init__.py": "", "ari/run.py": "",
        "ari/jail/serve.py": "", "board/__init__.py": "", "cli/__init__.py": "", "cli/main.py": "",
    }  # fmt: skip
    assert broken_imports(plant(tmp_path / "crucible", files)) == []
    found = broken_imports(plant(tmp_path / "crucible", {place: line + "\n"}))
    assert len(found) == 1 and why in found[0] and found[0].startswith(place.removesuffix(".py") + ":")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("contrast/encoders/x.py", "import torch"),
        ("contrast/train.py", "import torch"),
        ("contrast/score_cuda.py", "import torch"),
        ("ari/boxes/engine.py", "import docker"),
        ("ari/jail/serve.py", "import torch, numpy, anything"),
        ("contrast/a.py", "import numpy.linalg"),
        ("cli/a.py", "from crucible.board import rows"),
    ],
)
def test_an_import_in_the_table_is_allowed(tmp_path: Path, place: str, line: str) -> None:
    files = {"__init__.py": "", "board/rows.py": "", place: line + "\n"}
    assert broken_imports(plant(tmp_path / "crucible", files)) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    from crucible.kernel import pin\n",
        "class A:\n    def f(self):\n        import crucible.kernel.pin\n",
        "def f():\n    from . import pin\n",
        "import importlib\n",
        "from importlib import import_module\n",
        "x = __import__('crucible.kernel.pin')\n",
    ],
)
def test_a_hidden_import_is_found(tmp_path: Path, text: str) -> None:
    source = plant(tmp_path / "crucible", {"kernel/__init__.py": "", "kernel/pin.py": "", "kernel/a.py": text})
    (found,) = hidden_imports(source)
    assert found.startswith("kernel/a:")


def test_a_cycle_is_found_even_through_a_third_module_and_a_function(tmp_path: Path) -> None:
    files = {
        "a.py": "from crucible import b\n",
        "b.py": "import crucible.c\n",
        "c.py": "def f():\n    from crucible.a import x\n",
        "__init__.py": "",
    }
    assert cycle(plant(tmp_path / "crucible", files)) == ["crucible.a", "crucible.b", "crucible.c", "crucible.a"]
    assert cycle(plant(tmp_path / "crucible", {"c.py": ""})) == []


def test_a_new_kernel_module_and_a_drawer_are_found(tmp_path: Path) -> None:
    source = plant(
        tmp_path / "crucible",
        {"kernel/__init__.py": "", "kernel/sign.py": "", "ari/utils/x.py": "", "ari/_base.py": ""},
    )
    assert kernel_modules(source) != KERNEL
    assert drawers(source) == ["ari/_base", "ari/utils/x"]
