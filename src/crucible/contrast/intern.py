"""Lines of bundle files -> numbered texts and integer columns, as fast as the machine allows. Finds faults, names none.

Two things make it fast: lines are decoded many at a time and looked up column by column, in C; and a large plain file is cut
into ranges that are read by all cores, each with numbers of its own, which are then translated into common ones.
"""

from __future__ import annotations

import multiprocessing
import os
from array import array
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crucible.contrast import read
from crucible.contrast.bundle import Bundle
from crucible.contrast.formats import AnyLine, FlatLine, Header, to_bundle
from crucible.contrast.tiers import TIERS

Ids = npt.NDArray[np.int32]
NO_TIER = -1
_WORTH_A_PROCESS = 32 << 20
"""Bytes of input below which starting another process costs more than it saves."""


@dataclass(frozen=True)
class Part:
    """Bundles as columns; text numbers are places in `texts`. An id is None where the file gives none."""

    ids: list[str | None]
    texts: list[str]
    anchors: Ids
    positives: Ids
    negatives: Ids
    counts: npt.NDArray[np.int64]
    tier: npt.NDArray[np.int8]
    danger: npt.NDArray[np.float64]


class Interner:
    """Collects bundles column by column; a text gets the next number when it is first seen."""

    def __init__(self) -> None:
        self.known: defaultdict[str, int] = defaultdict()
        self.known.default_factory = self.known.__len__
        self.ids: list[str | None] = []
        self.anchors, self.positives, self.negatives = array("i"), array("i"), array("i")
        self.counts, self.tier, self.danger = array("q"), array("b"), array("d")

    def add(self, bundle: Bundle) -> None:
        number = self.known.__getitem__
        self.ids.append(bundle.id)
        self.anchors.append(number(bundle.anchor))
        self.positives.append(number(bundle.positive))
        self.negatives.extend(map(number, bundle.negatives))
        self.counts.append(len(bundle.negatives))
        self.tier.append(NO_TIER if bundle.tier is None else TIERS.index(bundle.tier))
        self.danger.append(np.nan if bundle.danger is None else bundle.danger)

    def add_lines(self, lines: list[AnyLine]) -> None:
        flat = [line for line in lines if isinstance(line, FlatLine) and line.metadata is None]
        if len(flat) < len(lines):
            for line in lines:
                self.add(to_bundle(line, 0))
                if self.ids[-1] == "b0" and _nameless(line):
                    self.ids[-1] = None
            return
        number = self.known.__getitem__
        self.anchors.extend([number(line.anchor) for line in flat])
        self.positives.extend([number(line.positive) for line in flat])
        negatives = [line.negatives for line in flat]
        self.negatives.extend(list(map(number, chain.from_iterable(negatives))))
        self.counts.extend(list(map(len, negatives)))
        self.ids += [_given(line) for line in flat]
        self.tier.extend([NO_TIER] * len(flat))
        self.danger.extend([np.nan] * len(flat))

    def done(self) -> Part:
        return Part(
            self.ids,
            list(self.known),
            np.frombuffer(self.anchors, dtype=np.int32),
            np.frombuffer(self.positives, dtype=np.int32),
            np.frombuffer(self.negatives, dtype=np.int32),
            np.frombuffer(self.counts, dtype=np.int64),
            np.frombuffer(self.tier, dtype=np.int8),
            np.frombuffer(self.danger, dtype=np.float64),
        )


def files(paths: Sequence[Path]) -> tuple[Part, Header | None] | None:
    """All files as one part, or None where anything is unusual: another format, a fault, an id twice."""
    try:
        plans = [read.plan(path, _pieces(path)) for path in paths]
        jobs = [(plan, *edges) for plan in plans if plan is not None for edges in plan.ranges]
        if None in plans or not jobs:
            return None
        parts = [_read_range(*job) for job in jobs] if len(jobs) == len(paths) else _in_processes(jobs)
    except (*read.UNREADABLE, *read.BROKEN):
        return None
    whole = _merged(parts)
    ids = {f"b{place}" if own is None else own for place, own in enumerate(whole.ids, 1)}
    blank = any(not text.strip() for text in whole.texts) or any(not own.strip() for own in ids)
    if blank or len(ids) != len(whole.ids) or not whole.ids or not whole.counts.all():
        return None
    return whole, next((plan.header for plan in plans if plan and plan.header), None)


def _pieces(path: Path) -> int:
    size = path.stat().st_size if path.is_file() else 0
    return max(1, min(len(os.sched_getaffinity(0)), size // _WORTH_A_PROCESS))


def _in_processes(jobs: list[tuple[read.Plan, int, int]]) -> list[Part]:
    # Forked, because a fresh interpreter would take longer to import NumPy than a range takes to read.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(len(jobs), mp_context=context) as pool:
        return list(pool.map(_read_range, *zip(*jobs, strict=True)))


def _read_range(plan: read.Plan, begin: int, end: int) -> Part:
    interner = Interner()
    for lines in read.lines_in(plan, begin, end):
        interner.add_lines(lines)
    return interner.done()


def _merged(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    known: defaultdict[str, int] = defaultdict()
    known.default_factory = known.__len__
    common = [np.fromiter(map(known.__getitem__, part.texts), dtype=np.int32, count=len(part.texts)) for part in parts]
    numbered = list(zip(parts, common, strict=True))
    return Part(
        [own for part in parts for own in part.ids],
        list(known),
        np.concatenate([number[part.anchors] for part, number in numbered]),
        np.concatenate([number[part.positives] for part, number in numbered]),
        np.concatenate([number[part.negatives] for part, number in numbered]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.tier for part in parts]),
        np.concatenate([part.danger for part in parts]),
    )


def _given(line: FlatLine) -> str | None:
    found = line.id if line.id is not None else line.bundle_id
    return None if found is None else str(found)


def _nameless(line: AnyLine) -> bool:
    return line.id is None and getattr(line, "bundle_id", None) is None
