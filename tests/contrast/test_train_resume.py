"""A run that is killed, starved or damaged ends with the weights and the log it would have had anyway."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from train_fixtures import config, log, weights

from crucible.contrast import encode, settings
from crucible.contrast.train.log import StepReport
from crucible.contrast.train.run import Hooks, train
from crucible.kernel import ledger

STEPS = 24
TRAINING = {"steps": STEPS, "batch_size": 4, "warmup_steps": 2, "learning_rate": 0.01, "lr_schedule": "cosine"}
BLOCKS: dict[str, Any] = {"training": TRAINING, "experiment": {"checkpoint_every": 5, "eval_every": 8, "seeds": (42,)}}


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it, and nothing but what is on disk survives."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that nobody disturbed; its folder also holds the data."""
    folder = tmp_path_factory.mktemp("whole")
    before = os.environ.get("CRUCIBLE_CACHE_DIR")
    os.environ["CRUCIBLE_CACHE_DIR"] = str(folder / "cache")
    train(config(folder, **BLOCKS), folder / "run")
    yield folder
    if before is None:
        del os.environ["CRUCIBLE_CACHE_DIR"]


def killed_at(step: int) -> Hooks:
    def on_step(report: StepReport) -> None:
        if report.step == step:
            raise Killed

    return Hooks(on_step=on_step)


def go(whole: Path, out: Path, *kills: int) -> None:
    """Killed at each of these steps if it gets there, then left alone."""
    for step in kills:
        try:
            train(config(whole, **BLOCKS), out, hooks=killed_at(step))
        except Killed:
            continue
    train(config(whole, **BLOCKS), out)


