"""Nobody but the command line catches everything, prints or ends the process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import APART, SOURCE, modules, plant

BROAD = {"Exception", "BaseException", "CrucibleError"}
MAY_CATCH = ("cli", "ari/jail", "ari/brief")
MAY_PRINT = ("cli", *APART)


def broad_catches(source: Path) -> list[str]:
    """Handlers, and contextlib.suppress, that would swallow a bug or another branch of the ladder."""
    found = []
    for module in modules(source).values():
        if module.within(*MAY_CATCH):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler):
                caught = ["everything"] if node.type is None else sorted(_names(node.type) & BROAD)
            elif isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] == "suppress":
                caught = sorted({name for argument in node.args for name in _names(argument)} & BROAD)
            else:
                continue
            found += [f"{module.place}:{node.lineno}: catches {name}" for name in caught]
    return found


def speaking(source: Path) -> list[str]:
    """Calls that print or end the process; a block under `if __name__ == "__main__"` may end it with what main returns."""
    found = []
    for module in modules(source).values():
        if module.within(*MAY_PRINT):
            continue
        for node in _outside_main_blocks(module.tree):
            if isinstance(node, ast.Call):
                name = _dotted(node.func)
                if name in ("print", "exit", "quit", "sys.exit", "os._exit", "sys.stdout.write", "sys.stderr.write"):
                    found.append(f"{module.place}:{node.lineno}: calls {name}")
            elif isinstance(node, ast.Raise) and node.exc is not None and "SystemExit" in _names(node.exc):
                found.append(f"{module.place}:{node.lineno}: raises SystemExit")
            elif isinstance(node, ast.ImportFrom) and node.module == "sys" and {"exit"} & {a.name for a in node.names}:
                found.append(f"{module.place}:{node.lineno}: imports exit from sys")
    return found


def _outside_main_blocks(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        if not (isinstance(statement, ast.If) and "__name__" in _names(statement.test)):
            yield from ast.walk(statement)


def _names(node: ast.AST) -> set[str]:
    named = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return named | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def test_only_the_command_line_catches_everything() -> None:
    assert broad_catches(SOURCE) == []


def test_only_the_command_line_prints_or_exits() -> None:
    assert speaking(SOURCE) == []


@pytest.mark.parametrize(
    "text",
    [
        "try: f()\nexcept: pass\n",
        "try: f()\nexcept Exception: pass\n",
        "try: f()\nexcept BaseException as e: pass\n",
        "try: f()\nexcept (ValueError, Exception): pass\n",
        "try: f()\nexcept errors.CrucibleError: pass\n",
        "import builtins\ntry: f()\nexcept builtins.Exception: pass\n",
        "with contextlib.suppress(Exception): f()\n",
        "def f():\n    try: g()\n    except* Exception: pass\n",
    ],
)
def test_a_broad_catch_is_found_outside_the_command_line_only(tmp_path: Path, text: str) -> None:
    (found,) = broad_catches(plant(tmp_path / "bad", {"ari/run.py": text}))
    assert found.startswith("ari/run:") and "catches" in found
    assert broad_catches(plant(tmp_path / "good", {"cli/a.py": text, "ari/jail/a.py": text})) == []


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\n",
        "def f():\n    print(1, file=x)\n",
        "import sys\nsys.exit(1)\n",
        "from sys import exit\n",
        "exit()\n",
        "raise SystemExit(3)\n",
        "raise SystemExit\n",
        "import sys\nsys.stdout.write('x')\n",
    ],
)
def test_printing_and_exiting_are_found_outside_the_command_line_only(tmp_path: Path, text: str) -> None:
    (found,) = speaking(plant(tmp_path / "bad", {"kernel/a.py": text}))
    assert found.startswith("kernel/a:")
    allowed = {"cli/a.py": text, "ari/jail/a.py": text, "ari/images/a.py": text, "ari/brief/a.py": text}
    assert speaking(plant(tmp_path / "good", allowed)) == []


def test_a_main_block_may_end_its_process(tmp_path: Path) -> None:
    text = 'if __name__ == "__main__":\n    sys.exit(main())\n'
    assert speaking(plant(tmp_path, {"ari/grade.py": text})) == []
