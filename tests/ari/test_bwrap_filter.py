"""The system-call filter as the kernel would run it, for both architectures, on any machine: a small BPF machine."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.boxes import seccomp
from crucible.errors import SandboxUnavailable

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, KILL = 0x7FFF0000, 0x80000000
CLONE, CLONE3, SOCKET, IOCTL, FCNTL, FLOCK = (56, 220), (435, 435), (41, 198), (16, 29), (72, 25), (73, 32)


def decide(program: bytes, arch: int, number: int, *args: int) -> int:
    """What the filter returns for a call."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    lines = [struct.unpack("<HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    at, register = 0, 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            register = struct.unpack_from("<I", data, value)[0]
        elif code == 0x06:
            return value
        else:
            holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[code]
            at += yes if holds else no


def refused(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_listed_call_is_refused_and_its_neighbours_are_not(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    program = seccomp.program(machine=machine)
    listed = {numbers[column] for numbers in seccomp.CALLS.values()} - {None}
    for number in listed:
        assert decide(program, arch, number) == refused(errno.EPERM), number
    special = {call[column] for call in (CLONE, CLONE3, SOCKET, IOCTL)} | {53 if column == 0 else 199}
    for number in set(range(500)) - listed - special:
        assert decide(program, arch, number) == ALLOW, number


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_arguments_decide_where_they_must(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    program = seccomp.program(machine=machine)
    assert decide(program, arch, CLONE3[column]) == refused(errno.ENOSYS)
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(program, arch, CLONE[column], flag | 17) == refused(errno.EPERM)
    assert decide(program, arch, CLONE[column], 0x3D0F00) == ALLOW  # a thread
    for family in range(50):
        expected = ALLOW if family in (1, 2, 10, 16) else refused(errno.EAFNOSUPPORT)
        assert decide(program, arch, SOCKET[column], family) == expected
    for request, expected in ((0x5412, refused(errno.EPERM)), (0x541C, refused(errno.EPERM)), (0x5401, ALLOW)):
        assert decide(program, arch, IOCTL[column], 0, request) == expected
        assert decide(program, arch, IOCTL[column], request, 0) == ALLOW


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_jail_has_local_sockets_only_and_no_way_to_speak_through_files(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    program = seccomp.program(machine=machine, families=seccomp.LOCAL_FAMILIES, apart=True)
    assert [decide(program, arch, SOCKET[column], family) == ALLOW for family in (1, 2, 10, 16)] == [True] + [False] * 3
    for numbers in seccomp.BETWEEN_QUESTIONS.values():
        if numbers[column] is not None:
            assert decide(program, arch, numbers[column]) == refused(errno.EPERM)
    assert decide(program, arch, FLOCK[column]) == refused(0)
    assert [decide(program, arch, FCNTL[column], 3, command) for command in (6, 37, 1026, 3)] == [
        refused(0),
        refused(0),
        refused(errno.EPERM),
        ALLOW,
    ]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_zygote_may_make_worlds_and_nothing_else(machine: str) -> None:
    column, arch = ARCHITECTURES[machine]
    program = seccomp.program(machine=machine, allow=seccomp.TO_MAKE_WORLDS)
    allowed = {
        name for name, calls in seccomp.CALLS.items() if calls[column] and decide(program, arch, calls[column]) == ALLOW
    }
    assert allowed == set(seccomp.TO_MAKE_WORLDS)


@given(st.sampled_from(sorted(ARCHITECTURES)), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_call_of_another_architecture_is_never_allowed(machine: str, arch: int, number: int) -> None:
    own = ARCHITECTURES[machine][1]
    program = seccomp.program(machine=machine)
    if arch != own:
        assert decide(program, arch, number) == KILL
    if machine == "x86_64":
        assert decide(program, own, number | 0x40000000) == refused(errno.ENOSYS)


def test_an_unknown_machine_has_no_filter_and_so_no_box() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.program(machine="riscv64")
