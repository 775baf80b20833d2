"""One training run from settings to evidence: it learns, it repeats, it says what it saw, and it stops where it must."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from train_fixtures import bundles, config, log, run, weights, write

from crucible.contrast import encode, evalset, settings
from crucible.contrast.evaluate import evaluate
from crucible.contrast.scoreboard import load as load_board
from crucible.contrast.train.run import Hooks, train
from crucible.contrast.train.rundir import RunInfo
from crucible.errors import BadConfig, BadData, GuardrailTripped, IntegrityBroken, Mistake, SubjectFailed
from crucible.kernel import digest, ledger, record

SHORT: dict[str, Any] = {"training": {"steps": 12, "batch_size": 4, "warmup_steps": 2, "learning_rate": 0.01}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("hidden", [0, 32])
def test_training_lowers_the_loss_and_raises_both_truths_over_the_base(tmp_path: Path, hidden: int) -> None:
    model = {"hidden": hidden}
    out, info = run(
        tmp_path, model=model, training={"steps": 150, "batch_size": 8, "warmup_steps": 5, "learning_rate": 0.01}
    )
    losses = [line.loss for line in log(out)]
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    for name in ("frozen_overall", "frozen_tier3", "organic_holdout"):
        assert info.metrics[name] > info.metrics[f"base_{name}"] + 0.2, name
    # The numbers are those of the ordinary command on the ordinary encoder name.
    held = evalset.load(tmp_path / "held.jsonl")
    board = evaluate(held, encode.by_name(f"head:{out}")).board
    assert board.overall.pass_rate == info.metrics["organic_holdout"]
    assert encode.by_name(f"head:{out}").digest == info.checkpoint


def test_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    one, two, three = (run(tmp_path, name, seed=seed, **SHORT)[0] for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert weights(one) == weights(two) and (one / "log.jsonl").read_bytes() == (two / "log.jsonl").read_bytes()
    assert weights(one) != weights(three)


def test_weights_do_not_depend_on_how_often_checkpoints_and_evaluations_are_made(tmp_path: Path) -> None:
    plain, _ = run(tmp_path, "a", **SHORT)
    busy, _ = run(tmp_path, "b", **SHORT, experiment={"checkpoint_every": 1, "eval_every": 2, "seeds": (42,)})
    assert weights(plain) == weights(busy)
    names = {path.name for path in (busy / "scoreboards").glob("step-*-organic.json")}
    assert names == {f"step-{step:08d}-organic.json" for step in (2, 4, 6, 8, 10)}
    kept = sorted(path.name for path in (busy / "checkpoints").iterdir())
    assert kept == ["step-00000011", "step-00000012"]


def test_step_zero_is_the_base_encoder(tmp_path: Path) -> None:
    training = {"steps": 1, "batch_size": 4, "learning_rate": 0.0, "warmup_steps": 0}
    out, info = run(tmp_path, training=training)
    assert {info.metrics[name] for name in ("frozen_overall",)} == {info.metrics["base_frozen_overall"]}
    texts = ["the old lake", "one far coin"]
    found, base = (encode.unit_vectors(encode.by_name(n), texts) for n in (f"head:{out}", "hashing:64"))
    assert found.tobytes() == base.tobytes()


def test_log_holds_what_the_sampler_drew_and_info_sums_it_up(tmp_path: Path) -> None:
    out, info = run(tmp_path)
    found = log(out)
    assert [line.step for line in found] == list(range(1, 61))
    items = lines(out / "items.jsonl")
    assert [item["index"] for item in items] == list(range(120))
    tier = {"tier1_easy": 0, "tier2_robust": 1, "tier3_adversarial": 2}
    seen = np.zeros(len(items), int)
    for line in found:
        counts = [0, 0, 0]
        pools = dict.fromkeys(("legacy", "organic", "expanded"), 0)
        for index in line.drawn:
            seen[index] += 1
            counts[tier[items[index]["tier"]]] += 1
            if items[index]["tier"] == "tier3_adversarial":
                pools[items[index]["pool"]] += 1
        assert (list(line.tiers), line.pools) == (counts, pools)
    legacy = [i for i, item in enumerate(items) if item["tier"] == "tier3_adversarial" and item["pool"] == "legacy"]
    assert info.groups == {"tier1_easy": 40, "tier2_robust": 40, "legacy": 20, "organic": 20, "expanded": 0}
    exposure = info.exposure["legacy"]
    assert (exposure.realised_mean, exposure.realised_min) == (seen[legacy].mean(), seen[legacy].min())
    assert exposure.expected == pytest.approx(60 * 8 * 0.3 * (0.75 / 0.90) / 20) and exposure.status == "severe"
    assert info.exposure["organic"].never_seen == int((seen[5:120:6] == 0).sum())
    assert info.exposure["expanded"].expected is None
    assert any("pool expanded is empty" in note for note in info.notes)


def test_ledger_closes_over_every_file_and_holds_a_record_for_each_scoreboard(tmp_path: Path) -> None:
    out, info = run(tmp_path, **SHORT, experiment={"eval_every": 6, "seeds": (42,), "name": "mine"})
    kinds = [line.entry.kind for line in ledger.read(out / "ledger.jsonl")]
    assert kinds == ["run.started", *["record"] * 6, "run.finished"]
    started, finished = (
        next(ledger.read(out / "ledger.jsonl", kind)).entry.body for kind in ("run.started", "run.finished")
    )
    assert started["config_sha256"] == digest.of_file(out / "config.yaml") == info.config_sha256
    assert started["data"] == {str(p): digest.of_file(p) for p in (tmp_path / "train.jsonl", tmp_path / "held.jsonl")}
    on_disk = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file() and "checkpoints" not in p.parts}
    assert set(finished["files"]) == on_disk - {"ledger.jsonl"}
    assert all(digest.of_file(out / name) == sha256 for name, sha256 in finished["files"].items())
    records = [record.from_builtins(line.entry.body, "") for line in ledger.read(out / "ledger.jsonl", "record")]
    assert [(r.label, r.seed) for r in records] == [
        *[("hashing:64", None)] * 2, *[("mine, step 6", 42)] * 2, *[("mine", 42)] * 2,
    ]  # fmt: skip
    assert records[-1].artefact == info.checkpoint and len({r.artefact for r in records}) == 3
    assert load_board(out / "scoreboards" / "organic.json").overall.pass_rate == info.metrics["organic_holdout"]
    assert (out / "scoreboards" / "base-frozen.items.jsonl").exists()


def test_done_run_returns_at_once_and_writes_nothing(tmp_path: Path) -> None:
    out, info = run(tmp_path, **SHORT)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    called: list[object] = []
    again = train(config(tmp_path, **SHORT), out, hooks=Hooks(on_step=called.append, on_note=called.append))
    assert again == info and not called
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


@pytest.mark.parametrize(
    ("blocks", "key"),
    [
        ({"training": SHORT["training"] | {"steps": 13}}, "training.steps"),
        ({"model": {"encoder": "hashing:64", "max_negatives": 4, "temperature": 0.1}}, "model.temperature"),
        ({"curriculum": {"tier_probabilities": (0.5, 0.2, 0.3)}}, "curriculum.tier_probabilities"),
        ({"model": {"encoder": "hashing:32", "max_negatives": 4}}, "model.encoder"),
        ({"experiment": {"name": "other", "checkpoint_every": 10, "seeds": (42,)}}, "experiment.name"),
    ],
)
def test_folder_of_another_run_is_refused_with_the_key(tmp_path: Path, blocks: dict[str, Any], key: str) -> None:
    out, _ = run(tmp_path, **SHORT)
    with pytest.raises(BadConfig, match=key) as caught:
        train(config(tmp_path, **(SHORT | blocks)), out)
    assert caught.value.exit_code == 2 and "--output-dir" in caught.value.fix


def test_folder_of_another_seed_or_other_data_is_refused(tmp_path: Path) -> None:
    out, _ = run(tmp_path, **SHORT)
    with pytest.raises(BadConfig, match="the seed is 7, there it is 42"):
        train(config(tmp_path, **SHORT), out, seed=7)
    write(tmp_path / "held.jsonl", bundles(61, seed=1, pools=False, first=1000))
    with pytest.raises(BadConfig, match=r"the data is not the same: .*held\.jsonl"):
        train(config(tmp_path, **SHORT), out)


def test_where_the_output_and_the_cache_go_is_not_what_a_run_is(tmp_path: Path) -> None:
    out, info = run(tmp_path, **SHORT)
    moved = out.rename(tmp_path / "elsewhere")
    experiment = {"checkpoint_every": 10, "seeds": (42, 7), "output_dir": "somewhere"}
    data = {"embeddings_cache": "other"}
    given = config(tmp_path, **SHORT, experiment=experiment, data=data)
    assert train(given, moved) == info


def test_folder_with_other_files_or_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("mine")
    with pytest.raises(BadConfig, match=r"thesis\.txt"):
        run(tmp_path, "own", **SHORT)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["thesis.txt"]
    with pytest.raises(BadConfig, match="is a file"):
        run(tmp_path, "own/thesis.txt", **SHORT)


def test_settings_that_were_edited_in_the_folder_are_noticed(tmp_path: Path) -> None:
    out, _ = run(tmp_path, **SHORT)
    (out / "config.yaml").write_text((out / "config.yaml").read_text().replace("steps: 12", "steps: 11"))
    with pytest.raises(IntegrityBroken, match=r"config\.yaml"):
        train(config(tmp_path, **SHORT), out)


def test_resolved_settings_mean_the_same_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = config(Path(), **SHORT)
    train(given, Path("here/run"))
    monkeypatch.chdir("/")
    again = settings.load(tmp_path / "here/run/config.yaml", {})
    assert again.data.bundles == (str(tmp_path / "train.jsonl"),) and again.training == given.training


def test_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []

    def meddle(_: object) -> None:
        if not refused:
            pid = os.fork()
            if not pid:
                try:
                    train(config(tmp_path, **SHORT), tmp_path / "run")
                except Mistake as error:
                    (tmp_path / "said").write_text(error.message)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            refused.append((tmp_path / "said").read_text())

    train(config(tmp_path, **SHORT), tmp_path / "run", hooks=Hooks(on_step=meddle))
    assert "another process is training" in refused[0]


# --- guardrails --------------------------------------------------------------------------------------------------------


def info_of(out: Path) -> RunInfo:
    return msgspec.json.decode((out / "run.json").read_bytes(), type=RunInfo)


@pytest.mark.parametrize("every", [100, 1])
def test_training_that_blows_up_ends_with_its_step_and_g6(tmp_path: Path, every: int) -> None:
    """In the loss, or already in the weights where a checkpoint looks at them: no poisoned checkpoint is ever written."""
    training = {"steps": 60, "batch_size": 8, "warmup_steps": 0, "learning_rate": 1e12, "gradient_clip": 0.0}
    blocks: dict[str, Any] = {"training": training, "experiment": {"checkpoint_every": every, "seeds": (42,)}}
    with pytest.raises(SubjectFailed, match=r"at step \d+.*G6") as caught:
        run(tmp_path, **blocks)
    out, step = tmp_path / "run", caught.value.facts["step"]
    assert info_of(out).state == "blocked" and info_of(out).steps_done < step
    found = [one for one in lines(out / "findings.jsonl") if one["guardrail"] == "G6" and one["level"] == "severe"]
    assert [one["step"] for one in found] == [step]
    last = log(out)[-1]
    assert last.step == step and (every == 1 or None in (last.loss, last.grad_norm))
    with pytest.raises(SubjectFailed, match=f"at step {step}"):  # and again, not a run that looks finished
        run(tmp_path, **blocks)
    with pytest.raises(BadData, match="no trained head yet"):
        encode.by_name(f"head:{out}")


def test_dilution_is_recorded_always_stops_when_enforced_and_can_be_overridden_on_record(tmp_path: Path) -> None:
    given, out = config(tmp_path, **SHORT), tmp_path / "run"
    with pytest.raises(GuardrailTripped, match="G1") as caught:
        train(given, out, enforce=True)
    assert caught.value.exit_code == 1 and "--guardrail-override G1" in caught.value.fix
    assert info_of(out).state == "blocked" and not (out / "log.jsonl").exists()
    assert [(one["guardrail"], one["overridden"]) for one in lines(out / "findings.jsonl")] == [("G1", False)]
    info = train(given, out, enforce=True, overrides=["dilution"])
    assert (info.state, info.overrides) == ("done", ["G1"])
    assert [one["overridden"] for one in lines(out / "findings.jsonl") if one["guardrail"] == "G1"] == [True]
    free, _ = run(tmp_path, "free", **SHORT)
    assert [one["overridden"] for one in lines(free / "findings.jsonl") if one["guardrail"] == "G1"] == [False]
    with pytest.raises(BadConfig, match="no guardrail is called 'G77'"):
        train(given, tmp_path / "new", overrides=["G77"])


def test_error_stops_every_run_and_cannot_be_overridden(tmp_path: Path) -> None:
    rows = bundles(30)
    rows[4] |= {"bundle_id": "n5"}  # n5 is organic, n4 is legacy
    write(tmp_path / "train.jsonl", rows[:5])
    write(tmp_path / "more.jsonl", rows[5:])
    write(tmp_path / "held.jsonl", bundles(20, seed=1, pools=False, first=1000))
    data = {
        "bundles": (str(tmp_path / "train.jsonl"), str(tmp_path / "more.jsonl")),
        "frozen_eval": str(tmp_path / "held.jsonl"),
    }
    for overrides in ([], ["G3"]):
        with pytest.raises(GuardrailTripped, match="G3"):
            train(config(tmp_path, **SHORT, data=data), tmp_path / "run", overrides=overrides)


def test_regression_against_the_base_is_found_after_training(tmp_path: Path) -> None:
    """Trained on the opposite of the truth: the positives of the eval set are the negatives of training."""
    rows = bundles(60, pools=False)
    write(tmp_path / "held.jsonl", rows)
    flipped = []
    for row in rows:
        negatives = [row["positive"]] * 2
        flipped.append(
            {**row, "positive": row["negatives"][0], "negatives": negatives, "bundle_id": f"f{row['bundle_id']}"}
        )
    write(tmp_path / "train.jsonl", flipped)
    data = {"frozen_eval": str(tmp_path / "held.jsonl")}
    rails = {"dilution_block_threshold": 0.0, "dilution_warning_threshold": 0.0}
    blocks: dict[str, Any] = {"data": data, "guardrails": rails}
    with pytest.raises(GuardrailTripped, match="G7"):
        train(config(tmp_path, **blocks), tmp_path / "run", enforce=True)
    assert info_of(tmp_path / "run").state == "blocked"
    info = train(config(tmp_path, **blocks), tmp_path / "run", enforce=True, overrides=["G7"])
    assert info.state == "done" and info.metrics["frozen_tier3"] < info.metrics["base_frozen_tier3"]
    assert {"G7"} == {one["guardrail"] for one in lines(tmp_path / "run" / "findings.jsonl") if one["overridden"]}


def test_notes_reach_whoever_watches_and_the_run(tmp_path: Path) -> None:
    said: list[str] = []
    given = config(tmp_path, training={"steps": 5, "warmup_steps": 5, "batch_size": 4}, data={"organic_eval": None})
    info = train(given, tmp_path / "run", hooks=Hooks(on_note=said.append))
    assert said == info.notes and info.metrics["organic_holdout"] is None
    assert any("warmup_steps 5 is the whole run" in note for note in said)
    assert any("data.organic_eval is not set" in note for note in said)
