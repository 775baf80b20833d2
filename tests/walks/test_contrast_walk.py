"""Walk A through the real command: bundles -> freeze -> eval -> record -> compare, and every way to get it wrong."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "src/crucible/contrast/sample/bundles.jsonl"
TIER_STATS = [
    "n",
    "correct",
    "accuracy",
    "pass_rate",
    "mean_margin",
    "median_margin",
    "q10_margin",
    "q90_margin",
    "mean_rank",
]


def freeze(run, out, source=SAMPLE, encoder="hashing", seed=42):
    return run(f"evalset freeze {source} --name s --version v1 --encoder {encoder} --seed {seed} --out {out}")


@pytest.fixture
def run(crucible, tmp_path, monkeypatch):
    """The command, run in a folder of its own that is also where this test stands."""
    monkeypatch.chdir(tmp_path)
    return lambda command, **more: crucible(*shlex.split(command), cwd=tmp_path, **more)


@pytest.fixture
def walk(run, tmp_path):
    """A frozen sample and the scoreboards of two models."""
    assert freeze(run, "es").code == 0
    for model, board in (("hashing", "a.json"), ("hashing:32", "b.json")):
        done = run(f"eval --model {model} --eval-set es --output {board} --items {board}l --ledger l.jsonl")
        assert done.code == 0, done.err
    return tmp_path


def test_scoreboard_has_exactly_the_fields_of_the_reference(walk):
    board = json.loads(Path("a.json").read_text())
    assert list(board) == ["eval_header", "overall", "by_tier", "timestamp", "checkpoint_path"]
    assert list(board["by_tier"]) == ["tier1_easy", "tier2_robust", "tier3_adversarial"]
    for stats in (board["overall"], *board["by_tier"].values()):
        assert set(TIER_STATS) <= set(stats)
        assert stats["accuracy"] == stats["pass_rate"] == stats["correct"] / stats["n"]
    for name in ("source_hash", "seed", "item_count", "tier_distribution", "version"):
        assert name in board["eval_header"]


def test_items_agree_with_the_scoreboard(walk):
    items = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    board = json.loads(Path("a.json").read_text())
    assert len(items) == board["overall"]["n"] == 400
    assert all(set(item) == {"id", "danger", "margin", "rank", "tier"} for item in items)
    assert all(item["margin"] == -item["danger"] for item in items)
    assert sum(item["margin"] > 0 for item in items) == board["overall"]["correct"]
    for tier, stats in board["by_tier"].items():
        assert sum(item["tier"] == tier for item in items) == stats["n"]


def test_second_evaluation_gives_the_same_items_byte_for_byte(walk, run):
    run("eval --model hashing --eval-set es --output c.json --items c.jsonl")
    assert Path("a.jsonl").read_bytes() == Path("c.jsonl").read_bytes()


def test_ledger_holds_both_records_under_one_pin(walk, run):
    assert run("ledger verify l.jsonl").code == 0
    records = [e["body"] for e in run("ledger show l.jsonl --json").json if e["kind"] == "record"]
    assert [r["subject"]["model"] for r in records] == ["hashing:256", "hashing:32"]
    assert records[0]["pin"]["facts"] == records[1]["pin"]["facts"]


def test_edited_ledger_exits_6_and_names_the_line(walk, run):
    path = Path("l.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"hashing:32", b"hashing:33")
    path.write_bytes(b"".join(lines))
    done = run(f"ledger verify {path}")
    assert done.code == 6
    assert "line 2" in done.err


def test_compare_is_paired_and_antisymmetric(walk, run):
    there, back = (run(f"compare {pair} --json").json for pair in ("a.json b.json", "b.json a.json"))
    for name, group in there["groups"].items():
        mirrored = back["groups"][name]
        assert (group["wins"], group["losses"]) == (mirrored["losses"], mirrored["wins"])
        assert group["delta_pass_rate"] == pytest.approx(-mirrored["delta_pass_rate"])
        assert group["p"] == mirrored["p"]
    assert there["groups"]["overall"]["wins"] + there["groups"]["overall"]["losses"] > 0


def test_different_eval_sets_exit_5_with_both_fingerprints(walk, run):
    freeze(run, "es7", seed=7)
    run("eval --model hashing --eval-set es7 --output c.json")
    one, other = (json.loads(Path(f).read_text())["eval_header"]["fingerprint"] for f in ("a.json", "c.json"))
    refused = run("compare a.json c.json --json")
    assert refused.code == 5
    assert one in refused.err
    assert other in refused.err
    assert refused.json["error"]["fingerprints"] == [one, other]
    allowed = run("compare a.json c.json --json --allow-fingerprint-mismatch")
    assert allowed.code == 0
    assert "MISMATCH" in allowed.json["watermark"]
    assert allowed.json["comparable"] is False
    assert allowed.json["groups"]["overall"]["p"] is None
    assert "MISMATCH" in run("compare a.json c.json --allow-fingerprint-mismatch").out


def test_same_fingerprint_string_but_other_tiers_is_still_refused(walk, run):
    freeze(run, "es64", encoder="hashing:64")
    run("eval --model hashing --eval-set es64 --output c.json")
    refused = run("compare a.json c.json")
    assert refused.code == 5
    assert "reference_encoder" in refused.err


def test_edited_items_are_an_integrity_error_not_a_comparison(walk, run):
    Path("b.jsonl").write_text(Path("b.jsonl").read_text().replace('"rank":1', '"rank":2', 1))
    assert run("compare a.json b.json").code == 6


def test_without_items_there_is_no_verdict(walk, run):
    Path("b.jsonl").unlink()
    done = run("compare a.json b.json")
    assert done.code == 0
    assert "no verdict" in done.out


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (None, 3, "no such file"),
        (b"", 3, "no bundle"),
        (b"nope\n", 3, ":1"),
        (b'{"anchor": "a", "positive": "p", "negatives": []}\n', 3, "negatives"),
        (b'{"anchor": "a", "positive": " ", "negatives": ["n"]}\n', 3, "positive"),
        (bytes(range(256)) * 20, 3, ":1"),
    ],
    ids=["missing", "empty", "not JSON", "no negatives", "empty text", "binary"],
)
def test_bad_bundle_file_is_one_clear_error(run, tmp_path, content, code, said):
    if content is not None:
        Path("bad.jsonl").write_bytes(content)
    done = freeze(run, "es", "bad.jsonl")
    assert done.code == code
    assert "bad.jsonl" in done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert not Path("es").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"eval_header": 3}'])
def test_bad_scoreboard_is_one_clear_error(walk, run, content):
    Path("bad.json").write_bytes(content)
    done = run("compare a.json bad.json --json")
    assert done.code == 3
    assert "bad.json" in done.json["error"]["message"]


def test_full_disk_keeps_the_old_scoreboard(walk, run):
    before = Path("a.json").read_bytes()
    done = run("eval --model hashing:8 --eval-set es --output a.json --items a.jsonl", file_limit=4096)
    assert done.code == 1
    assert "File too large" in done.err
    assert Path("a.json").read_bytes() == before
    assert not [p for p in walk.iterdir() if p.name.endswith(".part")]


def test_device_as_output_is_written_to_not_replaced(walk, run):
    done = run("eval --model hashing --eval-set es --output /dev/full --items i.jsonl")
    assert done.code == 1
    assert "No space left" in done.err
    assert Path("/dev/full").is_char_device()


def test_interrupt_in_the_middle_leaves_nothing_half_written(walk):
    big = Path("big.jsonl")
    with big.open("wb") as stream:
        for i in range(60_000):
            stream.write(b'{"anchor": "a %d", "positive": "p %d", "negatives": ["n %d", "m %d"]}\n' % (i, i, i, i))
    command = [
        sys.executable,
        "-m",
        "crucible",
        "evalset",
        "freeze",
        str(big),
        "--name",
        "b",
        "--version",
        "v1",
        "--out",
        "big",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    while not list(walk.glob(".big.*.part/v1/source.jsonl")):  # freezing has begun
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not Path("big").exists()
    assert not list(walk.glob(".big.*"))
