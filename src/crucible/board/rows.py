"""Records of many runs -> one row per subject and pin: its score over seeds, and what did not count. Ranks nothing.

A row is official with as many valid runs as its track asks for, of distinct seeds and distinct artefacts, otherwise
provisional. Empty runs count with what they earned. Invalid runs are listed with their cause and never averaged. The first
run of a seed counts, in the order of the ledger: a second one cannot replace a result that somebody did not like.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from crucible.kernel import digest, ledger, stats
from crucible.kernel.pin import Pin
from crucible.kernel.record import Empty, Invalid, Record, from_builtins

PIN_KIND = "ari.track"
LEDGER = "ledger.jsonl"
SCALE = 100.0
"""Scores are percent."""
DEFAULT_SEEDS = 3

Status = Literal["official", "provisional"]


class Aside(msgspec.Struct, frozen=True):
    """A run that is shown and not averaged, with the reason."""

    run: str | None
    seed: int | None
    reason: str


class Row(msgspec.Struct, frozen=True):
    subject: str
    identity: dict[str, str]
    track: str
    pin: str
    exam: str | None
    status: Status
    summary: stats.Summary | None
    """Over the valid runs; none where every run was invalid."""
    item_se: float | None
    """The standard error from having asked only so many questions: a spread of zero over seeds is not certainty."""
    public_score: float | None
    gap: float | None
    empty: int
    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    invalid: tuple[Aside, ...]
    not_counted: tuple[Aside, ...]
    flags: tuple[str, ...]


class Ledgered(msgspec.Struct, frozen=True):
    """What a ledger of runs holds for the board: records in order, and runs that were begun and have none."""

    records: tuple[Record, ...]
    unjudged: tuple[str, ...]


def read(root: Path) -> Ledgered:
    """The records under a folder of runs; a ledger that does not hold raises."""
    records: list[Record] = []
    begun: list[str] = []
    path = root / LEDGER
    for line in ledger.read(path):
        entry = line.entry
        if entry.kind == "run.allocated" and isinstance(entry.body, dict):
            begun.append(str(entry.body.get("run")))
        elif entry.kind == "record":
            record = from_builtins(entry.body, f"{path}:{entry.n}")
            if record.pin.kind == PIN_KIND:
                records.append(record)
    judged = {_run(record) for record in records}
    return Ledgered(tuple(records), tuple(run for run in begun if run not in judged))


def rows(records: Iterable[Record], track: str | None = None) -> list[Row]:
    """One row per subject under each pin, in the order in which they first appear."""
    wanted = [record for record in records if track is None or track_name(record.pin) == track]
    valid: dict[tuple[str, str], list[Record]] = {}
    failed: dict[tuple[str, str], list[Record]] = {}
    for record in wanted:
        groups = failed if isinstance(record.outcome, Invalid) else valid
        groups.setdefault((record.pin.digest, digest.of_json(record.subject)), []).append(record)
    made = [_row(group, _invalid_of(group[0], failed)) for group in valid.values()]
    shown = {aside.run for row in made for aside in row.invalid}
    alone = [group for group in failed.values() if not {_run(record) for record in group} <= shown]
    return made + [_row([], group) for group in alone]


def track_name(pin: Pin) -> str:
    return str(_track(pin).get("name", "?"))


def _track(pin: Pin) -> dict[str, Any]:
    track = pin.facts.get("track")
    return track if isinstance(track, dict) else {}


def _run(record: Record) -> str:
    return str(record.detail.get("run"))


def _invalid_of(record: Record, failed: dict[tuple[str, str], list[Record]]) -> list[Record]:
    """An invalid run never met the exam, so its pin lacks that one fact; it belongs to every row that differs in nothing else."""
    hour = {name: value for name, value in record.pin.facts.items() if name != "exam"}
    key = (Pin(record.pin.kind, hour).digest, digest.of_json(record.subject))
    return failed.get(key, [])


def _row(group: Sequence[Record], invalid: Sequence[Record]) -> Row:
    counted, not_counted = _counted(group)
    first = (counted or invalid)[0]
    scores = [record.metrics["score"] for record in counted]
    asked = int(_track(first.pin).get("seeds", DEFAULT_SEEDS))
    exam = first.pin.facts.get("exam")
    return Row(
        subject=first.label,
        identity=first.subject,
        track=track_name(first.pin),
        pin=first.pin.digest,
        exam=str(exam) if exam else None,
        status="official" if len(counted) >= asked else "provisional",
        summary=stats.summary(scores) if scores else None,
        item_se=_item_se(counted),
        public_score=_mean(counted, "public_score"),
        gap=_mean(counted, "gap"),
        empty=sum(isinstance(record.outcome, Empty) for record in counted),
        seeds=tuple(record.seed for record in counted if record.seed is not None),
        runs=tuple(map(_run, counted)),
        invalid=tuple(Aside(_run(record), record.seed, _cause(record)) for record in invalid),
        not_counted=not_counted,
        flags=tuple(sorted({str(flag) for record in counted for flag in record.detail.get("flags", [])})),
    )


def _counted(group: Sequence[Record]) -> tuple[list[Record], tuple[Aside, ...]]:
    """One run of each seed and each artefact; one checkpoint scored three times is one result."""
    counted: list[Record] = []
    asides: list[Aside] = []
    for record in group:
        reason = _repeats(record, counted)
        if reason is None:
            counted.append(record)
        else:
            asides.append(Aside(_run(record), record.seed, reason))
    return counted, tuple(asides)


def _repeats(record: Record, counted: Sequence[Record]) -> str | None:
    for earlier in counted:
        if record.seed == earlier.seed:
            return f"seed {record.seed} was already counted in {_run(earlier)}"
        if record.artefact is not None and record.artefact == earlier.artefact:
            return f"its artefact is the one of {_run(earlier)}"
    return None


def _cause(record: Record) -> str:
    return record.outcome.cause if isinstance(record.outcome, Invalid) else ""


def _mean(records: Sequence[Record], metric: str) -> float | None:
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    return math.fsum(values) / len(values) if values else None


def _item_se(records: Sequence[Record]) -> float | None:
    """Binomial, over the questions of one exam: every seed answers the same ones, so more seeds do not shrink it."""
    questions = [record.metrics["questions"] for record in records if record.metrics.get("questions")]
    if not questions:
        return None
    share = math.fsum(record.metrics["score"] for record in records) / len(records) / SCALE
    return SCALE * math.sqrt(max(0.0, share * (1.0 - share)) / min(questions))
