"""One bundle, many questions: a zygote that has loaded the pinned runtime, and for each question new processes in a new world.

    python -s -P -B serve.py BUNDLE [MODULE ...]

The zygote (this program, our code only) imports the named modules once. For each question it forks a relay, which makes new
namespaces (processes, IPC, mounts, network) and forks into them the process that will answer: with an empty /tmp and
/dev/shm, a user id that owns nothing, no capability, a system-call filter and two pipes. Only then does that one load the
bundle. It can neither see, signal, trace nor write to the relay, the zygote or their pipes: they do not exist in its world.
The prefixes pass through the relay, after it has forked, and never through the zygote: no memory that a later question
inherits has held any of them. When a question is over the relay kills its first process, and the kernel all others of that
world with it; then the relay ends too. A relay that dies otherwise ends the zygote, and the examiner starts a new one.
How the world is made is said by the box in JAIL_WORLD; without it (the local box) a question is a plain process.

Frames are a length (4 bytes, big-endian) and that many bytes: a kind, the nonce of the request (16 bytes), a body.
  in   H hello   O a new question   P predict: body is the prefix   X end the question
  out  H modules C what the question's process said   G it is gone: body is why   X it has ended   M no world: body is why
The question's process speaks the same frames with the relay: R when it is loaded, L with 256 little-endian float32, E when
the bundle raised. They are passed on in C frames, at most one for each request, and nothing else of them.
"""

import base64
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import struct
import sys
from typing import Any, NoReturn

MOST = 1 + 16 + 4 * 256
World = dict[str, Any]
LIBC = ctypes.CDLL(None, use_errno=True)
NAMESPACES = 0x08000000 | 0x20000000 | 0x40000000  # IPC, processes (of the children), network
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
NOSUID, NODEV, NOEXEC, BIND, RECURSIVE, PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x4000 | 0x40000
SET_DUMPABLE, SET_SECCOMP, CAPBSET_DROP, SET_SUBREAPER, NO_NEW_PRIVS, AMBIENT = 4, 22, 24, 36, 38, 47


# --- the zygote --------------------------------------------------------------------------------------------------------


def serve(bundle: str, modules: list[str]) -> NoReturn:
    world = json.loads(os.environ.pop("JAIL_WORLD", "null"))
    incoming = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    outgoing = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    prctl(SET_DUMPABLE, 0)
    prctl(SET_SUBREAPER, 1)
    loaded = [name for name in modules if warmed(name)]
    gc.collect()
    gc.freeze()
    while True:
        frame = read_frame(incoming)
        kind, nonce = frame[:1], frame[1:17]
        if kind == b"H":
            send(outgoing, b"H" + nonce + json.dumps(loaded).encode())
        elif kind == b"X":
            send(outgoing, b"X" + nonce)
        elif kind == b"O":
            relaying = os.fork()
            if relaying == 0:
                relay(world, bundle, nonce, incoming, outgoing)
            _, status = os.waitpid(relaying, 0)
            end_all_children()
            if status:
                os._exit(1)
        else:
            os._exit(1)  # a prefix is never read here


def warmed(name: str) -> bool:
    try:
        module = importlib.import_module(name)
    except ImportError:
        return False
    if name == "torch":
        module.set_num_threads(1)  # also: no pool of threads that a fork would lose
        module.ones(4, 4) @ module.ones(4, 4)  # what torch finds out about the processor, while /proc is whole
    return True


