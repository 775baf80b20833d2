"""Anyone's archive and a hidden exam -> its score and a Record, outside any run. The same judgement as a run's.

However it was packed, it is packed canonically first: that size and that digest count, and what cannot be packed so is refused
with the reason.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from crucible.ari.artefact import Packed, canonical
from crucible.ari.box import Box
from crucible.ari.exam.questions import Exam, load
from crucible.ari.judge import Audit, Group, Judged, Notice, Order, Seal, judge
from crucible.ari.submit import artefact_limits
from crucible.ari.track import Track, pin
from crucible.ari.verdict import METRICS, detail_of, flags_of, metrics_of, salt_of, sealing
from crucible.kernel import ledger
from crucible.kernel.record import Measured, Record, make, to_builtins


class BundleGraded(msgspec.Struct, frozen=True):
    """What `crucible ari grade-bundle` prints."""

    score: float
    passed: int
    questions: int
    bpb: float | None
    flags: list[str]
    by_category: dict[str, Group]
    seconds: float
    failures: dict[str, int]
    order: Order
    audit: Audit
    restarts: int
    timing: dict[str, float]
    replies_sha256: str | None
    artefact: str
    bytes: int
    """Of the canonical archive, which is what counts, however the given one was packed."""
    exam_sha256: str
    track: str
    grader: dict[str, Any]
    record: str


def grade_bundle(
    archive: Path,
    exam_path: Path,
    track: Track,
    box: Box,
    sha256: str | None = None,
    into: Path | None = None,
    notice: Notice = lambda text: None,
) -> BundleGraded:
    """Judges anyone's archive: it is packed canonically first, and refused with the reason if it cannot be.

    With `into`, a ledger, the seal and the record are written there.
    """
    exam = load(exam_path, sha256)
    with tempfile.TemporaryDirectory(prefix="ari-bundle-") as folder:
        snapshot = Path(folder, "bundle.tar.gz")
        with snapshot.open("wb") as stream:
            packed = canonical(archive, cast(BinaryIO, stream), artefact_limits(track))
        body = {"artefact": packed.sha256, "exam": exam.sha256}
        seal: Seal = (lambda sha256, passed: None) if into is None else sealing(into, body)
        judged = judge(box, snapshot, exam.questions, track, salt=salt_of(exam), seal=seal, notice=notice)
    judged = msgspec.structs.replace(judged, flags=[*flags_of(track, exam, box), *judged.flags])
    record = make(
        pin=pin(track, box=box.kind, exam_sha256=exam.sha256),
        subject={"bundle": packed.sha256[:16]},
        artefact=packed.sha256,
        seed=None,
        outcome=Measured(),
        metrics={**metrics_of(judged), "artifact_bytes": packed.bytes},
        names=METRICS,
        detail=detail_of(judged, box),
    )
    if into is not None:
        ledger.append(into, "record", to_builtins(record))
    return _bundle_graded(judged, packed, exam, track, record)


def _bundle_graded(judged: Judged, packed: Packed, exam: Exam, track: Track, record: Record) -> BundleGraded:
    return BundleGraded(
        score=judged.score,
        passed=judged.passed,
        questions=judged.questions,
        bpb=judged.bpb,
        flags=judged.flags,
        by_category=judged.by_category,
        seconds=judged.seconds,
        failures=judged.failures,
        order=judged.order,
        audit=judged.audit,
        restarts=judged.restarts,
        timing=judged.timing,
        replies_sha256=judged.replies_sha256,
        artefact=packed.sha256,
        bytes=packed.bytes,
        exam_sha256=exam.sha256,
        track=track.name,
        grader=record.detail["grader"],
        record=record.digest,
    )
