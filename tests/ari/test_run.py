from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible.ari.agents import scripted
from crucible.ari.boxes.local import LocalBox
from crucible.ari.clock import boottime
from crucible.ari.run import run
from crucible.ari.rundir import Finished, RunDir
from crucible.ari.submit import candidates, replay
from crucible.ari.track import brief_files
from crucible.errors import BadConfig, MachineryFailed
from crucible.kernel import ledger

from .conftest import alive, small_track, wait_for

BUNDLE = """
mkdir -p m && echo '{"schema": 1, "entry": "model:Model"}' > m/manifest.json
echo 'class Model:
    def __init__(self, d): pass
    def next_byte_logits(self, p): return [0.0] * 256' > m/model.py
"""


def go(tmp_path: Path, script: str, now: Callable[[], float] = boottime, **numbers: Any) -> tuple[RunDir, Finished]:
    path = tmp_path / "agent.sh"
    path.write_text(script)
    track = small_track(**{"budget_s": 300, "reserve_s": 1, **numbers})
    place = run(track, scripted.load(f"script:{path}"), 7, tmp_path / "runs", LocalBox(), now=now)
    return place, place.read_finished()


def kinds(place: RunDir) -> list[str]:
    return [line.entry.kind for line in ledger.read(place.ledger)]


def test_the_id_is_in_the_ledger_before_anything_starts_and_ends_in_a_terminal_state(tmp_path: Path) -> None:
    place, finished = go(tmp_path, "cp ../../ledger.jsonl seen.jsonl\n")
    assert [line.entry.kind for line in ledger.read(place.workspace / "seen.jsonl")] == ["run.allocated"]
    assert kinds(place) == ["run.allocated", "run.finished"]
    lines = list(ledger.read(place.ledger))
    assert lines[0].entry.body["run"] == lines[1].entry.body["run"] == finished.run == place.path.name


def test_submissions_without_promotion_are_empty_whatever_their_public_score(tmp_path: Path) -> None:
    _, finished = go(tmp_path, BUNDLE + "runner submit m\n")
    assert (finished.outcome, finished.official_submission, finished.submissions) == ("empty", None, 1)


def test_at_the_deadline_the_tree_is_killed_and_the_last_promotion_is_official(tmp_path: Path) -> None:
    script = f"""{BUNDLE}
runner submit m; echo 2 > m/two; runner submit m; echo 3 > m/three; runner submit m
runner promote s3; runner promote s2
(setsid sleep 300 & echo $! > daemon)
echo 'import os, time; open("tmp", "w").write(str(os.getpid())); os.rename("tmp", "job"); time.sleep(300)' > job.py
runner run job.py
sleep 300
"""

    def now() -> float:
        """The deadline comes when everything of the run is at work, however slow this machine is."""
        return boottime() + (3600 if list(tmp_path.glob("runs/*/workspace/job")) else 0)

    place, finished = go(tmp_path, script, now=now, budget_s=3600)
    assert (finished.outcome, finished.official_submission, finished.agent_exit) == ("pending", "s2", None)
    for name in ("daemon", "job"):
        assert not alive(int((place.workspace / name).read_text())), name
    job = next(line.entry.body for line in ledger.read(place.audit) if line.entry.body["command"] == "run")
    assert (job["end"], job["left_s"]) == ("stopped", 0.0)


def test_feedback_cut_short_is_no_score_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    slow = BUNDLE.replace(
        "def next_byte_logits(self, p): return", 'def next_byte_logits(self, p): __import__("time").sleep(300); return'
    )
    wait = "until [ -s ../submissions.jsonl ]; do sleep 0.05; done"
    place, finished = go(tmp_path, slow + f"runner submit m & {wait}; runner promote s1\n", budget_s=600)
    assert (finished.outcome, finished.official_submission) == ("pending", "s1")
    assert finished.seconds < 300
    (candidate,) = candidates(replay(place.history))
    assert (candidate.status, candidate.public_passed, candidate.official) == ("accepted", None, True)
    refused = [
        line.entry.body["refused"] for line in ledger.read(place.audit) if line.entry.body["command"] == "submit"
    ]
    assert refused == ["the time was over before the feedback was complete"]


