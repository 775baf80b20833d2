"""What a run leaves on disk, spelled in one place. Reads and writes its few documents; holds no logic of the protocol.

RUNS/
  ledger.jsonl            every run: allocated before it starts, finished, its record once it is judged
  RUN/
    run.json              Plan: track, agent, seed and the pin as they stood before the agent's first instruction
    agent/                the agent's own files, as they were run
    workspace/            what the agent saw and made: brief.md, public.jsonl, text.txt, starter/, ...
    transcript.txt        everything the agent itself printed
    audit.jsonl           one chained line for each request to the runner, also the refused ones
    submissions.jsonl     the append-only history: submitted, scored, promoted, finalized
    artefacts/            SHA256.tar.gz: snapshots taken at submit, by content address
    finished.json         Finished: how the hour ended
    grade-EXAM.json       the judgement under the exam whose SHA-256 begins so; for the operator's eyes only
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from crucible.ari.track import Track
from crucible.documents import read_json
from crucible.errors import Mistake
from crucible.kernel.pin import Pin

LEDGER = "ledger.jsonl"
Pending = Literal["pending", "empty", "invalid"]
Cause = Literal["machinery failed", "harness stopped"]
"""Why a run is invalid: a closed list, decided from the host's side alone."""


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was decided before the run began."""

    run: str
    track: Track
    subject: dict[str, str]
    seed: int
    pin: Pin


class Finished(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the hour ended. "pending" has a promoted artefact that nobody has judged yet."""

    run: str
    outcome: Pending
    official_submission: str | None
    artefact: str | None
    cause: Cause | None
    reason: str | None
    seconds: float
    calls: int
    submissions: int
    agent_exit: int | None
    """None where the deadline ended the agent."""
    transcript_sha256: str
    history_head: str


class RunDir:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path.parent
        self.ledger = self.root / LEDGER
        self.plan = path / "run.json"
        self.agent = path / "agent"
        self.workspace = path / "workspace"
        self.transcript = path / "transcript.txt"
        self.audit = path / "audit.jsonl"
        self.history = path / "submissions.jsonl"
        self.snapshots = path / "artefacts"
        self.finished = path / "finished.json"

    def snapshot(self, sha256: str) -> Path:
        return self.snapshots / f"{sha256}.tar.gz"

    def grade(self, exam_sha256: str) -> Path:
        return self.path / f"grade-{exam_sha256[:16]}.json"

    def read_plan(self) -> Plan:
        return read_json(self.plan, Plan, "the plan of a run", "Give the folder of a run: RUNS/RUN.")

    def read_finished(self) -> Finished:
        if not self.finished.exists():
            raise Mistake(
                f"{self.path} has not finished: there is no {self.finished.name}",
                fix="Wait until `crucible ari run` has ended.",
            )
        return read_json(self.finished, Finished, "the end of a run", "Give the folder of a run: RUNS/RUN.")


def find(run: str, root: Path) -> RunDir:
    """A run by the path of its folder, or by its id under `root`."""
    for path in (Path(run), root / run):
        if (path / "run.json").is_file():
            return RunDir(path.resolve())
    raise Mistake(
        f"no run at {run}, and none of that id under {root}",
        fix="Give the path that `crucible ari run` printed, or --root.",
    )
