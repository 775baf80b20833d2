from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crucible.ari.clock import Clock
from crucible.ari.submit import (
    Book,
    Finalized,
    Promoted,
    Scored,
    State,
    Submitted,
    candidates,
    replay,
    require_snapshot,
)
from crucible.errors import IntegrityBroken, SubmissionRefused

from .conftest import small_track, write_bundle

TRACK = small_track(budget_s=100, max_submissions=6)


class Submissions(RuleBasedStateMachine):
    """Any order of requests against a plain model: a list of ids, what was promoted last, whether the book is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State()
        self.now = 0.0
        self.accepted: dict[str, bool] = {}
        self.last: str | None = None
        self.closed = False

    def attempt(self, event: Submitted | Promoted | Finalized | Scored, legal: bool) -> bool:
        before = self.state
        try:
            self.state = before.after(event, TRACK)
        except SubmissionRefused:
            assert not legal
            assert self.state is before
            return False
        assert legal
        return True

    @rule(seconds=st.floats(0, 30))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(good=st.booleans())
    def submit(self, good: bool) -> None:
        name = self.state.next_id
        event = Submitted(name, self.now, "", "ab" if good else None, 1, None if good else "too large")
        if self.attempt(event, self.now < 100 and not self.closed and len(self.accepted) < 6):
            self.accepted[name] = good

    @rule(name=st.sampled_from(["s1", "s2", "s3", "s7", "", "latest"]), final=st.booleans())
    def choose(self, name: str, final: bool) -> None:
        event = (Finalized if final else Promoted)(name, self.now)
        if self.attempt(event, self.now < 100 and not self.closed and self.accepted.get(name, False)):
            self.last, self.closed = name, self.closed or final

    @precondition(lambda self: self.accepted)
    @rule(passed=st.integers(0, 10))
    def feedback(self, passed: int) -> None:
        """However good it is, it changes nothing about what is official."""
        name = list(self.accepted)[-1]
        self.attempt(Scored(name, self.now, passed, 10), self.now < 100 and self.accepted[name])

    @invariant()
    def the_last_promotion_is_official(self) -> None:
        official = self.state.official
        assert (official.id if official else None) == self.last
        assert sum(candidate.official for candidate in candidates(self.state)) == (self.last is not None)

    @invariant()
    def nothing_is_ever_forgotten(self) -> None:
        assert [one.id for one in self.state.submissions] == list(self.accepted)


Submissions.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_any_order_of_requests_keeps_the_protocol = Submissions.TestCase


def book(tmp_path: Path, score: dict[str, int] | None = None) -> Book:
    clock = Clock(TRACK)
    clock.start()
    feedback = iter((score or {}).values())
    return Book(
        tmp_path / "history.jsonl", tmp_path / "artefacts", TRACK, clock, lambda snapshot: (next(feedback, 0), 10)
    )


def test_public_score_never_selects(tmp_path: Path) -> None:
    kept = book(tmp_path, {"s1": 10, "s2": 0})
    kept.submit(write_bundle(tmp_path / "best", extra=b"1"), "perfect on the public set")
    kept.submit(write_bundle(tmp_path / "worst", extra=b"2"), "hopeless on the public set")
    assert kept.state.official is None
    kept.promote("s1")
    kept.promote("s2")
    assert kept.state.official is not None
    assert kept.state.official.id == "s2"


def test_changes_after_submit_do_not_reach_the_snapshot(tmp_path: Path) -> None:
    kept, folder = book(tmp_path), write_bundle(tmp_path / "b")
    first = kept.submit(folder, "")
    assert first.sha256 is not None
    kept.promote("s1")
    (folder / "model.py").write_text("changed")
    require_snapshot(tmp_path / "artefacts" / f"{first.sha256}.tar.gz", first.sha256)
    assert kept.submit(folder, "").sha256 != first.sha256
    assert kept.state.official is not None
    assert kept.state.official.sha256 == first.sha256


def test_an_edited_snapshot_is_noticed(tmp_path: Path) -> None:
    made = book(tmp_path).submit(write_bundle(tmp_path / "b"), "")
    assert made.sha256 is not None
    path = tmp_path / "artefacts" / f"{made.sha256}.tar.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"\0x")
    with pytest.raises(IntegrityBroken):
        require_snapshot(path, made.sha256)


def test_a_rejected_candidate_is_listed_and_cannot_be_promoted(tmp_path: Path) -> None:
    kept = book(tmp_path)
    (tmp_path / "hollow").mkdir()
    made = kept.submit(tmp_path / "hollow", "")
    assert (made.id, made.status) == ("s1", "rejected")
    assert "manifest.json" in (made.reason or "")
    with pytest.raises(SubmissionRefused):
        kept.promote("s1")
    assert not list((tmp_path / "artefacts").iterdir())


def test_the_history_read_again_is_the_same_state(tmp_path: Path) -> None:
    kept = book(tmp_path, {"s1": 3})
    kept.submit(write_bundle(tmp_path / "b"), "a note with \x1b[31m and \udcff")
    kept.promote("s1")
    assert replay(tmp_path / "history.jsonl") == kept.state
    assert candidates(kept.state)[0].note.isprintable()
    assert replay(tmp_path / "none.jsonl") == State()