def test_a_failing_agent_is_a_result_and_never_invalid(tmp_path: Path) -> None:
    for script in (
        "exit 3",
        "kill -9 $$",
        "syntax ( error",
        "rm -rf ./* ; runner run gone.py",
        "cd ..; rmdir workspace",
    ):
        _, finished = go(tmp_path, script)
        assert finished.outcome == "empty", script
    assert finished.cause is None


def test_a_promoted_artefact_outlives_what_the_agent_does_to_its_files(tmp_path: Path) -> None:
    place, finished = go(tmp_path, BUNDLE + "runner submit m && runner promote s1 && rm -rf m && exit 9\n")
    assert (finished.outcome, finished.agent_exit) == ("pending", 9)
    assert finished.artefact is not None
    assert place.snapshot(finished.artefact).exists()


def test_every_run_has_a_fresh_and_equal_workspace(tmp_path: Path) -> None:
    look = "find . -type f | sort | xargs sha256sum > ../seen; echo canary > canary; echo x >> starter/model.py\n"
    first, _ = go(tmp_path, look)
    second, _ = go(tmp_path, look)
    seen = (first.path / "seen").read_text()
    assert seen == (second.path / "seen").read_text()
    assert "canary" not in seen
    assert {line.split()[1] for line in seen.splitlines()} == {f"./{name}" for name in brief_files()}


def test_the_agents_environment_is_allow_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "secret")
    place, _ = go(tmp_path, "env; echo to-stderr >&2\n")
    names = {line.split("=")[0] for line in place.transcript.read_text().splitlines()}
    assert "PROVIDER_KEY" not in names
    assert {"ARI_SEED", "RUNNER_SOCKET", "to-stderr"} <= names
    assert "ARI_SEED=7" in place.transcript.read_text()


class _BrokenBox(LocalBox):
    def start(self, job: Any) -> Any:
        raise MachineryFailed("the box died", fix="-")


def test_the_machinerys_failure_is_invalid_with_its_cause_and_has_no_score(tmp_path: Path) -> None:
    place = run(small_track(), scripted.load("idle"), 1, tmp_path / "runs", _BrokenBox())
    finished = place.read_finished()
    assert (finished.outcome, finished.cause, finished.reason) == ("invalid", "machinery failed", "the box died")
    assert kinds(place) == ["run.allocated", "run.finished", "record"]
    record = next(ledger.read(place.ledger, "record")).entry.body
    assert record["metrics"] == {} and record["outcome"]["end"] == "invalid"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_harness_leaves_a_terminal_state_and_no_process(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("(setsid sleep 300 & echo $! > daemon)\necho $$ > me.tmp; mv me.tmp me\nsleep 300\n")
    command = [
        sys.executable,
        "-m",
        "crucible",
        "ari",
        "run",
        "--agent",
        f"script:{script}",
        "--root",
        "runs",
        "--json",
    ]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background shell has its children ignore Ctrl-C
    try:
        harness = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: bool(list(tmp_path.glob("runs/*/workspace/me"))))
    folder = next(tmp_path.glob("runs/*/workspace"))
    harness.send_signal(how)
    _, err = harness.communicate(timeout=30)
    assert harness.returncode in (130, 143) and b"Traceback" not in err
    place = RunDir(folder.parent)
    assert (place.read_finished().outcome, place.read_finished().cause) == ("invalid", "harness stopped")
    assert kinds(place) == ["run.allocated", "run.finished", "record"]
    for name in ("me", "daemon"):
        assert not alive(int((folder / name).read_text()))


def test_the_hour_does_not_even_load_the_code_that_knows_hidden_exams() -> None:
    code = "import sys, crucible.ari.run; print([m for m in sys.modules if m.startswith('crucible.ari')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "crucible.ari.run'" in loaded
    assert "grade" not in loaded and "exam.build" not in loaded and "exam.families" not in loaded


def test_an_unknown_agent_is_refused_before_an_id_is_allocated(tmp_path: Path) -> None:
    for name in ("nobody", "script:", f"script:{tmp_path}/gone.sh"):
        with pytest.raises(BadConfig):
            scripted.load(name)


def test_two_scripts_of_one_name_are_two_subjects(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("true")
    one = scripted.load(f"script:{tmp_path}/a.sh").subject
    (tmp_path / "a.sh").write_text("false")
    assert scripted.load(f"script:{tmp_path}/a.sh").subject != one
