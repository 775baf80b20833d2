"""Values -> what a person or a program sees: tables and sentences on stderr or stdout, one JSON document with --json."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crucible.documents import as_builtins, to_json

WIDTH = 100

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; everything else on stderr.")]


SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Go on without bad lines; they are kept in a file beside the output.")
]


def quarantined(count: int, path: Path) -> None:
    if count:
        say(f"warning: {count} bad lines were left out; each is kept with its reason in {path}")


def say(text: str) -> None:
    """A sentence for people; on stderr, so that stdout stays clean for data."""
    _console(stderr=True).print(Text(visible(text)), soft_wrap=True)


def out(text: str) -> None:
    """A line of the result itself."""
    sys.stdout.write(visible(text) + "\n")


def json_document(value: object) -> None:
    """The one document of --json."""
    sys.stdout.buffer.write(to_json(as_builtins(value)))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> None:
    """A table on stdout; the first `left` columns are text, the others are numbers and stand to the right."""
    if title:  # above the table and not in it: a long title must not be squeezed into a narrow table
        _console().print(Text(visible(title), style="bold"), soft_wrap=True)
    grid = Table(header_style="bold", box=None, pad_edge=False)
    for place, name in enumerate(columns):
        grid.add_column(Text(visible(name)), justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(visible(cell(value))) for value in row))
    _console().print(grid)


def cell(value: object) -> str:
    """A dash for what does not exist: a missing number is not zero."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def visible(text: str) -> str:
    """Text from outside may carry terminal escapes or direction marks: they are shown, never obeyed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def fail(
    kind: str, message: str, fix: str, code: int, facts: Mapping[str, object], as_json: bool, *, width: int = 4000
) -> int:
    """Reports a failure on stderr, and as the JSON document if one was asked for; returns the exit code."""
    say(f"crucible: {message[:width]}\n  fix: {fix}")
    if as_json:
        error = {"kind": kind, "message": message, "fix": fix, "exit_code": code, **facts}
        try:
            json_document({"error": error})
            sys.stdout.flush()
        except OSError:  # stdout itself failed: the sentence on stderr is said, and nothing may flush again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console
