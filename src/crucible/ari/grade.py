"""Walk 2, the judgement: a finished run and the hidden exam -> one Record in the ledger. A process of its own, after the hour.

Exact byte match, aggregates only: no question, answer or verdict on a single question leaves this module, and the record
keeps no group of fewer than five questions. A submission that fails is a result; an artefact or exam that is not what its
digest says is the machinery's failure and is never scored.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from crucible.ari.artefact import unpack
from crucible.ari.box import Box
from crucible.ari.exam.questions import Exam, Question, load
from crucible.ari.examine import Ask, Reply, examine
from crucible.ari.rundir import Finished, Plan, RunDir
from crucible.ari.submit import State, Submitted, artefact_limits, replay, require_snapshot
from crucible.ari.track import Track, with_exam
from crucible.documents import read_json, to_json, write_bytes
from crucible.errors import IntegrityBroken, Mistake, SubmissionRefused
from crucible.kernel import ledger
from crucible.kernel.record import Empty, Measured, Record, from_builtins, make, to_builtins

METRICS = (
    "score",
    "passed",
    "questions",
    "public_score",
    "gap",
    "artifact_bytes",
    "grade_seconds",
    "run_seconds",
    "calls",
    "submissions",
)
"""The closed list of this half's metrics. Scores are percent, 0 to 100; gap is public_score - score."""
SMALLEST_GROUP = 5


class Group(msgspec.Struct, frozen=True):
    passed: int
    questions: int


class Judged(msgspec.Struct, frozen=True):
    """How one artefact answered one exam: aggregates."""

    passed: int
    questions: int
    by_category: dict[str, Group]
    failures: dict[str, int]
    """Why questions got no complete answer, counted; a wrong answer is not a failure."""
    seconds: float

    @property
    def score(self) -> float:
        return 100.0 * self.passed / self.questions


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


def grade(place: RunDir, exam_path: Path, box: Box, sha256: str | None = None) -> Graded:
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
        judged = _nothing(exam)
    else:
        judged = judge(box, place.snapshot(state.official.sha256 or ""), exam.questions, plan.track)
    record = _record(plan, finished, exam, state, judged)
    graded = _graded(record, judged.by_category)
    # The detail first: only the ledger says that a run was judged, and a crash in between must not hide a judgement.
    write_bytes(place.grade(exam.sha256), to_json(graded), mode=0o600)
    ledger.append(place.ledger, "record", to_builtins(record))
    return graded


def _recorded(place: RunDir, run: str, exam_sha256: str) -> Record | None:
    for line in ledger.read(place.ledger, "record"):
        record = from_builtins(line.entry.body, f"{place.ledger}:{line.entry.n}")
        if record.detail.get("run") == run and record.pin.facts.get("exam") == exam_sha256:
            return record
    return None


def _read(path: Path) -> Graded:
    return read_json(path, Graded, "a judgement", "Remove the file; the record in the ledger stays.")


def judge(box: Box, snapshot: Path, questions: Sequence[Question], track: Track) -> Judged:
    """Asks every question, then compares bytes: the answers are looked at only when all replies are in."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ari-grade-") as folder:
        try:
            unpack(snapshot, Path(folder), artefact_limits(track))
        except SubmissionRefused:
            return _marked(questions, [Reply(q.id, b"", "load", 0.0) for q in questions], time.monotonic() - began)
        asks = [Ask(question.id, question.prompt, len(question.answer)) for question in questions]
        replies = examine(box, Path(folder), asks, track)
    return _marked(questions, replies, time.monotonic() - began)


def _marked(questions: Sequence[Question], replies: Sequence[Reply], seconds: float) -> Judged:
    right = [
        question
        for question, reply in zip(questions, replies, strict=True)
        if reply.failure is None and reply.answer == question.answer
    ]
    failures = [reply.failure for reply in replies if reply.failure is not None]
    return Judged(
        passed=len(right),
        questions=len(questions),
        by_category=_count(questions, right),
        failures={name: failures.count(name) for name in sorted(set(failures))},
        seconds=round(seconds, 3),
    )


def _count(questions: Sequence[Question], right: Sequence[Question]) -> dict[str, Group]:
    def of(category: str) -> Callable[[Sequence[Question]], int]:
        return lambda some: sum(question.category == category for question in some)

    names = sorted({question.category for question in questions})
    return {name: Group(of(name)(right), of(name)(questions)) for name in names}


def coarse(groups: dict[str, Group]) -> dict[str, Group]:
    """What may be published: groups below five questions join the next smallest, so that none can be told from the total."""
    rest = sorted(groups.items(), key=lambda item: (item[1].questions, item[0]))
    small: list[tuple[str, Group]] = []
    while rest and (rest[0][1].questions < SMALLEST_GROUP or (small and _size(small) < SMALLEST_GROUP)):
        small.append(rest.pop(0))
    published = dict(sorted(rest))
    if _size(small) >= SMALLEST_GROUP:
        published["other"] = Group(sum(group.passed for _, group in small), _size(small))
    return published


def _size(groups: Sequence[tuple[str, Group]]) -> int:
    return sum(group.questions for _, group in groups)


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


def _flags(track: Track, exam: Exam) -> list[str]:
    asked = len(exam.questions)
    if asked == track.questions:
        return []
    return [f"the exam has {asked} questions, the track {track.name} says {track.questions}"]


def _nothing(exam: Exam) -> Judged:
    """Nothing promoted: it earned zero, and that counts."""
    return _marked(exam.questions, [Reply(question.id, b"", None, 0.0) for question in exam.questions], 0.0)


def _record(plan: Plan, finished: Finished, exam: Exam, state: State, judged: Judged) -> Record:
    official = state.official
    metrics: dict[str, float] = {
        "score": judged.score,
        "passed": judged.passed,
        "questions": judged.questions,
        "grade_seconds": judged.seconds,
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
            "by_category": coarse(judged.by_category),
            "failures": judged.failures,
            "flags": _flags(plan.track, exam),
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
    )
