"""Candidates of one run -> an append-only history, and which of them is official. Does not know what the exam asks.

The agent decides, the hidden exam judges: a candidate becomes official because it was promoted last or finalized, never
because of its public score, which this module only writes down. `State` is a pure value; `Book` is the same state kept in
a ledger, where it can be read again after a crash.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Literal, cast

import msgspec

from crucible.ari.artefact import Limits, Packed, pack
from crucible.ari.clock import Clock
from crucible.ari.track import Track
from crucible.documents import as_builtins, sync_folder
from crucible.errors import IntegrityBroken, MachineryFailed, SubmissionRefused
from crucible.kernel import digest, ledger

_NOTE_CHARACTERS = 500


class Submitted(msgspec.Struct, frozen=True, tag_field="event", tag="submitted"):
    """A candidate, accepted with its snapshot or rejected with the reason."""

    id: str
    at_s: float
    note: str
    sha256: str | None
    bytes: int | None
    rejected: str | None


class Scored(msgspec.Struct, frozen=True, tag_field="event", tag="scored"):
    """Public feedback, as information for the agent."""

    id: str
    at_s: float
    passed: int
    questions: int


class Promoted(msgspec.Struct, frozen=True, tag_field="event", tag="promoted"):
    id: str
    at_s: float


class Finalized(msgspec.Struct, frozen=True, tag_field="event", tag="finalized"):
    """The agent's last word: promotes the candidate and closes the book."""

    id: str
    at_s: float


Event = Submitted | Scored | Promoted | Finalized


class State(msgspec.Struct, frozen=True):
    """The history so far. `after` refuses what the protocol refuses and returns the next state; nothing is ever removed."""

    events: tuple[Event, ...] = ()

    @property
    def submissions(self) -> tuple[Submitted, ...]:
        return tuple(event for event in self.events if isinstance(event, Submitted))

    @property
    def finalized(self) -> str | None:
        return next((event.id for event in self.events if isinstance(event, Finalized)), None)

    @property
    def official(self) -> Submitted | None:
        """The finalized one, otherwise the one promoted last; nothing promoted is nothing."""
        chosen = [event.id for event in self.events if isinstance(event, Promoted | Finalized)]
        return self.find(chosen[-1]) if chosen else None

    def find(self, wanted: str) -> Submitted | None:
        """A submission by its id."""
        return next((found for found in self.submissions if found.id == wanted), None)

    def score_of(self, wanted: str) -> Scored | None:
        return next((event for event in self.events if isinstance(event, Scored) and event.id == wanted), None)

    def after(self, event: Event, track: Track) -> State:
        if event.at_s >= track.budget_s:
            raise _refused(
                f"the deadline has passed ({event.at_s:.1f} s of {track.budget_s:g} s)", "Nothing: it is over."
            )
        if self.finalized is not None and not isinstance(event, Scored):
            raise _refused(f"{self.finalized} was finalized: this run's choice is made", "Nothing: it is over.")
        if isinstance(event, Submitted):
            if len(self.submissions) >= track.max_submissions:
                raise _refused(
                    f"{track.max_submissions} submissions is the most for this track", "Promote one of them."
                )
            if event.id != self.next_id:
                raise ValueError(f"submission {event.id} out of turn, expected {self.next_id}")
        else:
            self._require_accepted(event.id)
        return State((*self.events, event))

    @property
    def next_id(self) -> str:
        return f"s{len(self.submissions) + 1}"

    def _require_accepted(self, wanted: str) -> None:
        found = self.find(wanted)
        if found is None:
            known = ", ".join(one.id for one in self.submissions) or "none yet"
            raise _refused(f"{wanted!a} is not a submission of this run ({known})", "See `runner list`.")
        if found.rejected is not None:
            raise _refused(f"{wanted} was rejected: {found.rejected}", "Promote an accepted one; see `runner list`.")


class Candidate(msgspec.Struct, frozen=True):
    """One submission as people and programs read it: what it is, what feedback it got, whether it is the chosen one."""

    id: str
    at_s: float
    status: Literal["accepted", "rejected"]
    reason: str | None
    sha256: str | None
    bytes: int | None
    note: str
    public_passed: int | None
    public_questions: int | None
    promoted: bool
    official: bool


def candidates(state: State) -> list[Candidate]:
    promoted = {event.id for event in state.events if isinstance(event, Promoted | Finalized)}
    official = state.official
    return [_candidate(state, one, one.id in promoted, one == official) for one in state.submissions]


def _candidate(state: State, one: Submitted, promoted: bool, official: bool) -> Candidate:
    score = state.score_of(one.id)
    passed, asked = (score.passed, score.questions) if score else (None, None)
    status: Literal["accepted", "rejected"] = "rejected" if one.rejected else "accepted"
    return Candidate(
        one.id, one.at_s, status, one.rejected, one.sha256, one.bytes, one.note, passed, asked, promoted, official
    )


