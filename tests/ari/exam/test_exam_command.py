"""`crucible ari exam …` from outside: contracts, exit codes, and a canary that no output ever holds."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crucible.ari import track as tracks
from crucible.ari.exam.questions import load

CANARY, SECOND = "canary prompt about a heron", "canary-answer"


def foreign(folder: Path, count: int = 6) -> Path:
    path = folder / "Q.jsonl"
    rows = [
        {
            "id": f"q{n}",
            "category": "c",
            "family": f"f{n % 2}",
            "prompt": f"{CANARY} number {n}: ",
            "answer": f"{SECOND}{n}",
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_build_freeze_show_check_and_calibrate_keep_their_contracts(
    exam_command: Callable[..., Any], tmp_path: Path, secret: Path
) -> None:
    exam = tmp_path / "safe" / "EXAM"
    built = exam_command("build", "--seed-file", secret, "--questions", 96, "--out", exam, "--json")
    assert built.code == 0, built.err
    assert (built.json["questions"], len(built.json["categories"]), len(built.json["sha256"])) == (96, 8, 64)
    assert stat.S_IMODE(exam.stat().st_mode) == 0o600
    again = exam_command("build", "--seed-file", secret, "--questions", 96, "--out", tmp_path / "other", "--json")
    assert again.json["sha256"] == built.json["sha256"]

    frozen = exam_command("freeze", exam, "--json")
    assert set(frozen.json) == {"sha256", "questions", "categories", "protocol_version"}
    assert frozen.json["sha256"] == built.json["sha256"] and frozen.err == ""
    assert exam_command("freeze", exam, "--json").json == frozen.json
    assert stat.S_IMODE(exam.stat().st_mode) == 0o400

    shown = exam_command("show", exam, "--json").json
    assert sum(shown["families"].values()) == 96 and shown["frozen"] and shown["departures"] == []
    text = tmp_path / "text"
    text.write_bytes(b"Call me Ishmael. " * 1000)
    checked = exam_command("check", exam, "--public", tracks.PUBLIC, "--text", text, "--json")
    assert checked.code == 0 and checked.json["ok"] and len(checked.json["against"]) == 2
    measured = exam_command("calibrate", exam, "--json").json
    assert measured["questions"] == 96 and measured["above_limit"] == []
    assert all(one["overall"]["rate"] < 0.15 for one in measured["baselines"].values())

    said = [exam_command(*command).out for command in (("show", exam), ("calibrate", exam), ("check", exam))]
    for question in load(exam).questions:
        pieces = (question.prompt.decode()[-40:], question.prompt.decode()[:40])
        assert not any(piece in text for piece in pieces for text in said)


def test_what_is_shared_fails_with_numbers_and_a_document(exam_command: Callable[..., Any], tmp_path: Path) -> None:
    exam, text = tmp_path / "EXAM", tmp_path / "text"
    taken = exam_command("import", foreign(tmp_path), "--out", exam, "--json")
    assert taken.code == 0 and taken.json["questions"] == 6 and stat.S_IMODE(exam.stat().st_mode) == 0o600
    text.write_text(f"noise {CANARY} number 3: {SECOND}3 noise")
    for arguments in (("--text", text), ("--public", tmp_path / "Q.jsonl")):
        ran = exam_command("check", exam, *arguments, "--json")
        assert ran.code == 1 and not ran.json["ok"] and ran.json["too_much"]
        assert "TOO MUCH" in ran.err and "canary" not in ran.err + ran.out
    assert ran.json["against"][0]["shared_prompts"] == 6
    assert exam_command("check", exam, "--json").code == 0


def test_no_output_ever_holds_the_canary(exam_command: Callable[..., Any], tmp_path: Path) -> None:
    exam = tmp_path / "EXAM"
    source = foreign(tmp_path, 30)
    bad = tmp_path / "bad.jsonl"
    bad.write_text(source.read_text() + json.dumps({"id": "x", "category": "c", "family": "f", "prompt": CANARY}))
    for arguments, code in (
        (("import", source, "--out", exam), 0),
        (("import", bad, "--out", tmp_path / "B"), 3),
        (("show", exam), 0),
        (("calibrate", exam), 0),
        (("check", exam, "--public", source), 1),
        (("freeze", exam), 0),
        (("freeze", source), 3),
    ):
        for more in ((), ("--json",)):
            ran = exam_command(*arguments, *more)
            assert ran.code == code, (arguments, ran)
            assert "canary" not in ran.out + ran.err and "Traceback" not in ran.err


def test_mistakes_are_sentences_with_the_right_exit_code(
    exam_command: Callable[..., Any], tmp_path: Path, secret: Path
) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "pack").mkdir()
    weak = tmp_path / "weak"
    weak.write_bytes(b"x" * 32)
    weak.chmod(0o600)
    open_to_all = tmp_path / "open"
    open_to_all.write_bytes(os.urandom(32))
    open_to_all.chmod(0o644)
    out = ("--out", tmp_path / "EXAM")
    for arguments, code, said in (
        (("build", "--seed-file", weak, *out), 2, "not random"),
        (("build", "--seed-file", open_to_all, *out), 2, "chmod 600"),
        (("build", "--seed-file", tmp_path / "gone", *out), 3, "no such file"),
        (("build", "--seed-file", secret, "--out", repository / "deep" / "EXAM"), 2, "git work tree"),
        (("build", "--seed-file", secret, "--pack", repository / "pack", *out), 2, "git work tree"),
        (("build", "--seed-file", secret, "--pack", tmp_path / "gone", *out), 2, "not a folder"),
        (("build", "--seed-file", secret, "--weight", "nobody=2", *out), 2, "nobody"),
        (("build", "--seed-file", secret, "--weight", "list-back=nan", *out), 2, "nan"),
        (("build", "--seed-file", secret, "--weight", "list-back", *out), 2, "list-back"),
        (("build", "--seed-file", secret, "--questions", 0, *out), 2, "questions"),
        (("import", tmp_path / "gone", *out), 3, "no such file"),
        (("freeze", tmp_path / "gone"), 3, "no such file"),
        (("check", tmp_path / "gone"), 3, "no such file"),
    ):
        ran = exam_command(*arguments, "--json")
        assert ran.code == code, (arguments, ran)
        assert said in ran.err.replace("\n", " ") and "Traceback" not in ran.err, (arguments, ran.err)
        assert ran.json["error"]["exit_code"] == code and ran.json["error"]["fix"]
    assert not (tmp_path / "EXAM").exists() and not (repository / "deep").exists()


def test_weights_and_a_private_pack_reach_the_exam(
    exam_command: Callable[..., Any], tmp_path: Path, secret: Path
) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "from crucible.ari.exam.family import Family\n"
        "def make(dice, template):\n"
        "    a, b = dice.words(2)\n"
        "    return [(f'{a} {b} / ' if template else f'{a} then {b}: ', b + a)]\n"
        "def solve(prompt):\n"
        "    words = [w for w in prompt.replace(':', '').replace('/', '').split() if w != 'then']\n"
        "    return {words[1] + words[0]}\n"
        "FAMILIES = [Family('mine', 'lists', 2, make, solve)]\n"
    )
    exam = tmp_path / "EXAM"
    weights = [
        part for name in ("list-back", "list-new", "list-pair", "list-turn") for part in ("--weight", f"{name}=0")
    ]
    ran = exam_command(
        "build", "--seed-file", secret, "--pack", folder, "--questions", 16, *weights, "--out", exam, "--json"
    )
    assert ran.code == 0, ran.err
    shown = exam_command("show", exam, "--json").json
    assert shown["families"]["mine"] == shown["categories"]["lists"] == 2


def test_the_public_set_can_be_made_again_by_anyone(exam_command: Callable[..., Any], tmp_path: Path) -> None:
    ran = exam_command("public", "--out", tmp_path / "public.jsonl", "--json")
    assert ran.code == 0 and (tmp_path / "public.jsonl").read_bytes() == tracks.PUBLIC.read_bytes()


def test_every_command_has_help_with_an_example(exam_command: Callable[..., Any]) -> None:
    for command in ("build", "freeze", "import", "show", "check", "calibrate", "public"):
        ran = exam_command(command, "--help")
        assert ran.code == 0 and "Example: " in ran.out, command
