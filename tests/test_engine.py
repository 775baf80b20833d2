"""Results keep the order of the jobs whoever dies on the way, and nobody outlives the process that asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from crucible.engine import Event, Report, map_jobs
from crucible.errors import (
    BadConfig,
    BadData,
    CrucibleError,
    DeviceUnavailable,
    GuardrailTripped,
    IntegrityBroken,
    MachineryFailed,
    Mistake,
    NotComparable,
    SandboxUnavailable,
    SubjectFailed,
    SubmissionRefused,
)


@dataclass(frozen=True)
class Task:
    name: str
    number: int
    folder: str = ""


TASKS = [Task(f"task-{i}", i) for i in range(6)]


def tasks(tmp_path: Path, count: int) -> list[Task]:
    return [Task(f"task-{i}", i, str(tmp_path)) for i in range(count)]


def attempts(task: Task) -> int:
    """Counts how often a task was begun, across processes."""
    path = Path(task.folder, task.name)
    with path.open("a") as stream:
        stream.write("x")
    return path.stat().st_size


def square(task: Task, report: Report) -> int:
    return task.number**2


def slow_first(task: Task, report: Report) -> int:
    """Ends only after the tasks behind it have ended."""
    if task.number == 0:
        while len(list(Path(task.folder).glob("ended-*"))) < 4:
            time.sleep(0.01)
    Path(task.folder, f"ended-{task.number}").touch()
    return task.number


def kill_myself_once(task: Task, report: Report) -> int:
    if attempts(task) == 1 and task.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task.number


def always_killed(task: Task, report: Report) -> int:
    if task.number == 1:
        attempts(task)
        sys.stderr.write("I see a light\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return task.number


def leaves_by_itself(task: Task, report: Report) -> int:
    attempts(task)
    os._exit(3)


def crashes(task: Task, report: Report) -> int:
    attempts(task)
    raise ZeroDivisionError("a bug of the job")


def unpicklable(task: Task, report: Report) -> object:
    return lambda: task


def refuses(task: Task, report: Report) -> int:
    attempts(task)
    if task.number == 0:
        raise NotComparable("left is not right", fix="Use one.", facts={"left": 1})
    return task.number


def raises(task: Task, report: Report) -> int:
    attempts(task)
    raise ERRORS[task.number]("it broke", fix="mend it")


def disk_full_once(task: Task, report: Report) -> int:
    if attempts(task) == 1:
        raise MachineryFailed("no space", fix="make some")
    return task.number


def steps(task: Task, report: Report) -> int:
    for step in range(1, 4):
        report(step, 3)
    return task.number


def threads_seen(task: Task, report: Report) -> str:
    sys.stdout.write("this must not reach the parent's output\n")
    sys.stdout.flush()
    return os.environ.get("OMP_NUM_THREADS_FOR_THIS_TEST", "unset")


def forks_and_is_killed(task: Task, report: Report) -> int:
    """Leaves a child behind that holds every pipe open."""
    if attempts(task) == 1:
        child = os.fork()
        if child == 0:
            time.sleep(600)
        Path(task.folder, "orphan").write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    return task.number


def my_process(task: Task, report: Report) -> int:
    return os.getpid()


ERRORS: list[type[CrucibleError]] = [
    Mistake,
    BadConfig,
    BadData,
    GuardrailTripped,
    SubjectFailed,
    SubmissionRefused,
    DeviceUnavailable,
    IntegrityBroken,
    SandboxUnavailable,
]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(true: object, what: str) -> None:
    for _ in range(1500):
        if true():  # type: ignore[operator]
            return
        time.sleep(0.02)
    pytest.fail(f"waited in vain until {what}")


# --- order, results, progress --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["processes", "inline"])
def test_results_come_in_the_order_of_the_jobs(engine):
    assert map_jobs(TASKS, square, workers=2, engine=engine) == [i**2 for i in range(6)]


def test_a_slow_first_job_stays_the_first_result(tmp_path):
    assert map_jobs(tasks(tmp_path, 5), slow_first, workers=2) == [0, 1, 2, 3, 4]


def test_one_worker_is_still_a_process_of_its_own_and_serves_several_jobs():
    pids = map_jobs(TASKS, my_process, workers=1)
    assert len(set(pids)) == 1 and pids[0] != os.getpid()
    assert map_jobs(TASKS[:1], my_process, engine="inline") == [os.getpid()]


def test_done_jobs_are_skipped_and_keep_their_place(tmp_path):
    events: list[Event] = []
    done = {1: 100, 4: 400}
    found = map_jobs(
        tasks(tmp_path, 6),
        disk_full_once,
        workers=2,
        done=lambda task: done.get(task.number),
        on_event=events.append,
    )
    assert found == [0, 100, 2, 3, 400, 5]
    assert [event.job for event in events if event.kind == "skipped"] == ["task-1", "task-4"]
    assert not (tmp_path / "task-1").exists() and (tmp_path / "task-2").exists()


def test_when_everything_is_done_nothing_starts(tmp_path):
    assert map_jobs(tasks(tmp_path, 3), leaves_by_itself, done=lambda task: task.number) == [0, 1, 2]
    assert map_jobs([], leaves_by_itself) == []


def test_progress_counts_every_job_once_and_ends_full():
    events: list[Event] = []
    map_jobs(TASKS, steps, workers=2, on_event=events.append)
    assert [event.done for event in events if event.kind == "finished"] == [1, 2, 3, 4, 5, 6]
    assert {event.total for event in events} == {6}
    assert {event.job for event in events if event.inner == (3, 3)} == {task.name for task in TASKS}


@pytest.mark.parametrize("settings", [{"engine": "cluster"}, {"workers": 0}, {"retries": -1}])
def test_an_engine_that_cannot_work_is_refused(settings):
    with pytest.raises(BadConfig, match=r"no engine|cannot work") as caught:
        map_jobs(TASKS, square, **settings)
    assert caught.value.fix


def test_workers_have_their_own_environment_and_no_way_to_our_output(capfd, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS_FOR_THIS_TEST", raising=False)
    assert map_jobs(TASKS[:1], threads_seen, env={"OMP_NUM_THREADS_FOR_THIS_TEST": "1"}) == ["1"]
    assert "OMP_NUM_THREADS_FOR_THIS_TEST" not in os.environ
    assert capfd.readouterr() == ("", "")


# --- death and failure -----------------------------------------------------------------------------------------------------


def test_a_worker_killed_by_sigkill_is_named_and_its_job_tried_again(tmp_path):
    events: list[Event] = []
    assert map_jobs(tasks(tmp_path, 4), kill_myself_once, workers=2, on_event=events.append) == [0, 1, 2, 3]
    (retried,) = [event for event in events if event.kind == "retried"]
    assert retried.job == "task-1" and "SIGKILL" in retried.message
    assert (tmp_path / "task-1").read_text() == "xx"


def test_a_job_that_always_kills_its_worker_is_named_with_its_last_words(tmp_path):
    with pytest.raises(MachineryFailed, match="task-1: the worker was killed by SIGKILL") as caught:
        map_jobs(tasks(tmp_path, 3), always_killed, workers=2, retries=2)
    assert "I see a light" in caught.value.message
    assert caught.value.facts["job"] == "task-1" and caught.value.facts["attempt"] == 3
    assert (tmp_path / "task-1").read_text() == "xxx"


@pytest.mark.parametrize(
    ("work", "said"),
    [(leaves_by_itself, "exit code 3"), (crashes, "ZeroDivisionError: a bug of the job"), (unpicklable, "lambda")],
)
def test_whatever_else_ends_a_worker_is_told_and_never_hangs(tmp_path, work, said):
    with pytest.raises(MachineryFailed, match=r"task-0: the worker ended with exit code") as caught:
        map_jobs(tasks(tmp_path, 2), work, retries=0)
    assert said in caught.value.message


def test_a_dead_worker_is_noticed_even_while_its_own_child_holds_the_pipes(tmp_path):
    assert map_jobs(tasks(tmp_path, 1), forks_and_is_killed) == [0]
    orphan = int((tmp_path / "orphan").read_text())
    until(lambda: not alive(orphan), "the grandchild is gone")


@pytest.mark.parametrize("engine", ["processes", "inline"])
def test_an_error_arrives_as_itself_and_is_not_tried_again(tmp_path, engine):
    with pytest.raises(NotComparable) as caught:
        map_jobs(tasks(tmp_path, 1), refuses, engine=engine, retries=5)
    error = caught.value
    assert (error.message, error.fix) == ("task-0: left is not right", "Use one.")
    assert error.facts == {"left": 1, "job": "task-0"} and error.exit_code == 5
    assert (tmp_path / "task-0").read_text() == "x"


def test_every_error_type_survives_and_only_passing_machinery_faults_are_tried_again(tmp_path):
    jobs = tasks(tmp_path, len(ERRORS))
    for job, expected in zip(jobs, ERRORS, strict=True):
        with pytest.raises(expected) as caught:
            map_jobs([job], raises, engine="inline", retries=3)
        assert type(caught.value) is expected
        assert (tmp_path / job.name).read_text() == "x"
    (tmp_path / "again").mkdir()
    assert map_jobs(tasks(tmp_path / "again", 1), disk_full_once, engine="inline", retries=1) == [0]


def test_keep_going_tries_everything_and_then_names_all_that_failed(tmp_path):
    events: list[Event] = []
    with pytest.raises(Mistake, match=r"task-0: it broke \(2 more of 3 jobs failed: task-1, task-2\)") as caught:
        map_jobs(tasks(tmp_path, 3), raises, keep_going=True, on_event=events.append)
    assert caught.value.facts["failed"] == ["task-0", "task-1", "task-2"]
    (tmp_path / "again").mkdir()
    with pytest.raises(NotComparable):
        map_jobs(tasks(tmp_path / "again", 4), refuses, keep_going=True, on_event=events.append)
    assert [event.kind for event in events].count("finished") == 3


# --- nobody stays behind ---------------------------------------------------------------------------------------------------

PARENT = """
    import os, signal, subprocess, sys, time
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from test_engine import long_job, tasks
    from crucible.engine import map_jobs
    if {gentle}:
        signal.signal(signal.SIGTERM, lambda *a: sys.exit(143))
    map_jobs(tasks(Path({folder!r}), 2), long_job, workers=2)
