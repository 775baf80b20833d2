"""All weights of a sentence-transformers model, through its own trainer: it learns, it resumes exactly, it chatters nowhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_fixtures import config, log

from crucible.contrast import encode
from crucible.contrast.train.log import StepReport
from crucible.contrast.train.run import Hooks, train
from crucible.errors import BadConfig, SubjectFailed
from crucible.kernel import digest, ledger

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model small enough to train in a test: MiniLM's tokenizer, random weights, dropout as usual."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(encode.by_name("minilm")._folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(7)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(**shape)).save_pretrained(folder)
    pooling = folder / "1_Pooling/config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"word_embedding_dimension": 16}))
    return folder


def blocks(tiny: Path, **training: Any) -> dict[str, Any]:
    return {
        "model": {"encoder": f"st:{tiny}", "train": "full", "max_negatives": 3, "temperature": 0.05},
        "training": {"steps": 12, "batch_size": 4, "warmup_steps": 2, "learning_rate": 3e-3} | training,
        "experiment": {"checkpoint_every": 4, "eval_every": 6, "seeds": (42,)},
    }


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


class Killed(BaseException):
    """Stands for SIGKILL."""


def killed_at(step: int) -> Hooks:
    def on_step(report: StepReport) -> None:
        if report.step == step:
            raise Killed

    return Hooks(on_step=on_step)


def test_full_training_learns_resumes_exactly_and_says_nothing(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = config(tmp_path, **blocks(tiny))
    whole = train(given, tmp_path / "whole")
    assert whole.state == "done" and whole.train == "full"
    model = tmp_path / "whole" / "checkpoint"
    assert weights(model) != weights(tiny)
    assert encode.by_name(f"st:{model}").digest == whole.checkpoint
    assert {line.entry.body["artefact"] for line in ledger.read(tmp_path / "whole/ledger.jsonl", "record")} >= {
        whole.checkpoint
    }
    assert [line.step for line in log(tmp_path / "whole")] == list(range(1, 13))

    out = tmp_path / "run"
    for step in (3, 7, 11):  # before a checkpoint, after one, and after an evaluation
        with pytest.raises(Killed):
            train(given, out, hooks=killed_at(step))
    again = train(given, out)
    assert weights(out / "checkpoint") == weights(model)
    assert again.checkpoint == whole.checkpoint  # not a byte of the model's folder says where it was made
    assert (out / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()
    assert again.metrics == whole.metrics
    assert (out / "scoreboards" / "step-00000006-organic.json").exists()
    finished = next(ledger.read(out / "ledger.jsonl", "run.finished")).entry.body["files"]
    assert finished["checkpoint/model.safetensors"] == digest.of_bytes(weights(model))
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert not (Path.cwd() / "tmp_trainer").exists()


def test_loss_falls_and_the_training_bundles_are_learned(tiny: Path, tmp_path: Path) -> None:
    given = blocks(tiny, steps=100, batch_size=8) | {"experiment": {"checkpoint_every": 1000, "seeds": (42,)}}
    info = train(config(tmp_path, **given), tmp_path / "run")
    losses = [line.loss for line in log(tmp_path / "run")]
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:20])
    assert info.metrics["frozen_overall"] > info.metrics["base_frozen_overall"] + 0.1


def test_loss_that_blows_up_ends_the_run(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(SubjectFailed, match="at step"):
        train(config(tmp_path, **blocks(tiny, learning_rate=1e12, gradient_clip=0.0, warmup_steps=0)), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "blocked"


def test_encoder_without_weights_to_train_is_refused(tmp_path: Path) -> None:
    given = config(tmp_path, model={"encoder": "hashing:64", "train": "full"})
    with pytest.raises(BadConfig, match="cannot be trained in full"):
        train(given, tmp_path / "run")