def same(one: Path, two: Path) -> None:
    assert weights(one) == weights(two)
    for name in ("log.jsonl", "findings.jsonl", "items.jsonl", "config.yaml", "checkpoint/head.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    boards = [sorted(path.name for path in (out / "scoreboards").iterdir()) for out in (one, two)]
    assert boards[0] == boards[1]
    for path in (one / "scoreboards").glob("*.items.jsonl"):
        assert path.read_bytes() == (two / "scoreboards" / path.name).read_bytes()


@hypothesis_settings(max_examples=6)
@given(st.lists(st.integers(1, STEPS), min_size=1, max_size=3))
def test_killed_at_any_steps_it_ends_the_same(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, kills: list[int]
) -> None:
    out = tmp_path_factory.mktemp("killed") / "run"
    go(whole, out, *kills)
    same(whole / "run", out)
    records = [line.entry.body for line in ledger.read(out / "ledger.jsonl", "record")]
    assert len(records) == 8  # both truths: base, step 8, step 16, the end; none twice
    shutil.rmtree(out)


def damage_weights(run: Path) -> None:
    path = run / "checkpoints" / "step-00000020" / "head.npz"
    path.write_bytes(path.read_bytes()[:-1])


def damage_seal(run: Path) -> None:
    (run / "checkpoints" / "step-00000020" / "checkpoint.json").write_text("{")


def lose_a_file(run: Path) -> None:
    (run / "checkpoints" / "step-00000020" / "optimiser.npz").unlink()


def tear_the_log(run: Path) -> None:
    (run / "log.jsonl").write_bytes((run / "log.jsonl").read_bytes() + b'{"step":2')


def lose_the_end_of_the_log(run: Path) -> None:
    lines = (run / "log.jsonl").read_bytes().splitlines(keepends=True)
    (run / "log.jsonl").write_bytes(b"".join(lines[:17]) + lines[17][:9])


def edit_the_log(run: Path) -> None:
    text = (run / "log.jsonl").read_text()
    (run / "log.jsonl").write_text(text.replace('"step":18,"loss":', '"step":18,"loss":1'))


def lose_everything_but_the_beginning(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def half_a_checkpoint(run: Path) -> None:
    draft = run / "checkpoints" / ".step-00000022.abc.part"
    draft.mkdir()
    (draft / "head.npz").write_bytes(b"half")


FAULTS = {
    damage_weights: 16, damage_seal: 16, lose_a_file: 16, lose_the_end_of_the_log: 16, edit_the_log: 16,
    tear_the_log: 20, half_a_checkpoint: 20, lose_everything_but_the_beginning: 0,
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_damage_falls_back_to_the_checkpoint_before_and_ends_the_same(whole: Path, tmp_path: Path, fault: Any) -> None:
    out = tmp_path / "run"
    with pytest.raises(Killed):
        train(config(whole, **BLOCKS), out, hooks=killed_at(22))
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000016", "step-00000020"]
    fault(out)
    first: list[int] = []
    info = train(config(whole, **BLOCKS), out, hooks=Hooks(on_step=lambda report: first.append(report.step)))
    assert first[0] == FAULTS[fault] + 1
    same(whole / "run", out)
    if FAULTS[fault] == 16:
        assert any("the checkpoint of step 20 is not used" in note for note in info.notes)


def test_killed_while_it_finishes_it_finishes_the_next_time(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    real = encode.by_name

    def by_name(name: str, device: str = "auto") -> Any:
        if name.startswith("head:"):
            raise Killed
        return real(name, device)

    monkeypatch.setattr(encode, "by_name", by_name)
    with pytest.raises(Killed):
        train(config(whole, **BLOCKS), out)
    assert (out / "checkpoint" / "head.npz").exists()
    monkeypatch.undo()
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))
    assert train(config(whole, **BLOCKS), out).state == "done"
    same(whole / "run", out)


def test_killed_between_a_checkpoint_and_its_evaluation_nothing_is_missing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crucible.contrast.train import measure

    out = tmp_path / "run"
    real = measure.Bench.measure

    def stopped(self: Any, encoder: Any, subject: Any, before: str = "") -> Any:
        if before.startswith("step-00000016"):
            raise Killed
        return real(self, encoder, subject, before)

    monkeypatch.setattr(measure.Bench, "measure", stopped)
    with pytest.raises(Killed):
        train(config(whole, **BLOCKS), out)
    monkeypatch.setattr(measure.Bench, "measure", real)
    train(config(whole, **BLOCKS), out)
    same(whole / "run", out)


def test_killed_between_a_record_and_its_scoreboard_it_is_recorded_once(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crucible.contrast import evaluate

    def never(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "write", never)
        for _ in range(2):
            with pytest.raises(Killed):
                train(config(whole, **BLOCKS), tmp_path / "run")
    train(config(whole, **BLOCKS), tmp_path / "run")
    assert len(list(ledger.read(tmp_path / "run" / "ledger.jsonl", "record"))) == 8
    same(whole / "run", tmp_path / "run")


# --- in a process of its own -------------------------------------------------------------------------------------------

LONG: dict[str, Any] = {
    "training": {"steps": 1500, "batch_size": 16, "warmup_steps": 2, "learning_rate": 0.003},
    "experiment": {"checkpoint_every": 100, "seeds": (42,)},
}


def start(folder: Path, out: Path, every: int = 100) -> subprocess.Popen[bytes]:
    LONG["experiment"]["checkpoint_every"] = every
    (folder / "crucible.yaml").write_bytes(settings.dump(config(folder, **LONG)))
    command = [sys.executable, "-m", "crucible", "train", "--config", folder / "crucible.yaml", "--output-dir", out]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for_steps(process: subprocess.Popen[bytes], out: Path, steps: int) -> None:
    """Until the log on disk is that long; it is written in pieces, so there are some more."""
    path = out / "log.jsonl"
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < steps):
        time.sleep(0.01)


@pytest.mark.slow
def test_kill_9_and_resume_gives_the_same_weights_and_log(tmp_path: Path) -> None:
    train(config(tmp_path, **LONG), tmp_path / "whole")
    out = tmp_path / "run"
    for steps in (150, 700):
        process = start(tmp_path, out)
        wait_for_steps(process, out, steps)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (out / "checkpoint").exists()
    process = start(tmp_path, out)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert weights(out) == weights(tmp_path / "whole")
    assert (out / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()


COUNT_THREADS = """
import sys, pathlib, torch
from crucible.contrast import settings
from crucible.contrast.train.run import Hooks, train
seen = []
train(settings.load(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), hooks=Hooks(on_step=lambda _: seen.append(torch.get_num_threads())))
sys.stdout.write(str(sorted(set(seen))))
"""


@pytest.mark.slow
def test_resumed_steps_are_summed_by_one_thread_whatever_an_evaluation_sets(whole: Path, tmp_path: Path) -> None:
    """The first scoring of a process sets the number of OpenMP threads for all of it, and a resumed run scores later."""
    with pytest.raises(Killed):
        train(config(whole, **BLOCKS), tmp_path / "run", hooks=killed_at(6))
    (tmp_path / "c.yaml").write_bytes(settings.dump(config(whole, **BLOCKS)))
    env = os.environ | {"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-c", COUNT_THREADS, tmp_path / "c.yaml", tmp_path / "run"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout == "[1]", done.stderr
    same(whole / "run", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_finishes_the_step_writes_a_checkpoint_and_exits_with_its_code(
    tmp_path: Path, number: int, code: int
) -> None:
    out = tmp_path / "run"
    process = start(tmp_path, out, every=10**6)  # so that only the signal makes one
    wait_for_steps(process, out, 100)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == code
    (only,) = (out / "checkpoints").iterdir()
    assert only.name == f"step-{len(log(out)):08d}" and 100 <= len(log(out)) < 1500
    assert not list(out.rglob("*.part"))
    train(config(tmp_path, **LONG), out)
    train(config(tmp_path, **LONG), tmp_path / "whole")
    assert weights(out) == weights(tmp_path / "whole")


def test_full_disk_leaves_the_checkpoint_before_and_says_so(whole: Path, tmp_path: Path, crucible: Any) -> None:
    """The log and the optimiser grow beyond what the disk takes; what is there stays whole, and with room it ends the same."""
    given = config(whole, **BLOCKS)
    (tmp_path / "c.yaml").write_bytes(settings.dump(given))
    out = tmp_path / "run"
    with pytest.raises(Killed):
        train(given, out, hooks=killed_at(6))
    before = {path: path.read_bytes() for path in (out / "checkpoints").rglob("*") if path.is_file()}
    largest = max(map(len, before.values()))
    done = crucible("train", "--config", tmp_path / "c.yaml", "--output-dir", out, file_limit=largest - 1000)
    assert done.code == 1 and "cannot be written" in done.err and "Traceback" not in done.err
    assert {path: path.read_bytes() for path in (out / "checkpoints").rglob("*") if path.is_file()} == before
    train(given, out)
    same(whole / "run", out)