def replay(path: Path) -> State:
    """The state that a history file holds; a run that never submitted has none."""
    if not path.exists():
        return State()
    return State(tuple(_events(path, ledger.read(path))))


def _events(path: Path, lines: Iterable[ledger.Line]) -> Iterable[Event]:
    for line in lines:
        if line.entry.kind == ledger.REPAIRED:
            continue
        try:
            yield cast(Event, msgspec.convert(line.entry.body, type=Event))
        except msgspec.ValidationError as error:
            raise IntegrityBroken(
                f"{path}: line {line.entry.n} is not an event of a submission history: {error}",
                fix="Check which program wrote this file.",
            ) from None


Score = Callable[[Path], tuple[int, int]]
"""A snapshot -> (passed, questions) on the public set."""


class Book:
    """The history of one running run: snapshots by content address, every event on disk before it counts."""

    def __init__(self, path: Path, snapshots: Path, track: Track, clock: Clock, score: Score) -> None:
        self._path, self._snapshots = path, snapshots
        self._track, self._clock, self._score = track, clock, score
        self._state = replay(path)
        self._state_lock = threading.Lock()
        self._submit_lock = threading.Lock()

    @property
    def state(self) -> State:
        return self._state

    def submit(self, folder: Path, note: str) -> Candidate:
        """Snapshot first, feedback second: the candidate can be promoted even if the deadline cuts the feedback short."""
        with self._submit_lock:
            note = ascii(note[:_NOTE_CHARACTERS])[1:-1]
            # Asked before anything is packed, so that a closed book costs no time.
            self._state.after(self._submitted(note, None, "not packed yet"), self._track)
            try:
                packed, reason = self._snapshot(folder), None
            except SubmissionRefused as refusal:
                packed, reason = None, refusal.message
            submitted = self._submitted(note, packed, reason)
            self._append(submitted)
            if packed is not None:
                passed, questions = self._score(self._snapshots / f"{packed.sha256}.tar.gz")
                self._append(Scored(submitted.id, self._clock.used(), passed, questions))
            return candidates(self._state)[int(submitted.id[1:]) - 1]

    def promote(self, wanted: str) -> None:
        self._append(Promoted(wanted, self._clock.used()))

    def finalize(self, wanted: str) -> None:
        self._append(Finalized(wanted, self._clock.used()))

    def _append(self, event: Event) -> None:
        with self._state_lock:
            state = self._state.after(event, self._track)
            ledger.append(self._path, f"submission.{as_builtins(event)['event']}", event)
            self._state = state

    def _submitted(self, note: str, packed: Packed | None, reason: str | None) -> Submitted:
        sha256, size = (packed.sha256, packed.bytes) if packed else (None, None)
        return Submitted(self._state.next_id, self._clock.used(), note, sha256, size, reason)

    def _late(self) -> bool:
        """Packing hostile text can take minutes: it ends at the deadline too."""
        return self._clock.left() <= 0

    def _snapshot(self, folder: Path) -> Packed:
        limits = artefact_limits(self._track)
        try:
            self._snapshots.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._snapshots, suffix=".part", delete=False) as draft:
                packed = _pack_or_remove(folder, cast(BinaryIO, draft), Path(draft.name), limits, self._late)
            Path(draft.name).replace(self._snapshots / f"{packed.sha256}.tar.gz")
            sync_folder(self._snapshots)
        except OSError as error:
            raise MachineryFailed(
                f"{self._snapshots}: the snapshot could not be written: {error.strerror or error}",
                fix="Free some space on the host.",
            ) from error
        return packed


def _pack_or_remove(folder: Path, draft: BinaryIO, name: Path, limits: Limits, over: Callable[[], bool]) -> Packed:
    whole = False
    try:
        packed = pack(folder, draft, limits, over)
        draft.flush()
        os.fsync(draft.fileno())
        whole = True
        return packed
    finally:
        if not whole:
            name.unlink(missing_ok=True)


def artefact_limits(track: Track) -> Limits:
    return Limits(track.artifact_bytes, track.unpacked_bytes, track.artifact_files)


def require_snapshot(snapshot: Path, sha256: str) -> None:
    """The bytes that are about to be graded are the bytes that were submitted."""
    actual = digest.of_file(snapshot)
    if actual != sha256:
        raise IntegrityBroken(
            f"{snapshot}: the snapshot has the SHA-256 {actual}, but {sha256} was submitted",
            fix="Restore it from a copy; this run cannot be graded as it is.",
        )


def _refused(message: str, fix: str) -> SubmissionRefused:
    return SubmissionRefused(message, fix=fix)
