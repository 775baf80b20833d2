"""Walk 2, the judgement: a finished run and the hidden exam -> one Record in the ledger. A process of its own, after the hour.

Exact byte match, aggregates only: no question, answer or verdict on a single question leaves this module, and the record
keeps no group of fewer than five questions. A submission that fails is a result; an artefact or exam that is not what its
digest says is the machinery's failure and is never scored. A bundle outside any run is judged the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from crucible.ari.box import Box
from crucible.ari.exam.questions import Exam, load
from crucible.ari.judge import Audit, Group, Judged, Notice, Order, judge, nothing
from crucible.ari.rundir import Finished, Plan, RunDir
from crucible.ari.submit import State, Submitted, replay, require_snapshot
from crucible.ari.track import with_exam
from crucible.ari.verdict import METRICS, SEALED, detail_of, flags_of, metrics_of, salt_of, sealing
from crucible.documents import read_json, to_json, write_bytes
from crucible.errors import IntegrityBroken, Mistake
from crucible.kernel import ledger
from crucible.kernel.record import Empty, Measured, Record, from_builtins, make, to_builtins


class Graded(msgspec.Struct, frozen=True):
    """What `crucible ari grade` prints; kept in the run's folder, readable by its owner only."""

    run: str
    outcome: str
    score: float
    passed: int
    questions: int
    by_category: dict[str, Group]
    seconds: float
    public_score: float | None
    gap: float | None
    official_submission: str | None
    artefact: str | None
    exam_sha256: str
    failures: dict[str, int]
    flags: list[str]
    record: str
    """Digest of the record in the ledger."""
    bpb: float | None = None
    order: Order = Order()
    audit: Audit = Audit()
    restarts: int = 0
    timing: dict[str, float] = {}
    replies_sha256: str | None = None
    grader: dict[str, Any] = {}
    """The box that held the submission, the limits that were in force, and the runtime that answered."""


def grade(
    place: RunDir, exam_path: Path, box: Box, sha256: str | None = None, notice: Notice = lambda text: None
) -> Graded:
    """Judges a finished run. A second judgement under the same exam returns the first: nothing is scored twice."""
    plan, finished, exam = place.read_plan(), place.read_finished(), load(exam_path, sha256)
    if finished.outcome == "invalid":
        raise Mistake(
            f"{finished.run} is invalid ({finished.cause}: {finished.reason}): an invalid run is rerun, never graded",
            fix="Start it again with `crucible ari run`; the new run gets an id of its own.",
        )
    state = _trusted_history(place, finished)
    recorded = _recorded(place, finished.run, exam.sha256)
    if recorded is not None:
        kept = place.grade(exam.sha256)
        return _read(kept) if kept.exists() else _graded(recorded, _published(recorded))
    if state.official is None:
        judged = nothing(exam.questions)
    else:
        seal = sealing(place.ledger, {"run": finished.run, "exam": exam.sha256})
        snapshot = place.snapshot(state.official.sha256 or "")
        judged = judge(box, snapshot, exam.questions, plan.track, salt=salt_of(exam), seal=seal, notice=notice)
    flags = [*flags_of(plan.track, exam, box), *judged.flags, *_earlier(place.ledger, finished.run, exam, judged)]
    judged = msgspec.structs.replace(judged, flags=flags if state.official else flags_of(plan.track, exam))
    record = _record(plan, finished, exam, state, judged, box)
    graded = _graded(record, judged.by_category)
    # The detail first: only the ledger says that a run was judged, and a crash in between must not hide a judgement.
    write_bytes(place.grade(exam.sha256), to_json(graded), mode=0o600)
    ledger.append(place.ledger, "record", to_builtins(record))
    return graded


# --- the ledger --------------------------------------------------------------------------------------------------------


def _seals(path: Path, run: str, exam_sha256: str) -> Iterator[str]:
    for line in ledger.read(path, SEALED):
        body = line.entry.body
        if (body.get("run"), body.get("exam")) == (run, exam_sha256):
            yield body["replies_sha256"]


