"""`crucible sweep`: the whole way from a configuration to a recommendation, and every way to ask for it wrongly."""

from __future__ import annotations

import json

import pytest

import tinyloop


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))
    return tinyloop.corpus(tmp_path / "corpus")


@pytest.mark.slow
def test_a_ratio_sweep_ends_with_a_table_and_a_recommendation_and_is_skipped_afterwards(crucible, project, tmp_path):
    command = ["sweep", "ratio", "--config", project, "--ratios", "85_10_5,50_25_25", "--seeds", "1,2"]
    command += ["--output-dir", tmp_path / "S", "--parallel", "2", "--training.steps", "10"]
    done = crucible(*command)
    assert done.code == 0, done.err
    assert "RECOMMENDATION: " in done.out and "85_10_5" in done.out and "base encoder" in done.out
    assert done.err.count(" done\n") == 4
    before = (tmp_path / "S/results.json").read_bytes()
    again = crucible(*command, "--json")
    assert again.code == 0 and again.err.count("done before") == 4
    assert again.json == json.loads(before) and (tmp_path / "S/results.json").read_bytes() == before
    assert [row["n_seeds"] for row in again.json["rows"]] == [2, 2]
    assert {row["steps"] for row in again.json["rows"]} == {10}
    frontier = crucible("pareto", tmp_path / "S", "--json")
    assert frontier.code == 0 and [one["condition"] for one in frontier.json] == ["85_10_5", "50_25_25"]
    other = crucible(*command[:-1], "11")
    assert other.code == 2 and "training.steps is 11, there 10" in other.err


def test_wrong_questions_are_answered_before_anything_is_trained(crucible, project, tmp_path):
    out = ["--config", project, "--output-dir", tmp_path / "S"]
    for arguments, said in (
        (["ratio", "--ratios", "80_10_5", *out], "sums to 95"),
        (["ratio", *out], "--ratios"),
        (["ablation", "--set", "deep=model.hiden:1", *out], "did you mean model.hidden"),
        (["ratio", "--ratios", "85_10_5", "--config", project], "--output-dir"),
        (["ratio", "--ratios", "85_10_5", "--data.organic_eval", "null", *out], "crucible pool split"),
        (["ratio", "--ratios", "85_10_5", "--parallel", "0", *out], "--parallel"),
        (["ratio", "--ratios", "85_10_5", "--floor", "nope=1", *out], "They have: frozen_tier3"),
    ):
        done = crucible("sweep", *arguments)
        assert (done.code, "Traceback" in done.err) == (2, False), done.err
        assert said in done.err, done.err
    assert not (tmp_path / "S").exists()


@pytest.mark.slow
def test_a_sweep_in_which_every_run_was_stopped_fails_and_has_no_frontier(crucible, project, tmp_path):
    command = ["sweep", "ratio", "--config", project, "--ratios", "85_10_5", "--seeds", "1", "--training.steps", "2"]
    command += ["--training.batch_size", "1", "--check-guardrails", "--output-dir", tmp_path / "S"]
    done = crucible(*command, "--json")
    assert done.code == 1 and "no condition gave a result" in done.json["error"]["message"], done.err
    assert crucible("pareto", tmp_path / "S", "--json").code == 3


@pytest.mark.slow
def test_steps_and_ablation_sweeps_run_with_what_they_say(crucible, project, tmp_path):
    common = ["--config", project, "--seeds", "1", "--parallel", "2"]
    steps = crucible("sweep", "steps", "--steps", "5,10", *common, "--output-dir", tmp_path / "steps", "--json")
    assert steps.code == 0, steps.err
    assert [row["steps"] for row in steps.json["rows"]] == [5, 10]
    assert "One seed only" in steps.json["recommendation"]["sentence"]
    options = ["--training.steps", "5", "--output-dir", tmp_path / "ablation", "--json"]
    parts = crucible("sweep", "ablation", *common, *options)
    assert parts.code == 0, parts.err
    names = [row["condition"] for row in parts.json["rows"]]
    assert names[0] == "baseline" and "no_organic" in names and parts.json["failed"] == []
