"""Which system calls a box refuses -> a filter as plain classic BPF, for x86_64 and aarch64. Installs nothing by itself.

Everything is allowed but what is listed: a training job or a model may use whatever the kernel offers to a plain program.
Refused are the calls that reach into other processes, change mounts or namespaces, load code into the kernel, set the
clock, or speak to anything but the local machine. A call of another architecture (32-bit, x32) is refused altogether,
because its numbers mean other things.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterator, Sequence

from crucible.errors import SandboxUnavailable

# name: (x86_64, aarch64); None where the architecture has no such call
CALLS: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # the kernel itself
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "vhangup": (153, 58),
    # names and clocks
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}
BETWEEN_QUESTIONS: dict[str, tuple[int | None, int | None]] = {
    "fadvise64": (221, 223),
    "mincore": (27, 232),
    "preadv2": (327, 286),
    "cachestat": (451, 451),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
}
"""Two processes that share nothing but read-only files can still speak through them: throw pages out of the cache and ask
whether they are there, watch who opens what, hold locks. Refused (locks: as if granted) where one question must not speak
to another."""
TO_MAKE_WORLDS = ("mount", "umount2", "unshare")
"""What the zygote of the jail needs for a question's own namespaces, before it gives everything up."""

_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKET, _SOCKETPAIR, _IOCTL = (41, 198), (53, 199), (16, 29)
_NAMESPACES = 0x7E020080  # CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FCNTL, _FLOCK = (72, 25), (73, 32)
_FCNTL_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
_FCNTL_WATCHES = (1024, 1026)  # F_SETLEASE, F_NOTIFY
LOCAL_FAMILIES = (socket.AF_UNIX,)
FAMILIES = (
    socket.AF_UNIX,
    socket.AF_INET,
    socket.AF_INET6,
    16,
)  # 16 is AF_NETLINK; AF_VSOCK reaches out of a namespace

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_AT, _SECOND_AT = 0, 4, 16, 24  # in struct seccomp_data; low halves, little-endian
_X32 = 0x40000000


def program(
    *,
    families: Sequence[int] = FAMILIES,
    allow: Sequence[str] = (),
    apart: bool = False,
    machine: str | None = None,
) -> bytes:
    """The filter as an array of `struct sock_filter`, as bubblewrap and prctl take it; `apart` closes BETWEEN_QUESTIONS."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(
            f"there is no system-call filter for {machine}, only for {' and '.join(_ARCHITECTURES)}",
            fix="Run on one of those, or use `--box local`, which isolates nothing.",
        )
    column, architecture = _ARCHITECTURES[machine]
    refused = {name: numbers for name, numbers in CALLS.items() if name not in allow}
    if apart:
        refused |= BETWEEN_QUESTIONS
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *([(_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)] if machine == "x86_64" else []),
    ]
    for numbers in refused.values():
        lines += _unless_none(numbers[column])
    # glibc falls back to clone, whose flags can be looked at; those of clone3 lie in memory.
    lines += [(_EQUAL, 0, 1, _CLONE3[column]), _refuse(errno.ENOSYS)]
    if "unshare" not in allow:
        lines += _on(_CLONE[column], _FIRST_AT, [(_ANY_BIT, 0, 1, _NAMESPACES), _refuse(errno.EPERM)])
    for call in (_SOCKET, _SOCKETPAIR):
        lines += _on(call[column], _FIRST_AT, list(_only(families)))
    lines += _on(_IOCTL[column], _SECOND_AT, _if_any(_TERMINAL_INJECTION))
    if apart:
        lines += _if_equal(_FLOCK[column], 0)
        lines += _on(_FCNTL[column], _SECOND_AT, [*_if_any(_FCNTL_LOCKS, 0), *_if_any(_FCNTL_WATCHES)])
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


_Line = tuple[int, int, int, int]


def _refuse(number: int) -> _Line:
    return (_RETURN, 0, 0, _ERRNO | number)


def _unless_none(call: int | None) -> list[_Line]:
    return [] if call is None else _if_equal(call)


def _if_equal(value: int, number: int = errno.EPERM) -> list[_Line]:
    return [(_EQUAL, 0, 1, value), _refuse(number)]


def _if_any(values: Sequence[int], number: int = errno.EPERM) -> list[_Line]:
    return [line for value in values for line in _if_equal(value, number)]


def _on(call: int, argument_at: int, body: list[_Line]) -> list[_Line]:
    """The body with the argument loaded, for that call alone; it falls out of the body to the call's number again."""
    inner = [(_LOAD, 0, 0, argument_at), *body, (_LOAD, 0, 0, _NUMBER_AT)]
    return [(_EQUAL, 0, len(inner), call), *inner]


def _only(families: Sequence[int]) -> Iterator[_Line]:
    for place, family in enumerate(families):
        yield (_EQUAL, len(families) - place, 0, family)
    yield _refuse(errno.EAFNOSUPPORT)