def _earlier(path: Path, run: str, exam: Exam, judged: Judged) -> list[str]:
    """A judgement that was stopped after its seal leaves the seal: the replies must have been the same."""
    others = [sealed for sealed in _seals(path, run, exam.sha256) if sealed != judged.replies_sha256]
    return [f"{len(others)} earlier judgements that did not finish had other replies"] if others else []


def _recorded(place: RunDir, run: str, exam_sha256: str) -> Record | None:
    for line in ledger.read(place.ledger, "record"):
        record = from_builtins(line.entry.body, f"{place.ledger}:{line.entry.n}")
        if record.detail.get("run") == run and record.pin.facts.get("exam") == exam_sha256:
            return record
    return None


def _read(path: Path) -> Graded:
    return read_json(path, Graded, "a judgement", "Remove the file; the record in the ledger stays.")


def _trusted_history(place: RunDir, finished: Finished) -> State:
    """The submissions as they stood when the run ended, with the official snapshot byte for byte as it was submitted."""
    head = ledger.verify(place.history).digest if place.history.exists() else ledger.GENESIS
    state = replay(place.history)
    official = state.official
    claimed = (finished.official_submission, finished.artefact, finished.history_head)
    found = (official and official.id, official and official.sha256, head)
    if claimed != found:
        raise IntegrityBroken(
            f"{place.history}: the history says {found}, but the run ended with {claimed}",
            fix="Restore the run's folder from a copy; it was changed after the run.",
        )
    if official is not None and official.sha256 is not None:
        require_snapshot(place.snapshot(official.sha256), official.sha256)
    return state


# --- the record --------------------------------------------------------------------------------------------------------


def _record(plan: Plan, finished: Finished, exam: Exam, state: State, judged: Judged, box: Box) -> Record:
    official = state.official
    metrics = {
        **metrics_of(judged),
        "run_seconds": finished.seconds,
        "calls": finished.calls,
        "submissions": finished.submissions,
    }
    public = _public_score(state, official)
    if public is not None:
        metrics |= {"public_score": public, "gap": public - judged.score}
    if official is not None and official.bytes is not None:
        metrics["artifact_bytes"] = official.bytes
    return make(
        pin=with_exam(plan.pin, exam.sha256),
        subject=plan.subject,
        artefact=finished.artefact,
        seed=plan.seed,
        outcome=Measured() if official else Empty(finished.reason or "nothing was promoted"),
        metrics=metrics,
        names=METRICS,
        detail={
            "run": finished.run,
            "official_submission": finished.official_submission,
            "transcript_sha256": finished.transcript_sha256,
            "history_head": finished.history_head,
            **detail_of(judged, box),
        },
    )


def _public_score(state: State, official: Submitted | None) -> float | None:
    score = state.score_of(official.id) if official else None
    return None if score is None else 100.0 * score.passed / score.questions


def _published(record: Record) -> dict[str, Group]:
    return msgspec.convert(record.detail["by_category"], type=dict[str, Group])


def _graded(record: Record, by_category: dict[str, Group]) -> Graded:
    detail, metrics = record.detail, record.metrics
    return Graded(
        run=detail["run"],
        outcome="measured" if record.artefact else "empty",
        score=metrics["score"],
        passed=int(metrics["passed"]),
        questions=int(metrics["questions"]),
        by_category=by_category,
        seconds=metrics["grade_seconds"],
        public_score=metrics.get("public_score"),
        gap=metrics.get("gap"),
        official_submission=detail["official_submission"],
        artefact=record.artefact,
        exam_sha256=record.pin.facts["exam"],
        failures=detail["failures"],
        flags=detail["flags"],
        record=record.digest,
        bpb=metrics.get("bpb"),
        order=msgspec.convert(detail.get("order", {}), type=Order),
        audit=msgspec.convert(detail.get("audit", {}), type=Audit),
        restarts=int(metrics.get("restarts", 0)),
        timing=detail.get("timing", {}),
        replies_sha256=detail.get("replies_sha256"),
        grader=detail.get("grader", {}),
    )
