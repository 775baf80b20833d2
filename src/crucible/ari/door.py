"""Bytes of an HTTP connection -> a checked Request, and the desk's answer -> bytes. Knows no command.

Everything here comes from the agent: sizes are bounded before anything is read, arguments stay a list, and what is not a
request gets its refusal and its audit line like any other.
"""

from __future__ import annotations

import os
import socket
import socketserver
import sys
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import PurePosixPath
from typing import Any, Protocol

from crucible.ari.call import Spent
from crucible.errors import MachineryFailed

BODY_BYTES = 1 << 20
ARGUMENT_BYTES = 100_000
ALL_ARGUMENTS_BYTES = 500_000
"""Below what the kernel takes in one exec: an argument list that is too long must be the agent's mistake, not our failure."""


@dataclass(frozen=True)
class Request:
    """What the agent asked: a command and its arguments, and the folder of the workspace it stood in."""

    call: str
    command: str
    args: tuple[str, ...] = ()
    folder: str = ""


@dataclass
class Exchange:
    """One request on its way: what it asked, what it was granted, how it ended. Becomes one line of the audit."""

    request: Request
    say: Callable[[str], None]
    stream: Callable[[bytes, float], None]
    client: socket.socket
    granted_s: float | None = None
    spent: Spent | None = None
    exit: int = 0
    refused: str | None = None
    sentence: str = ""
    """What the client shows on stderr with the exit code."""


class Desk(Protocol):
    """Who answers behind the door."""

    def prefix(self) -> str: ...

    def serve(self, exchange: Exchange) -> None: ...

    def verdict(self, call_id: str) -> tuple[int, str] | None: ...

    def turn_away(self, exchange: Exchange) -> None:
        """Writes the audit line of something that was not a request."""

    def broke(self, fault: MachineryFailed) -> None: ...


class _NotARequest(Exception):
    pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """One thread a request; closing waits for all of them, so that no audit line is lost."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, address: str, desk: Desk) -> None:
        self.desk = desk
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Cuts connections that are still open: their threads see the end at once."""
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # already closed from the other end
                    continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is its own business; anything else in a thread of ours is the machinery's failure."""
        error = sys.exc_info()[1]
        if isinstance(error, MachineryFailed):
            self.desk.broke(error)
        elif not isinstance(error, ConnectionError | TimeoutError):
            fix = "Report this: it is a bug of the harness."
            self.desk.broke(MachineryFailed(f"the runner broke: {type(error).__name__}: {error}", fix=fix))


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request. The first words of every answer are ours: the remaining time."""

    protocol_version = "HTTP/1.1"
    timeout = 10.0
    server: Server
    _begun = False

    def do_POST(self) -> None:
        self.close_connection = True
        try:
            fields = self._fields()
            if self.path == "/exit":
                self._exit(fields)
            elif self.path == "/call":
                self._call(_request(fields))
            else:
                raise _NotARequest("there is /call and /exit, nothing else")
        except _NotARequest as problem:
            self._turn_away(str(problem))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The library's way of saying that this was not a request it knows."""
        self.close_connection = True
        self._turn_away(f"not a request ({code})")

    def log_message(self, format: str, *args: Any) -> None:
        """The audit ledger is the log."""

    def _call(self, request: Request) -> None:
        exchange = Exchange(request, self._say, self._chunk, self.connection)
        self._begin()
        self.server.desk.serve(exchange)
        self._end()

    def _exit(self, fields: list[tuple[str, str]]) -> None:
        verdict = self.server.desk.verdict(dict(fields).get("call", ""))
        if verdict is None:
            raise _NotARequest("no such call")
        self._begin()
        self._say(f"{verdict[0]} {verdict[1]}\n", prefix=False)
        self._end()

    def _turn_away(self, problem: str) -> None:
        exchange = Exchange(Request("", ""), self._say, self._chunk, self.connection, exit=2, refused=problem)
        self.server.desk.turn_away(exchange)
        if not self._begun:
            self.request_version = "HTTP/1.1"
            self._begin()
        self._say(f"refused: {problem}\n")
        self._end()

    def _fields(self) -> list[tuple[str, str]]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or not 0 < int(length) <= BODY_BYTES:
            raise _NotARequest(f"a body of 1 to {BODY_BYTES} bytes is needed")
        body = self.rfile.read(int(length))
        try:
            return urllib.parse.parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="surrogateescape", max_num_fields=20_000
            )
        except ValueError as error:
            raise _NotARequest(f"the body is not a form ({type(error).__name__})") from None

    def _begin(self) -> None:
        self._begun = True
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()

    def _say(self, text: str, *, prefix: bool = True) -> None:
        words = (self.server.desk.prefix() if prefix else "") + text
        try:
            self._chunk(words.encode(errors="backslashreplace"), 10.0)
        except OSError:  # nobody listens; the audit line is written all the same
            return

    def _chunk(self, data: bytes, seconds: float) -> None:
        self.connection.settimeout(max(0.05, seconds))
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _end(self) -> None:
        try:
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return


def _request(fields: list[tuple[str, str]]) -> Request:
    """The fields as a request; anything that could not be executed anyway is refused here."""
    named = {name: value for name, value in fields if name != "arg"}
    args = tuple(value for name, value in fields if name == "arg")
    sizes = [len(os.fsencode(argument)) for argument in args]
    if any("\0" in value for _, value in fields):
        raise _NotARequest("an argument holds a NUL byte")
    if sum(sizes) > ALL_ARGUMENTS_BYTES or max(sizes, default=0) > ARGUMENT_BYTES:
        raise _NotARequest(f"arguments are longer than {ARGUMENT_BYTES} bytes, or {ALL_ARGUMENTS_BYTES} in all")
    call, command = named.get("call", ""), named.get("command", "")
    if not 16 <= len(call) <= 64 or len(command) > 64:
        raise _NotARequest("call must be 16 to 64 characters and command at most 64")
    inside = _relative(named.get("cwd", ""), named.get("root", ""))
    return Request(call, command, args, inside)


def _relative(path: str, root: str) -> str:
    """Where the agent stood, as it sees its own workspace; outside of it counts as its top. Checked again by the runner."""
    if root and PurePosixPath(path).is_relative_to(root):
        return str(PurePosixPath(path).relative_to(root))
    return ""
