"""Walk 1, the hour: track, agent and seed -> Finished, with a terminal line in the ledger whatever happens. Never sees the exam.

Read it from `run()` down. The run's id is in the ledger before anything starts; the clock starts with the agent; the
agent ends, or the deadline ends it; then everything of the run is dead, and only then is the end written down. What the
agent does never makes a run invalid; what happens to the harness does.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from crucible.ari.box import Box, Ended, Job
from crucible.ari.clock import Clock, boottime
from crucible.ari.exam.questions import Question, load
from crucible.ari.examine import Ask, examine, opened
from crucible.ari.rundir import Cause, Finished, Pending, Plan, RunDir
from crucible.ari.runner import Runner
from crucible.ari.submit import Book, State, replay
from crucible.ari.track import PUBLIC, Track, brief_files, pin
from crucible.documents import write_json
from crucible.errors import IntegrityBroken, MachineryFailed, SubmissionRefused
from crucible.kernel import digest, ledger
from crucible.kernel.record import Invalid, make, to_builtins

Notice = Callable[[str], None]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_POLL_S = 0.2


class Agent(Protocol):
    """Whoever is measured: an identity, and files with the command that runs them."""

    @property
    def name(self) -> str: ...

    @property
    def subject(self) -> dict[str, str]: ...

    @property
    def facts(self) -> dict[str, str]: ...

    def install(self, folder: Path) -> tuple[str, ...]: ...


def run(
    track: Track,
    agent: Agent,
    seed: int,
    root: Path,
    box: Box,
    notice: Notice = lambda text: None,
    now: Callable[[], float] = boottime,
) -> RunDir:
    """One run under a new id; its folder, in which `finished.json` says how it ended."""
    place, plan = _allocate(track, agent, seed, root, box)
    notice(f"run {plan.run}: {track.budget_s:g} s from the agent's first instruction")
    clock = Clock(track, now)
    hour = _Hour(place, plan, box, clock, notice)
    closed = False
    try:
        argv = _prepare(place, plan, agent)
        hour.live(argv)
        _close(place, plan, agent, hour)
        closed = True
    except MachineryFailed as fault:
        _close(place, plan, agent, hour, "machinery failed", fault.message)
        closed = True
    finally:
        if not closed:  # Ctrl-C, SIGTERM or a bug: the id still ends in a terminal state
            _close(place, plan, agent, hour, "harness stopped", "the harness was stopped before the run had ended")
    return place


def _allocate(track: Track, agent: Agent, seed: int, root: Path, box: Box) -> tuple[RunDir, Plan]:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", agent.name)[:40]
    run_id = f"{track.name}-{name}-{seed}-{secrets.token_hex(4)}"
    plan = Plan(
        run_id, track, agent.subject, seed, pin(track, box=box.kind, notes={"limits": box.limits(), **agent.facts})
    )
    place = RunDir(root.resolve() / run_id)
    body = {"run": run_id, "track": track.name, "subject": plan.subject, "seed": seed, "pin": plan.pin.digest}
    ledger.append(place.ledger, "run.allocated", body)
    return place, plan


def _prepare(place: RunDir, plan: Plan, agent: Agent) -> tuple[str, ...]:
    """A fresh workspace with what every agent is given, and the agent's own files beside it."""
    try:
        for name, source in brief_files().items():
            target = place.workspace / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        place.snapshots.mkdir()
        argv = agent.install(place.agent)
        place.transcript.touch()
    except OSError as error:
        raise MachineryFailed(
            f"{place.path}: the run could not be prepared: {error.strerror or error}", fix="Check the disk."
        ) from error
    write_json(place.plan, plan)
    return argv


