"""A bundle in a box <-> frames: a question opened, prefixes out, 256 numbers back. Knows no question, answer or exam.

The other end is `jail/serve.py`: a zygote that forks a fresh process for each question. It is started when it is first needed
and again when it has died; whatever the submission does to it fails the question that is being asked and no other. A
zygote that cannot start at all has not seen the submission yet: that is the machinery's failure.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from crucible.ari.box import Box, Job
from crucible.ari.boxes.runtime import LIBRARIES
from crucible.errors import MachineryFailed

SERVE = Path(__file__).resolve().parent / "jail" / "serve.py"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108  inside the box
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",  # the order of a set must not differ between two sittings
}
_NONCE = 16
_ANSWER = 1 + _NONCE + 256 * 4
_MOST = 1 + _NONCE + _ANSWER
_START_S = 120.0
_CLOSE_S = 10.0
_STEP_S = 0.2
_SCANNED = 1 << 20

Failure = Literal["load", "exception", "frame", "not finite", "ended", "question time", "total time"]
"""Why a question got no complete answer."""
Predict = Callable[[bytes, float], tuple[float, ...]]
"""(prefix, until) -> 256 finite numbers, or Failed."""


class Failed(Exception):
    """The submission's failure on one question."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure: Failure = failure


class Jail:
    """One submission in a box: as many questions as you like, one at a time. To be used by one thread."""

    def __init__(self, box: Box, bundle: Path, over: Callable[[], bool] = lambda: False) -> None:
        self.over = over
        self.starts = 0
        """How often a zygote was started; more than once means that the submission ended one."""
        self._box, self._bundle = box, bundle
        self._modules = named_libraries(bundle)
        self._zygote: _Zygote | None = None

    def __enter__(self) -> Jail:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def ready(self, ends: float) -> float:
        """A zygote waits for a question; returns the seconds that took."""
        if self._zygote is not None:
            return 0.0
        began = time.monotonic()
        self.starts += 1
        self._zygote = _Zygote(self._box, self._bundle, self._modules, self.over)
        if not self._zygote.hello(min(ends, began + _START_S)):
            self._drop()
            if self.over() or time.monotonic() >= ends:
                raise Failed("total time")
            raise MachineryFailed(
                f"the jail did not start in the {self._box.kind} box",
                fix="Look at the memory and disk of this machine; the submission was not touched yet.",
            )
        return time.monotonic() - began

    @contextlib.contextmanager
    def question(self, until: float) -> Iterator[Predict]:
        """A fresh process with the bundle loaded by `until`, for the time of the block."""
        self.ready(until)
        fault = self._opened(until)
        if fault is not None:  # whatever an earlier question did to the zygote must not hurt this one: a new zygote
            self._drop()
            self.ready(until)
            fault = self._opened(until)
        if fault is not None:
            raise MachineryFailed(
                f"the {self._box.kind} box could not make a world for a question: {fault}",
                fix="See `crucible ari doctor` for what works here.",
            )
        try:
            yield self._current().predict
        finally:
            self._close()

    def _opened(self, until: float) -> str | None:
        """Why no world could be made, if so; Failed where the bundle did not load into it."""
        opened = False
        try:
            fault = self._current().open(until)
            opened = fault is None
        finally:
            if not opened:
                self._close()
        return fault

    def _current(self) -> _Zygote:
        if self._zygote is None:
            raise Failed("ended")
        return self._zygote

    def _close(self) -> None:
        if self._zygote is not None and not self._zygote.close(time.monotonic() + _CLOSE_S):
            self._drop()

    def _drop(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.end()


def named_libraries(bundle: Path) -> tuple[str, ...]:
    """The libraries that the bundle's code names: imported once before the questions, not once in each of them."""
    found: set[str] = set()
    for path in bundle.rglob("*.py"):
        with path.open("rb") as stream:
            text = stream.read(_SCANNED)
        found |= {name for name in LIBRARIES if name.encode() in text}
    return tuple(sorted(found))


class _Zygote:
    """A process of `serve.py` and the two pipes to it."""

    def __init__(self, box: Box, bundle: Path, modules: tuple[str, ...], over: Callable[[], bool]) -> None:
        self._box, self._over = box, over
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        os.set_blocking(self._to, False)
        argv = (sys.executable, "-s", "-P", "-B", str(SERVE), str(bundle), *modules)
        with contextlib.ExitStack() as undo:
            for ours in (self._to, self._from):
                undo.callback(os.close, ours)
            try:
                self._running = box.start(Job("jail", argv, bundle, ENVIRONMENT, stdin=theirs_in, stdout=theirs_out))
            finally:
                os.close(theirs_in)
                os.close(theirs_out)
            self._closing = undo.pop_all()

    def end(self) -> None:
        with self._closing:
            self._box.end(self._running)

    def hello(self, until: float) -> bool:
        try:
            kind, body = self._ask(b"H", b"", until, "total time")
            return kind == b"H" and isinstance(json.loads(body), list)
        except Failed:
            return False

    def open(self, until: float) -> str | None:
        kind, body = self._ask(b"O", b"", until, "load")
        if kind == b"M":
            return body.decode(errors="replace")[:300]
        if kind != b"R" or body:
            raise Failed("load" if kind == b"E" else "frame")
        return None

    def predict(self, prefix: bytes, until: float) -> tuple[float, ...]:
        kind, body = self._ask(b"P", prefix, until, "question time")
        if kind == b"E":
            raise Failed("exception")
        if kind != b"L" or len(body) != 256 * 4:
            raise Failed("frame")
        numbers = struct.unpack("<256f", body)
        if not all(map(math.isfinite, numbers)):
            raise Failed("not finite")
        return numbers

    def close(self, until: float) -> bool:
        """Whether the zygote says that the question's process and everything it started are gone."""
        nonce = secrets.token_bytes(_NONCE)
        try:
            self._send(b"X" + nonce, until, "ended")
            while self._receive(until, "ended") != b"X" + nonce:
                pass  # what an ended question still had to say
        except Failed:
            return False
        return True

    def _ask(self, kind: bytes, body: bytes, until: float, late: Failure) -> tuple[bytes, bytes]:
        """One request and what answers it: of the zygote itself, or of the question's process with the same nonce."""
        nonce = secrets.token_bytes(_NONCE)
        self._send(kind + nonce + body, until, late)
        frame = self._receive(until, late)
        said, about, inner = frame[:1], frame[1 : 1 + _NONCE], frame[1 + _NONCE :]
        if said == b"G":
            raise Failed("frame" if inner == b"frame" else "ended")
        if said in (b"H", b"M") and about == nonce:
            return said, inner
        if said != b"C" or about != nonce or inner[1 : 1 + _NONCE] != nonce:
            raise Failed("frame")
        return inner[:1], inner[1 + _NONCE :]

    def _send(self, payload: bytes, until: float, late: Failure) -> None:
        frame = struct.pack(">I", len(payload)) + payload
        while frame:
            self._wait([], [self._to], until, late)
            try:
                frame = frame[os.write(self._to, frame) :]
            except BrokenPipeError:
                raise Failed("ended") from None

    def _receive(self, until: float, late: Failure) -> bytes:
        """One frame; a longer one than any is refused by its length, before a byte of it is read."""
        length = struct.unpack(">I", self._exactly(4, until, late))[0]
        if not 1 <= length <= _MOST:
            raise Failed("frame")
        return self._exactly(length, until, late)

    def _exactly(self, count: int, until: float, late: Failure) -> bytes:
        data = b""
        while len(data) < count:
            self._wait([self._from], [], until, late)
            chunk = os.read(self._from, count - len(data))
            if not chunk:
                raise Failed("ended")
            data += chunk
        return data

    def _wait(self, reading: list[int], writing: list[int], until: float, late: Failure) -> None:
        while not any(select.select(reading, writing, [], max(0.0, min(_STEP_S, until - time.monotonic())))):
            if time.monotonic() >= until:
                raise Failed(late)
            if self._over():
                raise Failed("total time")