"""


def long_job(task: Task, report: Report) -> None:
    """Starts a program of its own, leaves a draft that only an orderly end removes, and never ends by itself."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    draft = Path(task.folder, f"draft-{task.number}")
    draft.touch()
    try:
        Path(task.folder, f"pids-{task.number}.part").write_text(f"{os.getpid()} {child.pid}")
        Path(task.folder, f"pids-{task.number}.part").rename(Path(task.folder, f"pids-{task.number}"))
        time.sleep(600)
    finally:
        draft.unlink()


def ended_by(ending: signal.Signals, folder: Path, *, gentle: bool) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A parent with two busy workers that gets a signal; returns it with every process that was under it."""
    text = textwrap.dedent(PARENT).format(tests=str(Path(__file__).parent), folder=str(folder), gentle=gentle)
    parent = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: len(list(folder.glob("pids-?"))) == 2 or parent.poll() is not None, "both jobs run")
    assert parent.poll() is None
    pids = [int(pid) for path in folder.glob("pids-?") for pid in path.read_text().split()]
    assert len(pids) == 4 and all(map(alive, pids))
    os.killpg(parent.pid, ending) if ending == signal.SIGINT else parent.send_signal(ending)
    parent.wait(timeout=60)
    return parent, pids


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_parent_ends_every_worker_in_order_and_what_they_started(tmp_path, ending):
    parent, pids = ended_by(ending, tmp_path, gentle=True)
    assert parent.returncode != 0
    assert [pid for pid in pids if alive(pid)] == []
    assert list(tmp_path.glob("draft-*")) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["sigkill", "sigterm-unhandled"])
def test_a_parent_that_dies_at_once_leaves_no_worker_and_no_grandchild(tmp_path, ending):
    _, pids = ended_by(ending, tmp_path, gentle=False)
    until(lambda: not any(map(alive, pids)), "workers and grandchildren are gone")
