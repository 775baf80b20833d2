"""The audited door: requests of the agent over a unix socket -> responses, compute and submissions, one ledger line each.

HTTP, so that a POSIX shell with curl can speak it (`images/controller/runner`). `POST /call` carries the command and its
arguments as form fields and answers as text that begins with the remaining time; output of a job streams. `POST /exit`
then gives the exit code of that call, out of band. It decides nothing about time (`clock.py`), isolation (`box.py`) or
selection (`submit.py`).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crucible.ari.box import Box, Job
from crucible.ari.call import Spent, compute
from crucible.ari.clock import Clock
from crucible.ari.door import Exchange, Request, Server
from crucible.ari.submit import Book, Candidate, candidates
from crucible.ari.track import Track
from crucible.errors import MachineryFailed, SubjectFailed
from crucible.kernel import ledger

CLIENT = Path(__file__).parent / "images" / "controller" / "runner"
REFUSED, USAGE, BROKEN, BUSY = 1, 2, 70, 75

HELP = """the one door to compute and to the submission book
  runner run SCRIPT [ARGS…]          run a Python script of the workspace; its output streams, its exit code passes through
  runner time_left                   how long is left, and until the reserve
  runner submit DIR [--note TEXT]    snapshot a candidate, with public feedback
  runner list                        every submission so far
  runner promote ID                  make a candidate the official one (the last promotion counts)
  runner finalize ID                 promote it and close the book
  runner help                        this text
