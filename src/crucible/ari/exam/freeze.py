"""An exam file -> frozen for good, and the little that may be published of it; anyone's questions -> an exam file.

`build` writes an exam, `freeze` is the last look at it: the file is where no repository can take it, nobody but its owner
can read it, it has a salt, and from now on nobody can write to it by accident. What is returned can be published.
"""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

import msgspec

from crucible.ari.exam.questions import Exam, Header, encode, load, require_outside_git, save_secret
from crucible.ari.exam.rules import departures
from crucible.errors import BadConfig, BadData

FROZEN = 0o400
_SALT_DIGITS = 32


class Published(msgspec.Struct, frozen=True):
    """All that is ever published of a hidden exam."""

    sha256: str
    questions: int
    categories: dict[str, int]
    protocol_version: str


def freeze(path: Path) -> tuple[Published, list[str]]:
    """Makes the exam read-only for its owner alone; returns what may be published, and where it departs from the rules."""
    require_outside_git(path, "a hidden exam")
    exam = load(path)
    if exam.header is None:
        raise BadData.at(
            path,
            "has no header with a salt: its published digest could be searched for",
            fix="crucible ari exam import FILE --out EXAM",
        )
    if len(exam.header.salt) < _SALT_DIGITS:
        raise BadData.at(
            path,
            f"has a salt of {len(exam.header.salt)} digits, at least {_SALT_DIGITS} are needed",
            fix="Build or import the exam again.",
            line=1,
            field="salt",
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadConfig(
            f"{path} can be read or written by others (mode {mode:o}): it may not be secret any more",
            fix=f"Build a new exam, or, if nobody has read this one: chmod 600 {path}",
        )
    path.chmod(FROZEN)
    published = Published(exam.sha256, len(exam.questions), exam.categories, exam.header.protocol_version)
    return published, departures(exam.questions)


def take_in(source: Path, target: Path, protocol_version: str) -> Exam:
    """Anyone's questions as an exam with a salt of its own. A target that holds just these questions is kept as it is."""
    given = load(source)
    if target.is_file():
        there = load(target)
        if there.header is not None and there.questions == given.questions:
            return there
    header = Header(1, protocol_version, secrets.token_hex(32))
    save_secret(target, encode(given.questions, header))
    return load(target)
