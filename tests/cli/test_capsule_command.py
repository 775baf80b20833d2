"""`crucible capsule`: the exit codes and sentences of packing, checking and opening, on a run that was really trained."""

from __future__ import annotations

import os

import pytest

import tinyloop
from crucible.contrast.settings import load
from crucible.contrast.train.run import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    before = os.environ.get("CRUCIBLE_CACHE_DIR")
    os.environ["CRUCIBLE_CACHE_DIR"] = str(folder / "cache")
    config = tinyloop.corpus(folder / "corpus")
    train(load(config), folder / "R", seed=1)
    yield folder
    os.environ.pop("CRUCIBLE_CACHE_DIR") if before is None else os.environ.update(CRUCIBLE_CACHE_DIR=before)


def test_a_run_goes_in_is_proved_and_comes_out(crucible, trained, tmp_path):
    target = tmp_path / "c.tar.gz"
    packed = crucible("capsule", "pack", trained / "R", "-o", target)
    assert packed.code == 0 and "ledger head" in packed.out
    verified = crucible("capsule", "verify", target)
    assert verified.code == 0 and "recomputed from the weights" in verified.out and "base-organic" in verified.out
    as_json = crucible("capsule", "verify", target, "--json", "--sha256", verified.out.split("sha256 ")[1][:64])
    assert as_json.code == 0 and as_json.json["recomputed"]["organic"]["items"] == 80
    opened = crucible("capsule", "unpack", target, tmp_path / "open", "--json")
    assert opened.code == 0 and opened.json["model"] == f"head:{tmp_path / 'open'}"
    evaluated = crucible(
        "eval",
        "--model",
        opened.json["model"],
        "--eval-set",
        tmp_path / "open/eval/frozen",
        "--output",
        tmp_path / "b.json",
        "--json",
    )
    assert evaluated.code == 0
    again = crucible("capsule", "unpack", target, tmp_path / "open")
    assert again.code == 1 and "already there" in again.err

    whole = target.read_bytes()
    target.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    for command in (("verify", target), ("verify", target, "--no-recompute"), ("unpack", target, tmp_path / "other")):
        done = crucible("capsule", *command, "--json")
        assert done.code == 6 and str(target) in done.err and "Traceback" not in done.err
        assert done.json["error"]["kind"] == "IntegrityBroken" and done.json["error"]["member"]
    assert not (tmp_path / "other").exists()


def test_without_data_verifying_is_no_success_unless_that_is_accepted(crucible, trained, tmp_path):
    target = tmp_path / "c.tar.gz"
    assert crucible("capsule", "pack", trained / "R", "-o", target, "--without-data").code == 0
    done = crucible("capsule", "verify", target)
    assert done.code == 1 and "not recomputed" in done.err and "--no-recompute" in done.err
    accepted = crucible("capsule", "verify", target, "--no-recompute")
    assert accepted.code == 0 and "Not recomputed, as asked" in accepted.out
    corpus = trained / "corpus"
    given = crucible(
        "capsule", "verify", target, "--frozen-eval", corpus / "evalset", "--organic-eval", corpus / "organic.jsonl"
    )
    assert given.code == 0 and "recomputed from the weights" in given.out


def test_mistakes_have_a_sentence_and_a_code(crucible, trained, tmp_path):
    (tmp_path / "x").write_text("no capsule")
    for arguments, code, said in (
        (("pack", tmp_path, "-o", tmp_path / "c"), 3, "not the folder of a training run"),
        (("pack", trained / "R", "-o", tmp_path / "no/c"), 1, "mkdir"),
        (("verify", tmp_path / "x"), 6, "not those of a capsule"),
        (("verify", tmp_path / "missing"), 3, "no such file"),
        (("verify", tmp_path), 3, "is a folder"),
        (("build", "-o", tmp_path / "c", "--config", trained / "corpus/crucible.yaml"), 2, "--output-dir"),
        (("build", "-o", tmp_path / "c", "--config", tmp_path / "no.yaml"), 2, "no.yaml"),
    ):
        done = crucible("capsule", *arguments)
        assert (done.code, "Traceback" in done.err) == (code, False), done.err
        assert said in done.err


@pytest.mark.slow
def test_a_build_trains_three_seeds_and_packs_the_median(crucible, trained, tmp_path):
    command = [
        "capsule",
        "build",
        "--config",
        trained / "corpus/crucible.yaml",
        "--seeds",
        "1,2,3",
        "--output-dir",
        tmp_path / "P",
    ]
    made = crucible(*command, "-o", tmp_path / "c.tar.gz", "--parallel", "2", "--training.steps", "10", "--json")
    assert made.code == 0, made.err
    values = sorted((one["metrics"]["organic_holdout"], one["seed"]) for one in made.json["selection"]["seeds"])
    assert made.json["selection"]["chosen"] == values[1][1]
    shown = crucible("capsule", "verify", tmp_path / "c.tar.gz")
    assert shown.code == 0 and "the median seed by organic_holdout" in shown.out
    stopped = crucible(*command[:-1], tmp_path / "Q", "-o", tmp_path / "d.tar.gz", "--check-guardrails")
    assert stopped.code == 1 and "guardrail G1" in stopped.err and not (tmp_path / "d.tar.gz").exists()
