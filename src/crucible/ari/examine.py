"""A submission and prompts -> the bytes it answers, greedily, one process per question. Knows no answer, public or hidden.

It is given prompts and lengths only, so no answer can reach the submission. It owns the stepping: a prefix of at
most the track's context goes out, 256 numbers come back, the largest wins and the lowest byte on ties; exactly the asked
number of bytes, never stopping early, and the length is never announced. Whatever the submission does wrong fails that
question and no other; only a box that cannot start is the machinery's failure.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.ari.artefact import unpack
from crucible.ari.box import Box
from crucible.ari.sitting import sit
from crucible.ari.submit import artefact_limits
from crucible.ari.talk import Failed, Failure, Jail
from crucible.ari.track import Track


@dataclass(frozen=True)
class Ask:
    """What the submission may know of a question, plus how many bytes to step, which it may not."""

    id: str
    prompt: bytes
    length: int


@dataclass(frozen=True)
class Reply:
    """The answer and the seconds it took; starting the jail is nobody's time, loading the bundle is the question's."""

    id: str
    answer: bytes
    failure: Failure | None
    seconds: float
    start_s: float = 0.0
    load_s: float = 0.0


def examine(
    box: Box,
    bundle: Path,
    asks: Sequence[Ask],
    track: Track,
    *,
    total_s: float | None = None,
    at_once: int = 1,
    over: Callable[[], bool] = lambda: False,
) -> list[Reply]:
    """Every question in the given order; what does not fit into the total time, or comes after `over()`, fails as that."""

    def one(jail: Jail, ask: Ask, ends: float) -> Reply:
        return _one(jail, ask, ends, track)

    most = track.grade_limit_s if total_s is None else min(total_s, track.grade_limit_s)
    return sit(box, bundle, asks, one, total_s=most, at_once=at_once, over=over)


@contextlib.contextmanager
def opened(snapshot: Path, track: Track) -> Iterator[Path]:
    """The files of an archive in a folder that any user may read but only its owner can reach; gone after the block."""
    with tempfile.TemporaryDirectory(prefix="ari-bundle-") as closed:
        folder = Path(closed, "bundle")
        folder.mkdir()
        unpack(snapshot, folder, artefact_limits(track))
        make_readable(folder)
        yield folder


def make_readable(folder: Path) -> None:
    """The jail's user owns nothing of it and has to read it, whatever the harness's umask says."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def _one(jail: Jail, ask: Ask, ends: float, track: Track) -> Reply:
    answer, start_s, load_s, began = bytearray(), 0.0, 0.0, time.monotonic()
    failure: Failure | None = None
    try:
        if began >= ends or jail.over():
            raise Failed("total time")
        start_s = jail.ready(ends)
        began = time.monotonic()
        with jail.question(min(ends, began + track.load_limit_s)) as predict:
            load_s = time.monotonic() - began
            until = min(ends, time.monotonic() + track.question_limit_s)
            while len(answer) < ask.length:
                answer.append(largest(predict((ask.prompt + answer)[-track.context_bytes :], until)))
    except Failed as failed:
        late = failed.failure in ("load", "question time") and time.monotonic() >= ends
        failure = "total time" if late else failed.failure
    return Reply(ask.id, bytes(answer), failure, time.monotonic() - began, start_s, load_s)


def largest(numbers: tuple[float, ...]) -> int:
    """The byte with the largest number; the lowest of several."""
    return numbers.index(max(numbers))
