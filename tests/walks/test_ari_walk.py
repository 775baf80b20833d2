"""Walk B from outside, by its commands alone: exam, runs, judgement, board."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

TRACK = 'name = "quick"\nversion = "1"\nbudget_s = 180\ncall_cap_s = 60\nreserve_s = 5\nquestions = 24\n'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "SECRET"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


def test_overfitter_is_perfect_in_public_and_nothing_in_hidden(crucible: Any, tmp_path: Path, secret: Path) -> None:
    exam, track, root = tmp_path / "EXAM", tmp_path / "quick.toml", tmp_path / "runs"
    track.write_text(TRACK)
    built = crucible("ari", "exam", "build", "--seed-file", secret, "--questions", 24, "--out", exam, "--json").json
    assert (built["questions"], len(built["sha256"]), len(built["categories"])) == (24, 64, 8)
    assert stat.S_IMODE(exam.stat().st_mode) == 0o600

    graded = {}
    for agent, seed in (("starter", 1), ("starter", 2), ("starter", 3), ("overfitter", 1), ("idle", 1)):
        ran = crucible("ari", "run", "--track", track, "--agent", agent, "--seed", seed, "--root", root, "--json")
        assert ran.code == 0 and "isolates NOTHING" in ran.err
        assert ran.json["outcome"] == ("empty" if agent == "idle" else "pending")
        assert (ran.json["track"], ran.json["agent"], ran.json["seed"]) == ("quick", agent, seed)
        done = crucible("ari", "grade", ran.json["path"], "--exam", exam, "--sha256", built["sha256"], "--json")
        assert done.code == 0, done.err
        graded[agent, seed] = done.json

    over = graded["overfitter", 1]
    assert (over["outcome"], over["public_score"], over["score"], over["gap"]) == ("measured", 100.0, 0.0, 100.0)
    assert (graded["idle", 1]["outcome"], graded["idle", 1]["score"]) == ("empty", 0.0)
    for one in graded.values():
        assert one["questions"] == 24 and one["score"] == pytest.approx(100 * one["passed"] / 24)
        assert sum(group["passed"] for group in one["by_category"].values()) == one["passed"]

    board = {
        row["subject"]: row for row in crucible("board", "show", "--root", root, "--track", "quick", "--json").json
    }
    assert set(board) == {"starter", "overfitter", "idle"}
    assert (board["starter"]["status"], board["starter"]["n_seeds"]) == ("official", 3)
    assert board["starter"]["se"] is not None
    assert (board["overfitter"]["status"], board["overfitter"]["se"]) == ("provisional", None)
    assert (board["overfitter"]["public_score"], board["overfitter"]["gap"]) == (100.0, 100.0)
    assert crucible("board", "show", "--root", root, "--track", "other", "--json").json == []
    assert "overfitter" in crucible("board", "show", "--root", root).out
    assert crucible("ledger", "verify", root / "ledger.jsonl").code == 0

    run = next(root.glob("quick-starter-1-*"))
    (listed,) = crucible("ari", "submissions", run, "--json").json
    assert (listed["id"], listed["status"], listed["official"], listed["public_questions"]) == (
        "s1",
        "accepted",
        True,
        40,
    )
    by_id = crucible("ari", "submissions", run.name, "--root", root, "--json")
    assert by_id.json == [listed]


def test_mistakes_are_sentences_with_the_right_exit_code(crucible: Any, tmp_path: Path, secret: Path) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    short, open_to_all, junk = tmp_path / "short", tmp_path / "open", tmp_path / "junk"
    short.write_bytes(b"x" * 15)
    short.chmod(0o600)
    open_to_all.write_bytes(b"x" * 32)
    open_to_all.chmod(0o640)
    junk.write_text("budget_s = -5")
    build = ("ari", "exam", "build", "--out", tmp_path / "EXAM", "--seed-file")
    for command, code, said in (
        ((*build, short), 2, "15 bytes"),
        ((*build, open_to_all), 2, "chmod 600"),
        ((*build, tmp_path / "gone"), 3, "no such file"),
        (("ari", "exam", "build", "--out", repository / "deep" / "EXAM", "--seed-file", secret), 2, "git work tree"),
        (("ari", "run", "--track", junk, "--root", tmp_path / "runs"), 2, "budget_s"),
        (("ari", "run", "--track", "marathon", "--root", tmp_path / "runs"), 2, "official-1h"),
        (("ari", "run", "--agent", "nobody", "--root", tmp_path / "runs"), 2, "overfitter"),
        (("ari", "run", "--seed", "-1", "--root", tmp_path / "runs"), 2, "seed"),
        (("ari", "grade", tmp_path / "gone", "--exam", secret), 1, "no run at"),
        (("ari", "submissions", tmp_path), 1, "no run at"),
        (("ari", "track", "show", "marathon"), 2, "mini"),
        (("board", "show", "--root", tmp_path / "gone"), 2, "holds no runs"),
    ):
        ran = crucible(*command, "--json")
        assert ran.code == code, (command, ran)
        assert said in ran.err.replace("\n", " ") and "Traceback" not in ran.err, (command, ran.err)
        assert ran.json["error"]["exit_code"] == code and ran.json["error"]["fix"]
    assert not (tmp_path / "runs").exists() and not (tmp_path / "EXAM").exists()
    assert not (repository / "deep").exists()


def test_an_unwritable_exam_or_root_is_a_sentence_too(crucible: Any, tmp_path: Path, secret: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for command in (
        ("ari", "run", "--agent", "idle", "--root", tmp_path / "file"),
        ("ari", "exam", "build", "--seed-file", secret, "--out", tmp_path / "file" / "EXAM"),
    ):
        ran = crucible(*command, "--json")
        assert ran.code == 1 and "Traceback" not in ran.err and "error" in ran.json


def test_every_command_has_help_with_an_example(crucible: Any) -> None:
    for command in ("ari run", "ari grade", "ari submissions", "ari track show", "ari exam build", "board show"):
        ran = crucible(*command.split(), "--help")
        assert ran.code == 0 and "Example: " in ran.out, command


def test_track_show_prints_every_number_and_pin(crucible: Any) -> None:
    shown = crucible("ari", "track", "show", "official-1h", "--json").json
    assert (shown["budget_s"], shown["artifact_bytes"], shown["seeds"]) == (3600, 16_000_000, 3)
    assert all(len(shown["pins"][name]) == 64 for name in ("brief", "starter", "text", "public"))
