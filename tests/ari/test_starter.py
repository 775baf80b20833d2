"""The starter: it trains in seconds, resumes to the same bytes, and what it writes answers by a pure function."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.ari import runner
from crucible.ari.artefact import pack
from crucible.ari.submit import artefact_limits
from crucible.ari.track import BRIEF, load

STARTER, TEXT = BRIEF / "starter", BRIEF / "text.txt"


def program(path: Path, name: str) -> Any:
    """A program of its own as a module."""
    module: Any = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def train() -> Any:
    return program(STARTER / "train.py", "starter_train")


@pytest.fixture(scope="module")
def bundle(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("starter") / "model"
    assert train.main(["--text", str(TEXT), "--out", str(out), "--seed", "3", "--steps", "25"]) == 0
    return out


def model(folder: Path) -> Any:
    return program(folder / "model.py", "starter_model").Model(str(folder))


def test_the_unit_size_trains_as_a_program_and_its_bundle_is_one_the_harness_takes(tmp_path: Path) -> None:
    command = [sys.executable, str(STARTER / "train.py"), "--text", str(TEXT), "--out", "model", "--size", "unit"]
    env = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    bits = [float(line.split(" s: ")[1].split()[0]) for line in done.stdout.splitlines() if "bits a byte" in line]
    assert bits[-1] < bits[0] and bits[-1] < 5.0  # far below 8: it has learned something
    assert "runner submit model" in done.stdout
    packed = pack(tmp_path / "model", io.BytesIO(), artefact_limits(load("official-1h")))
    assert packed.manifest.weights == ["weights.f16"] and packed.bytes < 1_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # no checkpoint is left, and none is in the bundle
    answered = model(tmp_path / "model").next_byte_logits(b"The capital of ")
    assert answered.shape == (256,) and np.isfinite(answered).all()


def test_what_answers_is_what_was_trained(train: Any, bundle: Path) -> None:
    config = json.loads((bundle / "config.json").read_text())
    flat, weights = np.fromfile(bundle / "weights.f16", "<f2").astype(np.float32), {}
    for name, shape in config["weights"]:
        weights[name], flat = torch.from_numpy(flat[: int(np.prod(shape))].reshape(shape)), flat[int(np.prod(shape)) :]
    assert flat.size == 0
    text = TEXT.read_bytes()[5000:]
    for length in (1, 2, 63, 64, 65, 127, 128):
        x = torch.tensor([list(text[:length])])
        expected = train.logits(weights, train.SIZES["unit"], x)[0, -1].numpy()
        assert np.abs(model(bundle).next_byte_logits(text[:length]) - expected).max() < 1e-3, length


@settings(max_examples=25)
@given(data=st.data())
def test_an_answer_depends_on_the_prefix_alone_to_the_last_bit(data: st.DataObject, bundle: Path) -> None:
    used = model(bundle)
    at = data.draw(st.integers(0, 400_000))
    text = TEXT.read_bytes()[at : at + 200]
    lengths = data.draw(st.lists(st.integers(0, 200), min_size=2, max_size=6))
    for length in lengths:  # any order, again and again, longer and shorter
        assert used.next_byte_logits(text[:length]).tobytes() == model(bundle).next_byte_logits(text[:length]).tobytes()


def test_stepping_byte_by_byte_gives_what_a_fresh_model_gives(bundle: Path) -> None:
    used, text = model(bundle), TEXT.read_bytes()[:150]
    for length in range(40, 150):  # over the end of a block and over the end of the context
        stepped = used.next_byte_logits(text[:length])
        if length % 16 < 2:
            assert stepped.tobytes() == model(bundle).next_byte_logits(text[:length]).tobytes(), length


def test_a_run_in_many_calls_ends_with_the_same_bytes_as_a_run_in_one(train: Any, tmp_path: Path) -> None:
    def bytes_of(out: str, *more: str) -> bytes:
        command = ["--text", str(TEXT), "--out", str(tmp_path / out), "--seed", "5", "--steps", "6", *more]
        codes = [train.main(command)]
        while codes[-1] == train.COME_AGAIN:
            assert (tmp_path / f"{out}.checkpoint").exists() and not (tmp_path / out).exists()
            codes.append(train.main(command))
        assert codes == ([train.COME_AGAIN] * 5 + [0] if more else [0])
        assert not (tmp_path / f"{out}.checkpoint").exists()
        return (tmp_path / out / "weights.f16").read_bytes()

    once = bytes_of("once")
    assert bytes_of("often", "--call-seconds", "0") == once
    assert bytes_of("again") == once


def test_a_call_that_is_killed_goes_on_from_its_last_checkpoint(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--text", str(TEXT), "--out", str(tmp_path / "model"), "--seed", "5", "--steps", "20"]
    whole, steps = train.windows, []

    def windows(text: Any, size: Any, seed: int, step: int) -> Any:
        steps.append(step)
        if steps.count(7) and len(steps) < 100:
            raise KeyboardInterrupt
        return whole(text, size, seed, step)

    monkeypatch.setattr(train, "windows", windows)
    with pytest.raises(KeyboardInterrupt):
        train.main(command)
    monkeypatch.setattr(train, "windows", whole)
    assert train.main(command) == 0
    assert "going on from step 6" in capsys.readouterr().out


def test_a_checkpoint_of_another_seed_is_not_resumed(
    train: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--text", str(TEXT), "--out", str(tmp_path / "model"), "--steps", "2", "--seed"]
    assert train.main([*command, "1", "--call-seconds", "0"]) == train.COME_AGAIN
    assert train.main([*command, "2"]) == 0
    assert "begins anew" in capsys.readouterr().out
    other = (tmp_path / "model" / "weights.f16").read_bytes()
    assert train.main([*command, "1"]) == 0
    assert (tmp_path / "model" / "weights.f16").read_bytes() != other


def test_it_submits_itself_where_runner_is(train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "runner"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit 9\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    command = ["--text", str(TEXT), "--out", str(tmp_path / "model"), "--steps", "1"]
    assert train.main(command) == 0 and not (tmp_path / "asked").exists()
    monkeypatch.setenv("RUNNER_SOCKET", "somewhere")
    assert train.main(command) == 9
    assert (tmp_path / "asked").read_text() == f"submit {tmp_path / 'model'}\n"


def test_a_text_that_is_too_short_is_a_sentence(train: Any, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(SystemExit, match="9 bytes: too short"):
        train.main(["--text", str(tmp_path / "short.txt"), "--out", str(tmp_path / "model")])


def test_the_hour_size_is_about_five_million_parameters_and_fits_the_artefact(train: Any) -> None:
    count = sum(tensor.numel() for tensor in train.new_weights(train.SIZES["hour"], 0).values())
    assert 4_500_000 < count < 5_500_000 and 2 * count < 16_000_000
    assert max(size.context for size in train.SIZES.values()) <= load("official-1h").context_bytes


def test_the_brief_names_every_command_and_every_number_that_never_changes() -> None:
    brief = (BRIEF / "brief.md").read_text()
    commands = [line.split()[1] for line in runner.HELP.splitlines() if line.strip().startswith("runner ")]
    assert len(commands) == 7
    for command in commands:
        assert f"runner {command}" in brief
    for name in ("mini", "official-1h"):
        track = load(name)
        for number in (track.artifact_bytes, track.context_bytes, track.artifact_files, track.unpacked_bytes):
            assert f"{number:,}" in brief
        for seconds in (track.load_limit_s, track.question_limit_s):
            assert f"{seconds:g} s" in brief
        assert f"{track.grade_limit_s / 60:g} minutes" in brief