class _Hour:
    """The conversation between agent and harness, from the first instruction to the last kill."""

    def __init__(self, place: RunDir, plan: Plan, box: Box, clock: Clock, notice: Notice) -> None:
        self.clock = clock
        self.calls = 0
        self.seconds = 0.0
        self.ended: Ended | None = None
        self._place, self._plan, self._box, self._notice = place, plan, box, notice
        self._over = threading.Event()

    def live(self, argv: tuple[str, ...]) -> None:
        with self._serving() as (runner, folder), self._place.transcript.open("ab") as transcript:
            env = {
                **_basic_env(self._plan.seed, self._place.workspace),
                "PATH": f"{folder / 'bin'}:{SYSTEM_PATH}",
                "RUNNER_SOCKET": str(folder / "runner.sock"),
                "RUNNER_WORKSPACE": str(self._place.workspace),
            }
            handle = transcript.fileno()
            job = Job("controller", argv, self._place.workspace, env, stdout=handle, stderr=handle)
            self.clock.start()
            agent = self._box.start(job)
            try:
                while self.ended is None and self.clock.left() > 0 and runner.fault is None:
                    self.ended = agent.wait(min(_POLL_S, self.clock.left()))
            finally:
                self.seconds = self.clock.used()
        if runner.fault is not None:
            raise runner.fault

    @contextlib.contextmanager
    def _serving(self) -> Iterator[tuple[Runner, Path]]:
        place, track = self._place, self._plan.track
        public = list(load(PUBLIC).questions)
        runner = Runner(
            box=self._box,
            clock=self.clock,
            track=track,
            book=Book(place.history, place.snapshots, track, self.clock, self._feedback(public)),
            workspace=place.workspace,
            audit=place.audit,
            job_env={**_basic_env(self._plan.seed, place.workspace), "PYTHONUNBUFFERED": "1"},
            stop=self._over,
            notice=lambda text: self._notice(self.clock.prefix() + text),
        )
        folder = runner.open()
        try:
            yield runner, folder
        finally:
            self._over.set()
            self._box.close()  # the agent, its call and feedback in flight: closing the runner then waits for nobody
            runner.close()
            self._box.close()  # what a last request may have started in between
            self.calls = runner.calls

    def _feedback(self, public: list[Question]) -> Callable[[Path], tuple[int, int]]:
        """Scoring on the public set, on the agent's own clock. Information for the agent; it selects nothing."""
        asks = [Ask(question.id, question.prompt, len(question.answer)) for question in public]

        def score(snapshot: Path) -> tuple[int, int]:
            with opened(snapshot, self._plan.track) as folder:
                left, over = self.clock.left(), self._over.is_set
                replies = examine(self._box, folder, asks, self._plan.track, total_s=left, over=over)
            if over() or any(reply.failure == "total time" for reply in replies):
                # A score over the questions that happened to be asked would be a false one.
                raise SubmissionRefused("the time was over before the feedback was complete", fix="Promote it anyway.")
            passed = [
                not reply.failure and reply.answer == question.answer
                for reply, question in zip(replies, public, strict=True)
            ]
            return sum(passed), len(public)

        return score


def _basic_env(seed: int, home: Path) -> dict[str, str]:
    """The whole environment of the agent and its jobs: nothing of the host's leaks in."""
    return {"PATH": SYSTEM_PATH, "HOME": str(home), "LANG": "C.UTF-8", "ARI_SEED": str(seed), "OMP_NUM_THREADS": "1"}


def _close(
    place: RunDir, plan: Plan, agent: Agent, hour: _Hour, cause: Cause | None = None, reason: str | None = None
) -> None:
    """The terminal state: on disk and in the ledger; an invalid run has its record at once, nobody will judge it."""
    state = _history(place, cause)
    official = None if cause else state.official
    outcome: Pending = "invalid" if cause else "pending" if official else "empty"
    finished = Finished(
        run=plan.run,
        outcome=outcome,
        official_submission=official.id if official else None,
        artefact=official.sha256 if official else None,
        cause=cause,
        reason=reason or (None if official else "nothing was promoted"),
        seconds=round(hour.seconds, 3),
        calls=hour.calls,
        submissions=len(state.submissions),
        agent_exit=hour.ended.status if hour.ended else None,
        transcript_sha256=digest.of_file(place.transcript) if place.transcript.exists() else digest.EMPTY,
        history_head=ledger.verify(place.history).digest if place.history.exists() and not cause else ledger.GENESIS,
    )
    if place.path.exists():
        write_json(place.finished, finished)
    lines: list[tuple[str, object]] = [("run.finished", finished)]
    if cause:
        record = make(
            pin=plan.pin,
            subject=plan.subject,
            artefact=None,
            seed=plan.seed,
            outcome=Invalid(cause),
            metrics={},
            names=(),
            detail={"run": plan.run, "reason": reason, **agent.facts},
        )
        lines.append(("record", to_builtins(record)))
    ledger.append_all(place.ledger, lines)


def _history(place: RunDir, cause: Cause | None) -> State:
    """A run that is invalid anyway is closed even if its history cannot be read any more."""
    try:
        return replay(place.history)
    except IntegrityBroken:
        if cause is None:
            raise
        return State()
