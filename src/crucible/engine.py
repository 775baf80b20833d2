"""Named jobs and a function -> their results in the order of the jobs, by worker processes that die alone. Knows no job.

    for every job not yet done:   a worker runs work(job, report) -> result      report(done, of) says how far it is
    a worker that dies            is noticed, named with its last words, and its job is tried again
    an error of ours              arrives as itself, with the job's name; a mistake or a failed subject is not tried again
    Ctrl-C, SIGTERM, kill -9      of the parent end every worker and whatever it started

Workers are fresh interpreters (spawned, never forked from a process that may have threads or a GPU), each in a session of its
own; they take one job after another. What they print is kept as their last words and shown to nobody else. The engine is a
name, so that the same call can run elsewhere later. It stores nothing: what is done is what the caller's `done` says.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from crucible.errors import BadConfig, CrucibleError, MachineryFailed, Mistake, SubjectFailed

GRACE_S = 5.0
"""How long a worker may take to end when it is asked to, before it is killed with everything it started."""
_REPORT_EVERY_S = 0.2
_WORDS = 2000
_SIGNALS = {one.value: one.name for one in signal.Signals} | {9: "SIGKILL (out of memory, or somebody's kill -9)"}
_ATTENTION_S = 1.0
"""A forked grandchild may hold the pipes of a dead worker open: so often the processes themselves are looked at."""


class Job(Protocol):
    """Anything that can be pickled and has a name that people and errors use."""

    @property
    def name(self) -> str: ...


J = TypeVar("J", bound=Job)
R = TypeVar("R")
Report = Callable[[int, int], None]
Kind = Literal["skipped", "started", "progress", "retried", "finished", "failed"]


@dataclass(frozen=True)
class Event:
    """Something happened to a job. `done` counts jobs that are finished or were skipped, of `total`."""

    kind: Kind
    job: str
    done: int
    total: int
    message: str = ""
    inner: tuple[int, int] | None = None
    """What the job itself reported, with `progress`."""


OnEvent = Callable[[Event], None]


def map_jobs(
    jobs: Sequence[J],
    work: Callable[[J, Report], R],
    *,
    workers: int = 1,
    done: Callable[[J], R | None] = lambda job: None,
    retries: int = 1,
    on_event: OnEvent | None = None,
    engine: str = "processes",
    keep_going: bool = False,
    env: Mapping[str, str] | None = None,
) -> list[R]:
    """The results of all jobs. `done` gives the result of a job that need not run; `env` is added to the workers' own.

    The first job that fails for good raises, and the others are ended; with `keep_going` they are all tried first.
    """
    if engine not in ENGINES:
        raise BadConfig(f"there is no engine {engine!r}", fix=f"Known engines: {', '.join(ENGINES)}.")
    if workers < 1 or retries < 0:
        raise BadConfig(
            f"{workers} workers with {retries} retries cannot work", fix="At least one worker, no negative."
        )
    state: _State[J, R] = _State(jobs, retries, keep_going, on_event or (lambda event: None))
    for index, job in enumerate(jobs):
        known = done(job)
        if known is not None:
            state.results[index] = known
            state.tell("skipped", index)
        else:
            state.queue.append(index)
    if state.queue:
        ENGINES[engine](state, work, min(workers, len(state.queue)), dict(env or {}))
    state.raise_failures()
    return [state.results[index] for index in range(len(jobs))]


# --- what is left to do ------------------------------------------------------------------------------------------------


@dataclass
class _State(Generic[J, R]):
    """The jobs that wait, the results that are there, the attempts that were made. Starts nothing."""

    jobs: Sequence[J]
    retries: int
    keep_going: bool
    on_event: OnEvent
    queue: deque[int] = field(default_factory=deque)
    results: dict[int, R] = field(default_factory=dict)
    failures: dict[int, CrucibleError] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)

    def tell(self, kind: Kind, index: int, message: str = "", inner: tuple[int, int] | None = None) -> None:
        self.on_event(Event(kind, self.jobs[index].name, len(self.results), len(self.jobs), message, inner))

    def reporter(self, index: int) -> Report:
        return lambda done, of: self.tell("progress", index, "", (done, of))

    def take(self) -> int:
        index = self.queue.popleft()
        self.attempts[index] = self.attempts.get(index, 0) + 1
        self.tell("started", index)
        return index

    def finished(self, index: int, result: R) -> None:
        self.results[index] = result
        self.tell("finished", index)

    def failed(self, index: int, error: CrucibleError) -> None:
        """Tries again what another attempt can change; otherwise the error is the job's end."""
        # The branches of MachineryFailed (no device, no sandbox, broken evidence) will be the same a second time.
        if type(error) is MachineryFailed and self.attempts[index] <= self.retries:
            self.tell("retried", index, error.message)
            self.queue.appendleft(index)
            return
        name = self.jobs[index].name
        error.message = f"{name}: {error.message}"
        error.args = (error.message,)
        error.facts.setdefault("job", name)
        self.failures[index] = error
        self.tell("failed", index, error.message)
        if not self.keep_going:
            raise error

    def raise_failures(self) -> None:
        if not self.failures:
            return
        first, *others = [self.failures[index] for index in sorted(self.failures)]
        if others:
            names = [self.jobs[index].name for index in sorted(self.failures)]
            first.facts["failed"] = names
            first.message += f" ({len(others)} more of {len(self.jobs)} jobs failed: {', '.join(names[1:6])})"
            first.args = (first.message,)
        raise first


