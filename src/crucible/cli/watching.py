"""Events of an engine -> bars at a terminal, a line for every job that ends elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from crucible.cli import output
from crucible.engine import Event

_SAID = {"finished": "done", "skipped": "done before", "retried": "tried again", "failed": "failed"}


@contextlib.contextmanager
def watching(what: str) -> Iterator[Callable[[Event], None]]:
    """A callback for `map_jobs`: one bar for all jobs and one for each that runs."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        whole = bars.add_task(what, total=None)
        running: dict[str, TaskID] = {}

        def show(event: Event) -> None:
            bars.update(whole, completed=event.done, total=event.total)
            if event.kind == "started":
                running[event.job] = bars.add_task(f"  {output.visible(event.job)}", total=None)
            elif event.kind == "progress" and event.inner:
                bars.update(running[event.job], completed=event.inner[0], total=event.inner[1])
            elif event.job in running:
                bars.remove_task(running.pop(event.job))
            if event.kind in _SAID and (event.kind in ("retried", "failed") or not console.is_terminal):
                said = f": {event.message}" if event.message else ""
                output.say(f"{event.done}/{event.total} {event.job} {_SAID[event.kind]}{said}")

        yield show