exit codes: a job's own; 124 its grant was used up; 75 another job is running; 1 refused; 2 wrong use; 69 the run is over
"""


class RequestRefused(SubjectFailed):
    """A request the protocol does not allow; `status` is the exit code the client will show."""

    def __init__(self, message: str, *, fix: str, status: int = REFUSED) -> None:
        super().__init__(message, fix=fix)
        self.status = status


@dataclass
class _Call:
    done: threading.Event = field(default_factory=threading.Event)
    exit: int = BROKEN
    sentence: str = ""


class Runner:
    """Serves one run from `open` to `close`; `fault` is set when the machinery failed in a request.

    Once `stop` is set, the call in flight is ended and no further one is started.
    """

    def __init__(
        self,
        *,
        box: Box,
        clock: Clock,
        track: Track,
        book: Book,
        workspace: Path,
        audit: Path,
        job_env: Mapping[str, str],
        stop: threading.Event | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.fault: MachineryFailed | None = None
        self.calls = 0
        self._box, self._clock, self._track, self._book = box, clock, track, book
        self._workspace, self._audit = workspace.resolve(), audit
        self._job_env, self._notice = dict(job_env), notice
        self._lease = threading.Lock()
        self._stop = stop or threading.Event()
        self._calls: dict[str, _Call] = {}
        self._calls_lock = threading.Lock()
        self._commands: dict[str, Callable[[Exchange], None]] = {
            "run": self._run,
            "time_left": self._time_left,
            "submit": self._submit,
            "list": self._list,
            "promote": self._promote,
            "finalize": self._finalize,
            "help": self._help,
        }

    def open(self) -> Path:
        """Begins to serve; returns the folder with `runner.sock` and `bin/runner`, short enough for a socket's address."""
        self._folder = Path(tempfile.mkdtemp(prefix="ari-", dir=None if len(tempfile.gettempdir()) < 60 else "/tmp"))  # noqa: S108
        (self._folder / "bin").mkdir()
        shutil.copyfile(CLIENT, self._folder / "bin" / "runner")
        (self._folder / "bin" / "runner").chmod(0o755)
        self._server = Server(str(self._folder / "runner.sock"), self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="runner", daemon=True).start()
        return self._folder

    def close(self) -> None:
        """Returns when every request has been answered or cut off, and has its line in the audit."""
        self._stop.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- what the HTTP side asks ---------------------------------------------------------------------------------------

    def prefix(self) -> str:
        return self._clock.prefix()

    def serve(self, exchange: Exchange) -> None:
        """Carries out one request; when it returns, its audit line is on disk and its exit code can be asked for."""
        at = self._clock.used()
        call = self._admit(exchange)
        if call is None:
            exchange.refused, exchange.exit = "this call id was used before", REFUSED
            exchange.say(f"refused: {exchange.refused}\n")
            self._write_down(exchange, at)
            return
        try:
            self._carry_out(exchange)
            self._write_down(exchange, at)
            call.exit, call.sentence = exchange.exit, exchange.sentence and self.prefix() + exchange.sentence
        finally:
            call.done.set()

    def verdict(self, call_id: str) -> tuple[int, str] | None:
        """The exit code and closing sentence of a call, once; None for a call that nobody made."""
        with self._calls_lock:
            call = self._calls.get(call_id)
        if call is None or not call.done.wait(15.0):
            return None
        return call.exit, call.sentence

    def turn_away(self, exchange: Exchange) -> None:
        self._write_down(exchange, self._clock.used())

    def _write_down(self, exchange: Exchange, at_s: float) -> None:
        request = exchange.request
        body: dict[str, Any] = {
            "call": ascii(request.call)[1:-1],
            "command": ascii(request.command)[1:-1],
            "args": [ascii(argument)[1:-1] for argument in request.args],
            "folder": ascii(request.folder)[1:-1],
            "at_s": round(at_s, 3),
            "left_s": round(self._clock.left(), 3),
            "granted_s": exchange.granted_s and round(exchange.granted_s, 3),
            "exit": exchange.exit,
            "refused": exchange.refused,
        }
        if exchange.spent:
            body |= {name: round(v, 3) if isinstance(v, float) else v for name, v in asdict(exchange.spent).items()}
        ledger.append(self._audit, "runner.request", body)
        what = f"{request.command} {' '.join(request.args[:1])}".strip()
        self._notice(f"runner {what}: {exchange.refused or exchange.sentence or 'ok'}")

    def broke(self, fault: MachineryFailed) -> None:
        """Something of ours failed in a request: the run will end as invalid."""
        self.fault = self.fault or fault

    def _admit(self, exchange: Exchange) -> _Call | None:
        with self._calls_lock:
            self.calls += 1
            if exchange.request.call in self._calls:
                return None
            call = self._calls[exchange.request.call] = _Call()
            return call

    def _carry_out(self, exchange: Exchange) -> None:
        command = self._commands.get(exchange.request.command)
        try:
            if command is None:
                raise _misuse(f"{exchange.request.command!a} is not a command")
            command(exchange)
        except SubjectFailed as refusal:
            exchange.refused = refusal.message
            exchange.exit = refusal.status if isinstance(refusal, RequestRefused) else REFUSED
            exchange.say(f"refused: {refusal.message}\n  {refusal.fix}\n")

    # --- the commands --------------------------------------------------------------------------------------------------

    def _run(self, exchange: Exchange) -> None:
        args = exchange.request.args
        if not args:
            raise _misuse("run needs a script")
        folder = self._beneath(exchange.request.folder, "")
        script = self._beneath(exchange.request.folder, args[0])
        if not script.is_file():
            raise RequestRefused(f"{args[0]!a} is not a file of the workspace", fix="Give a Python script.")
        if self._book.state.finalized is not None:
            raise RequestRefused("this run is finalized", fix="Nothing: its choice is made.")
        if not self._lease.acquire(blocking=False):
            raise RequestRefused("busy: another job is running", fix="Wait for it to end.", status=BUSY)
        try:
            if self._stop.is_set():
                raise RequestRefused("the run is over", fix="Nothing: it is over.")
            exchange.granted_s = granted = self._clock.grant()
            # "./": a script called "-c" is a file too.
            argv = (sys.executable, f"./{os.path.relpath(script, folder)}", *args[1:])
            exchange.say(f"run {ascii(args[0])[1:-1]}: granted {granted:.1f} s\n")
            exchange.spent = spent = compute(
                self._box,
                Job("trainer", argv, folder, self._job_env),
                granted,
                output_bytes=self._track.output_bytes,
                send=exchange.stream,
                client=exchange.client,
                stop=self._stop,
            )
        finally:
            self._lease.release()
        exchange.exit = spent.exit
        exchange.sentence = _closing(spent, granted)

    def _time_left(self, exchange: Exchange) -> None:
        left, window = self._clock.left(), self._clock.until_reserve()
        cap = min(self._track.call_cap_s, window)
        exchange.say(f"{left:.0f} s left; compute for another {window:.0f} s, {cap:.0f} s in one call\n")

    def _submit(self, exchange: Exchange) -> None:
        folder, note = _submit_arguments(exchange.request.args)
        made = self._book.submit(self._beneath(exchange.request.folder, folder), note)
        if made.status == "rejected":
            raise RequestRefused(f"{made.id} rejected: {made.reason}", fix="Correct it and submit again.")
        exchange.say(f"accepted {_line(made)}\n")

    def _list(self, exchange: Exchange) -> None:
        found = candidates(self._book.state)
        exchange.say("\n".join([f"{len(found)} submissions", *map(_line, found)]) + "\n")

    def _promote(self, exchange: Exchange) -> None:
        wanted = _one(exchange.request)
        self._book.promote(wanted)
        exchange.say(f"promoted {wanted}: it is graded if nothing else is promoted before the deadline\n")

    def _finalize(self, exchange: Exchange) -> None:
        wanted = _one(exchange.request)
        self._book.finalize(wanted)
        exchange.say(f"finalized {wanted}: it will be graded; the book is closed\n")

    def _help(self, exchange: Exchange) -> None:
        exchange.say(HELP)

    def _beneath(self, folder: str, name: str) -> Path:
        """A path of the workspace as it really is, links followed; outside of it nothing can be named."""
        asked = Path(os.path.join(self._workspace, folder, name))  # noqa: PTH118  an absolute name must win, then fail
        try:
            found = asked.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a loop of links
            raise RequestRefused(f"{name or folder!a} is not in the workspace", fix="Check the path.") from None
        if not found.is_relative_to(self._workspace):
            raise RequestRefused(f"{name or folder!a} is outside the workspace", fix="Work in the workspace.")
        return found