def end_all_children() -> None:
    """Also those that left their parents: they are children of the zygote, which adopts what is left behind."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:  # noqa: PTH123
            for pid in stream.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


# --- the relay of one question -----------------------------------------------------------------------------------------


def relay(world: World | None, bundle: str, nonce: bytes, incoming: int, outgoing: int) -> NoReturn:
    """Between the examiner and one question's process, until the examiner ends it."""
    prctl(SET_SUBREAPER, 1)
    made = Question(world, bundle)
    if made.fault:
        send(outgoing, b"M" + nonce + made.fault)
    else:
        made.ask(b"O", nonce, b"")
    question = None if made.fault else made
    while True:
        reading = [incoming, question.source, question.process] if question else [incoming]
        writing = [question.sink] if question and question.unsent else []
        readable, writable, _ = select.select(reading, writing, [])
        told = question.told(readable, writable) if question else None
        if question and told:
            send(outgoing, told[0] + question.nonce + told[1])
            if told[0] == b"G":
                end_all_children()
                question = None
        if incoming not in readable:
            continue
        frame = read_frame(incoming)
        if frame[:1] == b"X":
            end_all_children()
            send(outgoing, b"X" + frame[1:17])
            os._exit(0)
        if question:
            question.ask(b"P", frame[1:17], frame[17:])
        else:
            send(outgoing, b"G" + frame[1:17] + b"ended")


class Question:
    """The relay's side of one question: a process, a pipe to it and a pipe from it."""

    def __init__(self, world: World | None, bundle: str) -> None:
        theirs_in, self.sink = os.pipe()
        self.source, theirs_out = os.pipe()
        self.fault, self.process = b"", -1
        self.unsent, self.unread = b"", b""
        self.nonce, self.asked = b"", False
        try:
            if world is not None:
                prctl(SET_DUMPABLE, 1)  # or /proc/self belongs to root; nobody else is alive to make use of it
                leave_namespaces(world)
        except OSError as error:
            self.fault = ascii(error).encode()
            return
        pid = os.fork()
        if pid == 0:
            live(world, bundle, theirs_in, theirs_out)
        prctl(SET_DUMPABLE, 0)
        os.close(theirs_in)
        os.close(theirs_out)
        os.set_blocking(self.sink, False)
        self.process = os.pidfd_open(pid)
        if os.read(self.source, 1) != b"w":  # said before any code of the bundle runs
            self.fault = os.read(self.source, 1000) or b"its process died while it was made"

    def ask(self, kind: bytes, nonce: bytes, body: bytes) -> None:
        payload = kind + nonce + body
        self.unsent += struct.pack(">I", len(payload)) + payload
        self.nonce, self.asked = nonce, True

    def told(self, readable: list[int], writable: list[int]) -> tuple[bytes, bytes] | None:
        """What there is to pass on: (C, a frame) or (G, why); None while there is nothing whole."""
        if self.sink in writable and not self.flush():
            return b"G", b"ended"
        if self.source in readable:
            return self.heard()
        return (b"G", b"ended") if self.process in readable else None

    def flush(self) -> bool:
        try:
            self.unsent = self.unsent[os.write(self.sink, self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def heard(self) -> tuple[bytes, bytes] | None:
        data = os.read(self.source, 65536)
        self.unread += data
        if not data:
            return b"G", b"ended"
        if len(self.unread) < 4:
            return None
        length = struct.unpack(">I", self.unread[:4])[0]
        if not self.asked or not 1 <= length <= MOST or len(self.unread) > 4 + length:
            return b"G", b"frame"
        if len(self.unread) < 4 + length:
            return None
        frame, self.unread, self.asked = self.unread[4:], b"", False
        return b"C", frame


# --- the question's process, before it is the bundle's -----------------------------------------------------------------


def live(world: World | None, bundle: str, incoming: int, outgoing: int) -> NoReturn:
    """What fails in here is ours: the bundle has not been touched yet."""
    try:
        keep_only(incoming, outgoing)
        os.setsid()
        # 1 and not 0: a limit of 0 does not keep a program that the kernel pipes core dumps to from getting one.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        if world is not None:
            make_world(world)
            give_up(world)
        os.write(4, b"w")
    except BaseException as error:
        os.write(4, b"!" + ascii(error).encode()[:500])
        os._exit(1)
    answer(bundle, 3, 4)


def leave_namespaces(world: World) -> None:
    uid, gid = os.getuid(), os.getgid()
    checked(LIBC.unshare(NAMESPACES | (NEW_USER if world["user_namespace"] else 0)))
    if world["user_namespace"]:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            write(f"/proc/self/{name}", text)


def make_world(world: World) -> None:
    write("/proc/self/oom_score_adj", "1000")  # it dies before the zygote
    checked(LIBC.unshare(NEW_MOUNTS))  # not before: the relay needs the /proc that it has
    mount("none", "/", "", PRIVATE)
    for place, size in world["scratch"].items():
        kept = [(name, os.open(f"{place}/{name}", os.O_PATH)) for name in world["kept"][place]]
        mount("tmpfs", place, "tmpfs", NOSUID | NODEV, f"mode=1777,size={size}")
        for name, fd in kept:  # a Python that was installed under /tmp, read-only as it was
            os.mkdir(f"{place}/{name}")  # noqa: PTH102
            mount(f"/proc/self/fd/{fd}", f"{place}/{name}", "", BIND | RECURSIVE)
            os.close(fd)
    try:
        mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC, "subset=pid")
    except OSError:  # a kernel before 5.8
        mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)


