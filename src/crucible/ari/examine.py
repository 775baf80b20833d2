"""A submission and prompts -> the bytes it answers, greedily, one process per question. Knows no answer, public or hidden.

It is given prompts and lengths only, so no answer can reach the submission. It owns the stepping: a prefix of at
most the track's context goes out, 256 numbers come back, the largest wins and the lowest byte on ties; exactly the asked
number of bytes, never stopping early, and the length is never announced. Whatever the submission does wrong fails that
question and no other; only a box that cannot start is the machinery's failure.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crucible.ari.box import Box, Job
from crucible.ari.track import Track

SERVE = Path(__file__).parent / "jail" / "serve.py"
_LOGITS = 1 + 256 * 4

Failure = Literal["load", "exception", "frame", "not finite", "ended", "question time", "total time"]
"""Why a question got no complete answer."""


@dataclass(frozen=True)
class Ask:
    """What the submission may know of a question, plus how many bytes to step, which it may not."""

    id: str
    prompt: bytes
    length: int


@dataclass(frozen=True)
class Reply:
    id: str
    answer: bytes
    failure: Failure | None
    seconds: float


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure: Failure = failure


def examine(
    box: Box,
    bundle: Path,
    asks: Sequence[Ask],
    track: Track,
    *,
    total_s: float | None = None,
    over: Callable[[], bool] = lambda: False,
) -> list[Reply]:
    """Every question in the given order; what does not fit into the total time, or comes after `over()`, fails as that."""
    ends = time.monotonic() + (track.grade_limit_s if total_s is None else min(total_s, track.grade_limit_s))
    return [_one(box, bundle, ask, track, ends, over) for ask in asks]


def _one(box: Box, bundle: Path, ask: Ask, track: Track, ends: float, over: Callable[[], bool]) -> Reply:
    started = time.monotonic()
    if started >= ends or over():
        return Reply(ask.id, b"", "total time", 0.0)
    answer = bytearray()
    try:
        with _Talk(box, bundle) as talk:
            if talk.receive(1, min(ends, started + track.load_limit_s), "load") != b"R":
                raise _Failed("load")
            until = min(ends, time.monotonic() + track.question_limit_s)
            while len(answer) < ask.length:
                talk.send((ask.prompt + answer)[-track.context_bytes :], until)
                answer.append(_largest(talk.receive(_LOGITS, until, "question time")))
    except _Failed as failed:
        late = failed.failure in ("load", "question time") and time.monotonic() >= ends
        return Reply(ask.id, bytes(answer), "total time" if late else failed.failure, time.monotonic() - started)
    return Reply(ask.id, bytes(answer), None, time.monotonic() - started)


def _largest(frame: bytes) -> int:
    if frame[:1] == b"E":
        raise _Failed("exception")
    if frame[:1] != b"L" or len(frame) != _LOGITS:
        raise _Failed("frame")
    numbers = struct.unpack("<256f", frame[1:])
    if not all(map(math.isfinite, numbers)):
        raise _Failed("not finite")
    return numbers.index(max(numbers))


class _Talk:
    """One process of the submission and the two pipes to it."""

    def __init__(self, box: Box, bundle: Path) -> None:
        self._box = box
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        os.set_blocking(self._to, False)
        argv = (sys.executable, "-I", "-B", str(SERVE), str(bundle))
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        with contextlib.ExitStack() as undo:
            for ours in (self._to, self._from):
                undo.callback(os.close, ours)
            try:
                self._running = box.start(Job("jail", argv, bundle, env, stdin=theirs_in, stdout=theirs_out))
            finally:
                os.close(theirs_in)
                os.close(theirs_out)
            self._closing = undo.pop_all()

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *_: object) -> None:
        with self._closing:
            self._box.end(self._running)

    def send(self, prefix: bytes, until: float) -> None:
        frame = struct.pack(">I", len(prefix)) + prefix
        while frame:
            _, ready, _ = select.select([], [self._to], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise _Failed("question time")
            try:
                frame = frame[os.write(self._to, frame) :]
            except BrokenPipeError:
                raise _Failed("ended") from None

    def receive(self, most: int, until: float, late: Failure) -> bytes:
        """One frame of at most `most` bytes: a longer one is refused by its length, before a byte of it is read."""
        length = struct.unpack(">I", self._exactly(4, until, late))[0]
        if not 1 <= length <= most:
            raise _Failed("frame")
        return self._exactly(length, until, late)

    def _exactly(self, count: int, until: float, late: Failure) -> bytes:
        data = b""
        while len(data) < count:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise _Failed(late)
            chunk = os.read(self._from, count - len(data))
            if not chunk:
                raise _Failed("ended")
            data += chunk
        return data
