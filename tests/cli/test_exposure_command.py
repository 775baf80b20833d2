"""`crucible exposure` answers two questions, and says which options belong to which."""

from __future__ import annotations

import json

import pytest

FORMULA = ("--steps", "10000", "--batch-size", "32", "--tier3-probability", "0.10", "--legacy-ratio", "0.75")


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    items = [{"index": i, "id": f"i{i}", "tier": "tier3_adversarial", "pool": "legacy"} for i in range(4)]
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    steps = [{"step": step, "drawn": [0, 1, 2], "loss": 0.5} for step in range(1, 61)]
    (folder / "log.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    (folder / "run.json").write_text(json.dumps({"steps": 60, "exposure": {"legacy": {"expected": 45.0}}}))
    return folder


def test_the_formula_is_as_before(crucible):
    ran = crucible("exposure", *FORMULA, "--legacy-pool", "454")
    assert (ran.code, ran.out) == (0, "52.9 expected exposures per legacy item: healthy. No action needed.\n")
    ran = crucible("exposure", *FORMULA, "--legacy-pool", "900", "--json")
    assert ran.json["status"] == "critical" and ran.json["healthy_with"]["steps"] == 18750


@pytest.mark.parametrize("left_out", range(5))
def test_every_option_of_the_formula_is_required_without_a_log(crucible, left_out):
    options = [*FORMULA, "--legacy-pool", "454"]
    missing = options[2 * left_out]
    ran = crucible("exposure", *options[: 2 * left_out], *options[2 * left_out + 2 :])
    assert ran.code == 2 and f"Missing option '{missing}'" in ran.err and "--log" in ran.err


def test_a_log_gives_realised_exposures_and_a_warning(crucible, run):
    ran = crucible("exposure", "--log", run / "log.jsonl")
    assert ran.code == 0, ran.err
    assert "60 steps of 3 items" in ran.out and "never seen in legacy: i3" in ran.out
    assert "warning: legacy: 45.0 exposures were expected (warning), but the rarest item was seen 0 times" in ran.err
    document = crucible("exposure", "--log", run / "log.jsonl", "--json").json
    (group,) = document["groups"]
    assert (group["mean"], group["minimum"], group["maximum"], group["never_seen"]) == (45.0, 0, 60, 1)
    assert len(document["warnings"]) == 2


def test_items_may_stand_elsewhere(crucible, run, tmp_path):
    moved = tmp_path / "other.jsonl"
    (run / "items.jsonl").rename(moved)
    ran = crucible("exposure", "--log", run / "log.jsonl")
    assert ran.code == 3 and "items.jsonl: no such file" in ran.err
    assert crucible("exposure", "--log", run / "log.jsonl", "--items", moved).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--log", "gone.jsonl"], 3, "no such file"),
        (["--log", "log.jsonl", "--steps", "5"], 2, "--steps and --log are two different questions"),
        (["--items", "items.jsonl"], 2, "--items belongs to --log"),
        (["--log", "items.jsonl"], 3, "items.jsonl:1: step: missing"),
    ],
)
def test_a_mistake_is_named(crucible, run, arguments, code, said):
    ran = crucible("exposure", *arguments, cwd=run)
    assert ran.code == code and said in ran.err and "Traceback" not in ran.err


def test_a_log_that_is_not_there_is_the_file_that_is_named(crucible, tmp_path):
    refused = crucible("exposure", "--log", tmp_path / "gone.jsonl")
    assert refused.code == 3 and "gone.jsonl: no such file" in refused.err
