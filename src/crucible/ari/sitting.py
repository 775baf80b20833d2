"""A bundle and a list of items -> what came of each, every item in a process of its own, within the total time.

One at a time where a score comes of it: processes of one machine that run at the same moment can always signal each other
somehow. Several at once, each in a jail of its own, where only diagnostics do. Does not know what an item is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from crucible.ari.box import Box
from crucible.ari.talk import Jail

Item = TypeVar("Item")
Result = TypeVar("Result")
_JAILS = 2


def cores() -> int:
    """How many questions can be under way at once here; each has one core."""
    return max(1, min(_JAILS, len(os.sched_getaffinity(0))))


def sit(
    box: Box,
    bundle: Path,
    items: Sequence[Item],
    one: Callable[[Jail, Item, float], Result],
    *,
    total_s: float,
    at_once: int = 1,
    over: Callable[[], bool] = lambda: False,
) -> list[Result]:
    """`one(jail, item, ends)` for each item, begun in the given order; the results are in that order too."""
    ends = time.monotonic() + total_s
    results: dict[int, Result] = {}
    todo = iter(range(len(items)))
    taking, stop = threading.Lock(), threading.Event()

    def work() -> None:
        whole = False
        try:
            with Jail(box, bundle, lambda: stop.is_set() or over()) as jail:
                while not stop.is_set():
                    with taking:
                        at = next(todo, None)
                    if at is None:
                        break
                    results[at] = one(jail, items[at], ends)
            whole = True
        finally:
            if not whole:  # an error of ours, or Ctrl-C: nobody goes on
                stop.set()

    others = min(at_once, len(items)) - 1
    if others <= 0:
        work()
    else:
        with ThreadPoolExecutor(others) as pool:
            helping = [pool.submit(work) for _ in range(others)]
            work()
            for helper in helping:
                helper.result()
    return [results[at] for at in range(len(items))]