Engine = Callable[[_State[Any, Any], Callable[[Any, Report], Any], int, Mapping[str, str]], None]


def _inline(state: _State[J, R], work: Callable[[J, Report], R], workers: int, env: Mapping[str, str]) -> None:
    """In this very process, one after another: for looking at a job with a debugger. A dying job takes everything along."""
    with _environment(env):
        while state.queue:
            index = state.take()
            try:
                result = work(state.jobs[index], state.reporter(index))
            except (SubjectFailed, MachineryFailed, Mistake) as error:
                state.failed(index, error)
            else:
                state.finished(index, result)


# --- the parent's side of worker processes -------------------------------------------------------------------------------


@dataclass
class _Worker:
    process: SpawnProcess
    channel: Connection
    lifeline: Connection
    """Nobody writes to it. It closes when this process ends, however it ends, and then the worker ends itself."""
    words: Path
    index: int | None = None
    said_before: int = 0

    def gone(self) -> bool:
        return self.process.exitcode is not None

    def last_words(self) -> str:
        with self.words.open("rb") as stream:
            stream.seek(max(self.said_before, self.words.stat().st_size - _WORDS))
            return stream.read().decode(errors="replace").strip()


def _processes(state: _State[J, R], work: Callable[[J, Report], R], count: int, env: Mapping[str, str]) -> None:
    program = pickle.dumps(work)
    workers: list[_Worker] = []
    with tempfile.TemporaryDirectory(prefix="crucible-engine-") as folder:
        try:
            while state.queue or any(worker.index is not None for worker in workers):
                idle = [worker for worker in workers if worker.index is None]
                while state.queue and (idle or len(workers) < count):
                    if not idle:
                        idle.append(_start(Path(folder), program, env))
                        workers.append(idle[-1])
                    _assign(state, idle.pop())
                for worker in _heard(workers):
                    _listen(state, worker)
                    if worker.index is None and worker.gone():
                        workers.remove(worker)
        finally:
            _end(workers)