def give_up(world: World) -> None:
    for capability in range(64):
        if LIBC.prctl(CAPBSET_DROP, capability, 0, 0, 0):
            break  # the kernel knows no more
    if not world["user_namespace"]:
        os.setgroups([])
        os.setresgid(world["uid"], world["uid"], world["uid"])
        os.setresuid(world["uid"], world["uid"], world["uid"])
    prctl(AMBIENT, 4)
    header, none = struct.pack("<II", 0x20080522, 0), bytes(24)
    checked(LIBC.capset(header, none))
    prctl(NO_NEW_PRIVS, 1)
    prctl(SET_DUMPABLE, 0)
    program = base64.b64decode(world["filter"])
    kept = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
    checked(LIBC.prctl(SET_SECCOMP, 2, fprog, 0, 0))


def keep_only(incoming: int, outgoing: int) -> None:
    """The pipes as 3 and 4; 0, 1 and 2 lead nowhere already; nothing else of the zygote stays open."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (incoming, outgoing)]
    os.dup2(high[0], 3)
    os.dup2(high[1], 4)
    os.closerange(5, 1 << 20)


# --- the question's process, as the bundle's ---------------------------------------------------------------------------


def answer(bundle: str, incoming: int, outgoing: int) -> NoReturn:
    """Whatever goes wrong in here is the bundle's: it fails this question and nothing else."""
    nonce = read_frame(incoming)[1:17]
    try:
        with open(os.path.join(bundle, "manifest.json"), encoding="utf-8") as stream:  # noqa: PTH118, PTH123
            module, _, name = json.load(stream)["entry"].partition(":")
        sys.path.insert(0, bundle)
        sys.modules.pop(module.partition(".")[0], None)  # the entry is a file of the bundle, whatever it is called
        model = getattr(importlib.import_module(module), name)(bundle)
        send(outgoing, b"R" + nonce)
        while True:
            request = read_frame(incoming)
            nonce = request[1:17]
            numbers = model.next_byte_logits(request[17:])
            numbers = [float(number) for number in (numbers.tolist() if hasattr(numbers, "tolist") else numbers)]
            send(outgoing, b"L" + nonce + struct.pack(f"<{len(numbers)}f", *numbers))
    except BaseException:
        send(outgoing, b"E" + nonce)
    os._exit(1)


# --- frames and calls --------------------------------------------------------------------------------------------------


def read_frame(fd: int) -> bytes:
    return read_exactly(fd, struct.unpack(">I", read_exactly(fd, 4))[0])


def read_exactly(fd: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(fd, count - len(data))
        if not chunk:
            os._exit(2)  # the other end has hung up; the box ends what is left
        data += chunk
    return data


def send(fd: int, payload: bytes) -> None:
    frame = struct.pack(">I", len(payload)) + payload
    while frame:
        frame = frame[os.write(fd, frame) :]


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:  # noqa: PTH123
        stream.write(text)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    checked(
        LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode() or None)
    )


def prctl(option: int, value: int) -> None:
    checked(LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
