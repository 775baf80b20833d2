"""A judgement -> what a record says of it: metrics from a closed list, aggregates and flags. Computes no score.

What is finer than five questions stays out; the box that held the submission and the runtime that answered are named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crucible.ari.box import Box
from crucible.ari.boxes.runtime import versions
from crucible.ari.exam.questions import Exam
from crucible.ari.judge import Judged, Seal, coarse
from crucible.ari.track import Track
from crucible.documents import as_builtins
from crucible.kernel import ledger

METRICS = (
    "score",
    "passed",
    "questions",
    "bpb",
    "public_score",
    "gap",
    "artifact_bytes",
    "order_differences",
    "audit_asked",
    "audit_kept",
    "restarts",
    "grade_seconds",
    "run_seconds",
    "calls",
    "submissions",
)
"""The closed list of this half's metrics. Scores are percent, 0 to 100; gap is public_score - score; bpb is bits per byte."""
SEALED = "grade.sealed"
"""The ledger line that fixes the replies before anything but exact match is computed."""
UNISOLATED = "graded in the local box: nothing isolated the submission from this machine"


def flags_of(track: Track, exam: Exam, box: Box | None = None) -> list[str]:
    asked = len(exam.questions)
    flags = [UNISOLATED] if box is not None and box.kind == "local" else []
    if asked != track.questions:
        flags.append(f"the exam has {asked} questions, the track {track.name} says {track.questions}")
    return flags


def metrics_of(judged: Judged) -> dict[str, float]:
    metrics: dict[str, float] = {
        "score": judged.score,
        "passed": judged.passed,
        "questions": judged.questions,
        "grade_seconds": judged.seconds,
        "order_differences": judged.order.differ,
        "audit_asked": judged.audit.asked,
        "audit_kept": judged.audit.kept,
        "restarts": judged.restarts,
    }
    return metrics if judged.bpb is None else {**metrics, "bpb": judged.bpb}


def detail_of(judged: Judged, box: Box) -> dict[str, Any]:
    return {
        "by_category": as_builtins(coarse(judged.by_category)),
        "failures": judged.failures,
        "flags": judged.flags,
        "order": as_builtins(judged.order),
        "audit": as_builtins(judged.audit),
        "timing": judged.timing,
        "replies_sha256": judged.replies_sha256,
        "grader": {"box": box.kind, "limits": box.limits(), "runtime": versions()},
    }


def sealing(path: Path, body: dict[str, str]) -> Seal:
    def seal(sha256: str, passed: int) -> None:
        ledger.append(path, SEALED, {**body, "replies_sha256": sha256, "passed": passed})

    return seal


def salt_of(exam: Exam) -> str:
    """What keeps the published digest of the replies from being searched for."""
    return exam.header.salt if exam.header else ""
