from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from crucible.board import leaderboard, rows
from crucible.errors import IntegrityBroken
from crucible.kernel import ledger
from crucible.kernel.pin import Pin
from crucible.kernel.record import Empty, Invalid, Measured, Record, make, to_builtins

NAMES = ("score", "questions", "public_score", "gap")
_count = iter(range(10**9))


def record(
    agent: str, seed: int, score: float | None, *, exam: str | None = "e1", public: float | None = None, **more: Any
) -> Record:
    number = next(_count)
    facts: dict[str, Any] = {"track": {"name": more.get("track", "mini"), "seeds": 3}, "box": "local"}
    if exam:
        facts["exam"] = exam
    metrics = {} if score is None else {"score": score, "questions": 100.0}
    if public is not None and score is not None:
        metrics |= {"public_score": public, "gap": public - score}
    return make(
        pin=Pin("ari.track", facts),
        subject={"agent": agent},
        artefact=more.get("artefact", f"artefact-{number}"),
        seed=seed,
        outcome=more.get("outcome", Measured()),
        metrics=metrics,
        names=NAMES,
        detail={"run": more.get("run", f"run-{number}")},
    )


def three(agent: str, scores: tuple[float, float, float], **more: Any) -> list[Record]:
    return [record(agent, seed, score, **more) for seed, score in enumerate(scores, 1)]


def test_three_seeds_of_distinct_artefacts_are_official_and_fewer_are_provisional() -> None:
    (row,) = rows.rows(three("a", (10.0, 20.0, 30.0)))
    assert (row.status, row.seeds) == ("official", (1, 2, 3))
    assert row.summary is not None
    assert (row.summary.mean, row.summary.n) == (20.0, 3)
    assert row.summary.se == pytest.approx(10 / math.sqrt(3))
    assert row.item_se == pytest.approx(4.0)
    (fewer,) = rows.rows(three("a", (10.0, 20.0, 30.0))[:2])
    assert fewer.status == "provisional"


def test_one_seed_has_no_standard_error() -> None:
    (standing,) = leaderboard.standings(rows.rows([record("a", 1, 50.0)]))
    assert (standing.se, standing.n_seeds, standing.status) == (None, 1, "provisional")


def test_one_artefact_scored_three_times_is_one_seed() -> None:
    (row,) = rows.rows(three("a", (50.0, 50.0, 50.0), artefact="same"))
    assert row.summary is not None
    assert (row.status, row.summary.n, row.summary.se) == ("provisional", 1, None)
    assert [aside.reason.split(" is ")[0] for aside in row.not_counted] == ["its artefact"] * 2


def test_a_lucky_second_run_of_a_seed_cannot_replace_the_first() -> None:
    (row,) = rows.rows([record("a", 1, 10.0, run="first"), record("a", 1, 99.0, run="second")])
    assert row.summary is not None
    assert (row.summary.mean, row.runs) == (10.0, ("first",))
    assert "seed 1 was already counted in first" in row.not_counted[0].reason


def test_empty_runs_count_with_what_they_earned() -> None:
    nothing = {"outcome": Empty("nothing was promoted"), "artefact": None}
    (row,) = rows.rows([record("a", 1, 30.0), record("a", 2, 0.0, **nothing), record("a", 3, 0.0, **nothing)])
    assert row.summary is not None
    assert (row.status, row.summary.mean, row.empty) == ("official", 10.0, 2)


def test_invalid_runs_are_listed_with_their_cause_and_never_averaged() -> None:
    bad = record("a", 3, None, exam=None, outcome=Invalid("machinery failed"), artefact=None, run="bad")
    (row,) = rows.rows([record("a", 1, 10.0), bad, record("a", 2, 20.0)])
    assert row.summary is not None
    assert (row.status, row.summary.n, row.summary.mean) == ("provisional", 2, 15.0)
    assert [(aside.run, aside.reason) for aside in row.invalid] == [("bad", "machinery failed")]
    (alone,) = leaderboard.standings(rows.rows([bad]))
    assert (alone.score, alone.rank, alone.rank_range, alone.status) == (None, None, None, "provisional")
    assert [aside.run for aside in alone.invalid] == ["bad"]


def test_rows_of_two_exams_or_two_tracks_are_never_mixed() -> None:
    found = rows.rows([record("a", 1, 10.0), record("a", 2, 90.0, exam="e2"), record("a", 3, 50.0, track="long")])
    assert len(found) == 3
    assert {standing.rank_range for standing in leaderboard.standings(found)} == {(1, 1)}
    assert [row.track for row in rows.rows([record("a", 1, 1.0), record("b", 1, 1.0, track="long")], "long")] == [
        "long"
    ]


def test_overlapping_intervals_are_a_tie_and_ties_are_not_transitive() -> None:
    low, middle, high = ("low", (10.0, 20.0, 30.0)), ("middle", (20.0, 30.0, 40.0)), ("high", (30.0, 40.0, 50.0))
    made = leaderboard.standings(rows.rows([r for name, scores in (low, middle, high) for r in three(name, scores)]))
    found = {s.subject: (s.rank, s.rank_range, s.tied_with) for s in made}
    assert found == {
        "high": (1, (1, 2), ("middle",)),
        "middle": (1, (1, 3), ("low", "high")),
        "low": (2, (2, 3), ("middle",)),
    }
    assert [standing.subject for standing in made] == ["high", "middle", "low"]


def test_clearly_separate_rows_are_ranked_and_welch_stands_beside() -> None:
    made = leaderboard.standings(rows.rows(three("a", (10.0, 11.0, 12.0)) + three("b", (50.0, 51.0, 52.0))))
    assert [(s.subject, s.rank, s.rank_range, s.tied_with) for s in made] == [
        ("b", 1, (1, 1), ()),
        ("a", 2, (2, 2), ()),
    ]
    (against,) = made[0].against
    assert (against.decision, made[0].rule) == ("ahead", "se_overlap")
    assert against.welch_p is not None and against.welch_p < 0.001


def test_public_against_hidden_is_shown() -> None:
    (row,) = rows.rows([record("a", 1, 10.0, public=100.0), record("a", 2, 20.0, public=90.0), record("a", 3, 30.0)])
    assert (row.public_score, row.gap) == (95.0, 80.0)


def write(root: Path, records: list[Record]) -> None:
    for one in records:
        ledger.append(root / "ledger.jsonl", "record", to_builtins(one))


def test_the_ledger_is_read_with_runs_that_have_no_record(tmp_path: Path) -> None:
    ledger.append(tmp_path / "ledger.jsonl", "run.allocated", {"run": "lost"})
    ledger.append(tmp_path / "ledger.jsonl", "run.allocated", {"run": "kept"})
    other = make(
        pin=Pin("contrast.evalset", {}),
        subject={"m": "x"},
        artefact=None,
        seed=1,
        outcome=Measured(),
        metrics={},
        names=(),
    )
    write(tmp_path, [record("a", 1, 10.0, run="kept"), other])
    held = rows.read(tmp_path)
    assert [one.label for one in held.records] == ["a"]
    assert held.unjudged == ("lost",)


def test_an_edited_score_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, [record("a", 1, 10.0), record("a", 2, 20.0)])
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"score":10.0', b'"score":99.0'))
    with pytest.raises(IntegrityBroken):
        rows.read(tmp_path)
