"""`crucible train` at the command line: overrides, exit codes, what is printed where, and no traceback whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crucible.cli.overrides import dotted
from crucible.errors import BadConfig

SETTINGS = """
data: {bundles: train.jsonl, frozen_eval: train.jsonl}
model: {encoder: "hashing:32"}
training: {steps: 50, batch_size: 4, warmup_steps: 2}
experiment: {seeds: [42, 7]}
"""


def bundle(number: int) -> dict[str, Any]:
    words = ["lake", "coin", "song", "leaf"]
    text = f"{words[number % 4]} seen by {number}"
    return {
        "id": f"n{number}", "tier": 1 + number % 3, "anchor_text": text, "positive_text": f"{text} again",
        "negative_texts": [f"{words[(number + k) % 4]} of {number} {k}" for k in (1, 2, 3)], "sense_id": f"s#{number}",
    }  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(bundle(n)) + "\n" for n in range(30)))
    (tmp_path / "crucible.yaml").write_text(SETTINGS)
    return tmp_path


def test_train_runs_with_overrides_prints_one_document_and_the_head_is_a_model(project: Path, crucible: Any) -> None:
    done = crucible(
        "train", "--training.steps", "20", "--model.temperature=0.1", "--output-dir", "r", "--json", "--seed", "7",
        "--guardrail-override", "G1", "--check-guardrails", cwd=project,
    )  # fmt: skip
    assert done.code == 0, done.err
    info = done.json
    assert (info["state"], info["steps_done"], info["seed"], info["overrides"]) == ("done", 20, 7, ["G1"])
    assert "temperature: 0.1" in (project / "r" / "config.yaml").read_text()
    assert "guardrail G1 (severe, overridden)" in done.err and "step 20/20  loss" in done.err
    assert "note: " in done.err and "\x1b" not in done.err
    again = crucible(
        "train", "--training.steps", "20", "--model.temperature=0.1", "--output-dir", "r", "--seed", "7", cwd=project
    )
    assert again.code == 0 and "frozen tier 3" in again.out and "done" in again.out
    board = crucible(
        "eval", "--model", "head:r", "--eval-set", "train.jsonl", "--output", "b.json", "--json", cwd=project
    )
    assert board.json["overall"]["pass_rate"] == info["metrics"]["frozen_overall"]
    other = crucible("train", "--training.steps", "30", "--output-dir", "r", "--seed", "7", cwd=project)
    assert other.code == 2 and "training.steps is '30', there it is '20'" in other.err


def test_guardrails_that_are_checked_stop_the_run_with_1(project: Path, crucible: Any) -> None:
    done = crucible("train", "--training.steps", "20", "--output-dir", "r", "--check-guardrails", "--json", cwd=project)
    assert done.code == 1 and done.json["error"]["kind"] == "GuardrailTripped"
    assert json.loads((project / "r" / "run.json").read_text())["state"] == "blocked"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--training.stepz", "5", "--output-dir", "r"], 2, "did you mean training.steps"),
        (["--training.steps", "--output-dir", "r"], 2, "training.steps"),
        (["--steps", "5", "--output-dir", "r"], 2, "'--steps' is no option of this command"),
        (["extra", "--output-dir", "r"], 2, "'extra' is no option of this command"),
        ([], 2, "there is no place for the run"),
        (["--config", "gone.yaml", "--output-dir", "r"], 2, "gone.yaml"),
        (["--output-dir", "r", "--guardrail-override", "G77"], 2, "G77"),
        (["--output-dir", "r", "--device", "cuda:99"], 4, "cuda:99"),
        (["--output-dir", "r", "--device", "tpu"], 2, "tpu"),
        (["--output-dir", "r", "--data.bundles", "gone.jsonl"], 2, "gone.jsonl"),
        (["--output-dir", "train.jsonl"], 2, "is a file"),
    ],
)
def test_mistakes_have_their_exit_code_and_no_traceback(
    project: Path, crucible: Any, args: list[str], code: int, said: str
) -> None:
    done = crucible("train", *args, cwd=project)
    assert (done.code, "Traceback" in done.err, "a bug in crucible" in done.err) == (code, False, False), done.err
    assert said in done.err


def test_terminal_sees_a_live_line_with_loss_quotas_and_exposure(project: Path) -> None:
    main, side = pty.openpty()
    command = [sys.executable, "-m", "crucible", "train", "--output-dir", "r", "--training.steps", "200"]
    env = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        seen = b""
        with contextlib.suppress(OSError):  # a terminal whose other end is gone
            while chunk := os.read(main, 4096):
                seen += chunk
    os.close(main)
    assert process.returncode == 0, seen
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(
        r"step 200/200  loss \d\.\d+  tiers % \(target\) \d+/60 \d+/30 \d+/10  legacy seen [\d.]+x  \d+ steps/s", said
    )
    assert "guardrail G1 (" in said and "Traceback" not in said


def test_help_has_an_example_and_does_not_wait_for_torch(project: Path, crucible: Any) -> None:
    done = crucible("train", "--help", cwd=project)
    assert done.code == 0 and "Example: crucible train --config crucible.yaml" in " ".join(done.out.split())


def test_configuration_comes_from_the_environment_and_output_from_the_configuration(
    project: Path, crucible: Any
) -> None:
    (project / "other").mkdir()
    (project / "other" / "my.yaml").write_text(
        SETTINGS.replace("train.jsonl", "../train.jsonl")
        .replace("seeds: [42, 7]", "output_dir: out")
        .replace("50", "3")
    )
    env = {"CRUCIBLE_CONFIG": str(project / "other" / "my.yaml")}
    done = crucible("train", "--data.embeddings_cache", "vectors", cwd=project, env=env)
    assert done.code == 0, done.err
    assert (project / "other" / "out" / "checkpoint" / "head.json").exists()
    assert (project / "vectors").exists() and not (project / "cache").exists()


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ([], {}),
        (["--a.b", "1"], {"a.b": "1"}),
        (["--a.b=1", "--c.d.e", "x y"], {"a.b": "1", "c.d.e": "x y"}),
        (["--a.b", "-1"], {"a.b": "-1"}),
        (["--a.b=", "--c.d", ""], {"a.b": "", "c.d": ""}),
        (["--a.b=x=y"], {"a.b": "x=y"}),
        (["--a.b", "[1, 2]"], {"a.b": "[1, 2]"}),
    ],
)
def test_dotted_options_are_read(extra: list[str], found: dict[str, str]) -> None:
    assert dotted(extra) == found


@pytest.mark.parametrize("extra", [["--a.b"], ["x"], ["--a"], ["--a", "1"], ["-a.b", "1"], ["--a.b", "--c.d", "1"], ["--a.b", "1", "2"], ["--a.b=1", "--a.b=2"]])  # fmt: skip
def test_what_is_no_dotted_option_is_refused(extra: list[str]) -> None:
    with pytest.raises(BadConfig):
        dotted(extra)