def _start(folder: Path, program: bytes, env: Mapping[str, str]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    channel, theirs = context.Pipe()
    held, lifeline = context.Pipe(duplex=False)
    handle, words = tempfile.mkstemp(dir=folder)
    os.close(handle)
    process = context.Process(target=_serve, args=(theirs, held, words, program), name="crucible-worker")
    with _environment(env):  # before its first import: libraries read the number of threads when they are loaded
        process.start()
    theirs.close()
    held.close()
    return _Worker(process, channel, lifeline, Path(words))


def _assign(state: _State[J, R], worker: _Worker) -> None:
    worker.index = state.take()
    worker.said_before = worker.words.stat().st_size
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a dead worker is noticed when it is listened to
        worker.channel.send(state.jobs[worker.index])


def _heard(workers: Sequence[_Worker]) -> list[_Worker]:
    """Workers that said something or are gone."""
    signs: list[Any] = [sign for worker in workers for sign in (worker.channel, worker.process.sentinel)]
    ready = wait(signs, timeout=_ATTENTION_S)
    return [w for w in workers if w.channel in ready or w.process.sentinel in ready or w.gone()]


def _listen(state: _State[J, R], worker: _Worker) -> None:
    """Takes what a worker said; one that is gone without a result has failed its job."""
    index = worker.index
    if worker.gone():
        _end_session(worker)  # a grandchild that holds the pipe open would keep us waiting for its end
    try:
        # What it had sent before it died still counts.
        while worker.channel.poll():
            kind, what = worker.channel.recv()
            if kind == "progress":
                state.tell("progress", index or 0, "", what)
                continue
            worker.index = None
            if index is not None:
                state.failed(index, what) if kind == "error" else state.finished(index, what)
            return
    except (EOFError, ConnectionResetError, BrokenPipeError):
        worker.process.join(GRACE_S)
    if worker.gone():
        _bury(worker)
        worker.index = None
        if index is not None:
            state.failed(index, _death(worker, state.attempts[index]))


def _death(worker: _Worker, attempt: int) -> MachineryFailed:
    code = worker.process.exitcode or 0
    how = f"ended with exit code {code}"
    if code < 0:
        how = f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}"
    words = worker.last_words()
    said = f"; its last words: {words}" if words else "; it said nothing"
    return MachineryFailed(
        f"the worker {how} in attempt {attempt}{said}",
        fix="Run the same command again: what is done stays done. If memory is short, use fewer workers.",
        facts={"exit_code": code, "attempt": attempt, "last_words": words},
    )


def _end_session(worker: _Worker) -> None:
    if worker.process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.process.pid, signal.SIGKILL)


def _bury(worker: _Worker) -> None:
    """Ends what a worker may have left behind, and closes its pipes."""
    _end_session(worker)
    for pipe in (worker.channel, worker.lifeline):
        pipe.close()


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        if worker.index is None:
            worker.channel.close()  # idle: it reads the end of its work
        elif not worker.gone():
            worker.process.terminate()  # busy: drafts are removed on the way out
    deadline = time.monotonic() + GRACE_S
    for worker in workers:
        wait([worker.process.sentinel], timeout=max(0.0, deadline - time.monotonic()))
        if not worker.gone():
            worker.process.kill()  # alone, in case it had no session of its own yet
        _bury(worker)
        worker.process.join()


@contextlib.contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- the worker's side ---------------------------------------------------------------------------------------------------


def _serve(channel: Connection, lifeline: Connection, words: str, program: bytes) -> None:
    os.setsid()  # a session of its own: Ctrl-C goes to the parent alone, and one signal reaches all that it starts
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwinds, so that no draft stays
    threading.Thread(target=_die_with_the_parent, args=(lifeline,), daemon=True).start()
    spoken = os.open(words, os.O_WRONLY | os.O_APPEND)
    os.dup2(spoken, 1)
    os.dup2(spoken, 2)
    faulthandler.enable()
    work = pickle.loads(program)  # noqa: S301  from our own parent
    while True:
        try:
            job = channel.recv()
        except EOFError:
            return
        try:
            answer = ("result", work(job, _reporter(channel)))
        except (SubjectFailed, MachineryFailed, Mistake) as error:
            answer = ("error", error)
        channel.send(answer)
        # Anything else is a bug or a signal: the traceback becomes the last words and the parent sees the death.


def _reporter(channel: Connection) -> Report:
    last = -_REPORT_EVERY_S

    def report(done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_EVERY_S or done >= of:
            last = now
            channel.send(("progress", (done, of)))

    return report


def _die_with_the_parent(lifeline: Connection) -> None:
    """Not PR_SET_PDEATHSIG: that one fires when the *thread* that started us ends, and spares what we started."""
    with contextlib.suppress(OSError):
        lifeline.poll(None)
    os.killpg(0, signal.SIGKILL)


ENGINES: dict[str, Engine] = {"processes": _processes, "inline": _inline}
"""By name, so that another machine or a cluster can be one more."""
