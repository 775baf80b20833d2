"""src/crucible -> how large it is, as plain text: lines per package, largest files, longest functions, against the budget.

The budget is a habit, not a wall: files of about 300 lines, functions of about 60. `tests/laws/test_budget.py` asks a reason
for what is far above it.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent.parent / "src" / "crucible"
FILE_BUDGET, FUNCTION_BUDGET = 300, 60
SHOWN = 10


class Sized(NamedTuple):
    lines: int
    name: str


def files(source: Path) -> list[Sized]:
    """Every module with its number of lines, largest first."""
    found = [
        Sized(len(path.read_text().splitlines()), path.relative_to(source).as_posix()) for path in source.rglob("*.py")
    ]
    return sorted(found, key=lambda sized: (-sized.lines, sized.name))


def functions(source: Path) -> list[Sized]:
    """Every function and method with its number of lines, docstring and decorators included, longest first."""
    found = []
    for path in source.rglob("*.py"):
        name = path.relative_to(source).as_posix()
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                found.append(Sized((node.end_lineno or start) - start + 1, f"{name}:{node.name}"))
    return sorted(found, key=lambda sized: (-sized.lines, sized.name))


def packages(source: Path) -> list[Sized]:
    """Lines per package, a module at the top counting as one."""
    lines: Counter[str] = Counter()
    for sized in files(source):
        lines[sized.name.split("/")[0]] += sized.lines
    return [Sized(count, name) for name, count in lines.most_common()]


def report(source: Path = SOURCE) -> str:
    every, long = files(source), functions(source)
    parts = [
        f"{sum(sized.lines for sized in every)} lines in {len(every)} files, {len(long)} functions",
        _table("lines per package", packages(source), None),
        _table(f"largest files (budget about {FILE_BUDGET})", every[:SHOWN], FILE_BUDGET),
        _table(f"longest functions (budget about {FUNCTION_BUDGET})", long[:SHOWN], FUNCTION_BUDGET),
    ]
    return "\n\n".join(parts) + "\n"


def _table(title: str, rows: list[Sized], budget: int | None) -> str:
    over = {row: "  over" if budget is not None and row.lines > budget else "" for row in rows}
    return "\n".join([title, *(f"{row.lines:>7}  {row.name}{over[row]}" for row in rows)])


if __name__ == "__main__":
    print(report(), end="")