def _one(request: Request) -> str:
    if len(request.args) != 1:
        raise _misuse(f"{request.command} needs exactly one submission id")
    return request.args[0]


def _submit_arguments(args: tuple[str, ...]) -> tuple[str, str]:
    rest, note = list(args), ""
    for place, argument in enumerate(args):
        if argument == "--note" and place + 1 < len(args):
            note, rest = args[place + 1], [*args[:place], *args[place + 2 :]]
            break
        if argument.startswith("--note="):
            note, rest = argument.removeprefix("--note="), [*args[:place], *args[place + 1 :]]
            break
    if len(rest) != 1:
        raise _misuse("submit needs one folder, and --note TEXT if you like")
    return rest[0], note


def _misuse(message: str) -> RequestRefused:
    return RequestRefused(message, fix="See `runner help`.", status=USAGE)


def _closing(spent: Spent, granted: float) -> str:
    how = {
        "exited": f"exit {spent.exit}",
        "limit": f"ended: it had used up its {granted:.1f} s",
        "client left": "ended: the one who asked has hung up",
        "stopped": "ended: the run is over",
    }[spent.end]
    dropped = spent.output_bytes - spent.output_sent_bytes
    cut = f"; {dropped:,} of {spent.output_bytes:,} bytes of output dropped" if dropped else ""
    return f"{how} after {spent.used_s:.1f} s{cut}"


def _line(one: Candidate) -> str:
    if one.status == "rejected":
        return f"{one.id} rejected: {one.reason}"
    public = "no feedback" if one.public_questions is None else f"public {one.public_passed} of {one.public_questions}"
    marks = " official" if one.official else " promoted" if one.promoted else ""
    note = f" ({one.note})" if one.note else ""
    return f"{one.id}: {one.bytes:,} bytes, sha256 {one.sha256}, {public}{marks}{note}"
