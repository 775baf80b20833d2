"""One compute call: a job and a grant -> its output as it comes, and how it ended. Decides neither grant nor lease.

Output is passed on up to a cap; what is beyond is counted and hashed but dropped. The call ends when the job does, when
its grant is used up, when the one who asked has hung up, or when the harness stops it; in each case everything the job
started is dead before `Spent` is returned.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from crucible.ari.box import Box, Job, Running

KILLED_AT_LIMIT = 124
"""The exit code for a job that used up its grant, as `timeout` of coreutils gives it."""
_STEP_S = 0.1
_CHUNK = 65536
_DRAIN_S = 1.0

End = Literal["exited", "limit", "client left", "stopped"]


@dataclass(frozen=True)
class Spent:
    """What a call cost and how it ended."""

    end: End
    exit: int
    used_s: float
    peak_bytes: int
    output_bytes: int
    output_sent_bytes: int
    output_sha256: str


class _Gone(Exception):
    """The client no longer reads."""


def compute(
    box: Box,
    job: Job,
    granted_s: float,
    *,
    output_bytes: int,
    send: Callable[[bytes, float], None],
    client: socket.socket,
    stop: threading.Event,
) -> Spent:
    """Runs the job; `send(data, seconds)` passes output on and raises OSError if the client does not take it in time."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    until = began + granted_s
    flow = _Flow(output_bytes, send)
    try:
        try:
            running = box.start(replace(job, stdout=theirs, stderr=theirs))
        finally:
            os.close(theirs)
        end: End = "stopped"
        try:
            end = _follow(running, ours, flow, until, client, stop)
            if end == "exited" and running.wait(max(0.0, until - time.monotonic())) is None:
                end = "limit"  # it closed its output and went on in silence
            if stop.is_set():
                end = "stopped"  # whatever was seen of it first: the client and the job die with the run
        finally:
            ended = box.end(running)
        used = time.monotonic() - began
        _drain(ours, flow)
    finally:
        os.close(ours)
    status = {"limit": KILLED_AT_LIMIT}.get(end, ended.status)
    return Spent(end, status, used, ended.peak_bytes, flow.bytes, flow.sent, flow.sha256)


def _follow(
    running: Running, ours: int, flow: _Flow, until: float, client: socket.socket, stop: threading.Event
) -> End:
    """Until the job ends or something ends it; children that it leaves behind do not prolong the call."""
    while not stop.is_set():
        if running.wait(0.0) is not None:
            return "exited"
        left = until - time.monotonic()
        if left <= 0:
            return "limit"
        ready, _, _ = select.select([ours, client.fileno()], [], [], min(left, _STEP_S))
        if client.fileno() in ready and not _still_there(client):
            return "client left"
        if ours not in ready:
            continue
        data = os.read(ours, _CHUNK)
        if not data:
            return "exited"
        try:
            flow.pass_on(data, until - time.monotonic())
        except _Gone:
            return "client left" if time.monotonic() < until else "limit"
    return "stopped"


def _still_there(client: socket.socket) -> bool:
    """A readable connection has either more bytes, which nobody asked for, or its end."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _drain(ours: int, flow: _Flow) -> None:
    """What still stands in the pipe of a job that is dead; bounded, in case somebody unknown holds the other end."""
    os.set_blocking(ours, False)
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until:
        try:
            data = os.read(ours, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            return
        try:
            flow.pass_on(data, _DRAIN_S)
        except _Gone:
            flow.deaf = True


class _Flow:
    """Counts and hashes all output, passes on the first part of it."""

    def __init__(self, cap: int, send: Callable[[bytes, float], None]) -> None:
        self._cap, self._send = cap, send
        self._hash = hashlib.sha256()
        self.bytes = self.sent = 0
        self.deaf = False

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def pass_on(self, data: bytes, seconds: float) -> None:
        self._hash.update(data)
        self.bytes += len(data)
        share = b"" if self.deaf else data[: max(0, self._cap - self.sent)]
        if not share:
            return
        try:
            self._send(share, seconds)
        except OSError:
            self.deaf = True
            raise _Gone from None
        self.sent += len(share)
