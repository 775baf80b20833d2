"""An artefact, questions and a box -> how well it answered, in aggregates. The only place where replies meet answers.

Exact match first: every question is asked, then bytes are compared, then the replies are sealed by their digest. What follows
cannot touch the score and only raises flags or adds diagnostics: the same questions in another order must give the same
bytes, bits-per-byte in fresh processes, and the audit with shuffled weights.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from crucible.ari.artefact import MANIFEST, Manifest
from crucible.ari.bitsperbyte import bits_per_byte
from crucible.ari.box import Box
from crucible.ari.exam.questions import Question
from crucible.ari.examine import Ask, Reply, examine, make_readable, opened
from crucible.ari.shuffle import shuffled
from crucible.ari.sitting import cores
from crucible.ari.track import Track
from crucible.errors import SubmissionRefused
from crucible.kernel import digest

Result = TypeVar("Result")
SMALLEST_GROUP = 5
_STEPS = {
    "exact_s": "exact match",
    "second_order_s": "the same questions in another order",
    "bits_s": "bits per byte",
    "audit_s": "audit of the weights",
}
_AUDITED = 20
_KEPT = 0.8
"""From this share of kept answers on, an audit says that the weights are not used."""


class Group(msgspec.Struct, frozen=True):
    passed: int
    questions: int


class Order(msgspec.Struct, frozen=True):
    """The second sitting: how many questions were asked again in another order, and how many were answered otherwise."""

    asked: int = 0
    differ: int = 0


class Audit(msgspec.Struct, frozen=True):
    """Right answers asked again with shuffled weights, and how many were still right."""

    weights: int = 0
    asked: int = 0
    kept: int = 0


class Judged(msgspec.Struct, frozen=True):
    """How one artefact answered one exam: aggregates."""

    passed: int
    questions: int
    by_category: dict[str, Group]
    failures: dict[str, int]
    """Why questions got no complete answer, counted; a wrong answer is not a failure."""
    seconds: float
    bpb: float | None = None
    """Bits per answer byte, teacher-forced; none where nothing was there to ask."""
    order: Order = Order()
    audit: Audit = Audit()
    restarts: int = 0
    """How often the submission ended the process that serves it, beyond its own question."""
    replies_sha256: str | None = None
    flags: list[str] = []
    timing: dict[str, float] = {}

    @property
    def score(self) -> float:
        return 100.0 * self.passed / self.questions


Seal = Callable[[str, int], None]
"""(digest of the replies, how many are right): called once, before anything else is asked."""
Notice = Callable[[str], None]


def judge(
    box: Box,
    snapshot: Path,
    questions: Sequence[Question],
    track: Track,
    *,
    salt: str = "",
    seal: Seal = lambda sha256, passed: None,
    notice: Notice = lambda text: None,
) -> Judged:
    """The whole judgement of one artefact; what the submission does wrong is a result, never an error."""
    began = time.monotonic()
    try:
        with opened(snapshot, track) as bundle:
            return _Judgement(box, bundle, questions, track, notice).judged(salt, seal, began)
    except SubmissionRefused:
        return nothing(questions, "load", time.monotonic() - began)


def nothing(questions: Sequence[Question], failure: str | None = None, seconds: float = 0.0) -> Judged:
    """No answer at all: it earned zero, and that counts."""
    failures = {failure: len(questions)} if failure else {}
    return Judged(0, len(questions), _count(questions, []), failures, round(seconds, 3))


class _Judgement:
    """One artefact before one exam, step by step."""

    def __init__(self, box: Box, bundle: Path, questions: Sequence[Question], track: Track, notice: Notice) -> None:
        self._box, self._bundle, self._questions, self._track = box, bundle, questions, track
        self._notice = notice
        self._asks = {q.id: Ask(q.id, q.prompt, len(q.answer)) for q in questions}
        self._answers = {q.id: q.answer for q in questions}
        self._timing: dict[str, float] = {}

    def judged(self, salt: str, seal: Seal, began: float) -> Judged:
        first = self._timed("exact_s", lambda: self._examine(self._bundle, list(self._asks.values()), 1))
        right = [reply.id for reply in first if self._is_right(reply)]
        sealed = digest.of_json([salt, [[reply.id, reply.answer.hex(), reply.failure] for reply in first]])
        seal(sealed, len(right))
        # What used up its time once is not given it again: it stays failed, and the order cannot be compared.
        slow = {reply.id for reply in first if _used_its_time(reply, self._track)}
        dice = random.Random(sealed)
        second, order = self._timed("second_order_s", lambda: self._second(first, slow, dice))
        bpb = self._timed(
            "bits_s", lambda: bits_per_byte(self._box, self._bundle, self._questions, self._track, skip=slow)
        )
        audit = self._timed("audit_s", lambda: self._audit(right, sealed, dice))
        failures = [reply.failure for reply in first if reply.failure is not None]
        both = [*first, *second]
        self._timing |= {
            "start_s": sum(reply.start_s for reply in both),
            "load_s": sum(reply.load_s for reply in both),
            "step_s": sum(reply.seconds - reply.load_s for reply in both),
        }
        return Judged(
            passed=len(right),
            questions=len(self._questions),
            by_category=_count(self._questions, right),
            failures={name: failures.count(name) for name in sorted(set(failures))},
            seconds=round(time.monotonic() - began, 3),
            bpb=bpb,
            order=order,
            audit=audit,
            restarts=_restarts(first, 1) + _restarts(second, cores()),
            replies_sha256=sealed,
            flags=_flags(len(right), order, audit, failures.count("total time")),
            timing={name: round(seconds, 3) for name, seconds in self._timing.items()},
        )

    def _examine(self, bundle: Path, asks: Sequence[Ask], at_once: int) -> list[Reply]:
        return examine(self._box, bundle, asks, self._track, at_once=at_once)

    def _is_right(self, reply: Reply) -> bool:
        return reply.failure is None and reply.answer == self._answers[reply.id]

    def _second(self, first: Sequence[Reply], slow: set[str], dice: random.Random) -> tuple[list[Reply], Order]:
        before = {reply.id: (reply.answer, reply.failure) for reply in first if reply.id not in slow}
        ids = list(before)
        dice.shuffle(ids)
        if ids == list(before):
            ids.reverse()
        again = self._examine(self._bundle, [self._asks[id] for id in ids], cores())
        differ = sum((reply.answer, reply.failure) != before[reply.id] for reply in again)
        return again, Order(len(again), differ)

    def _audit(self, right: Sequence[str], seed: str, dice: random.Random) -> Audit:
        weights = _weights(self._bundle)
        if not weights or not right:
            return Audit(len(weights))
        sample = dice.sample(list(right), min(_AUDITED, len(right)))
        with tempfile.TemporaryDirectory(prefix="ari-audit-") as folder:
            copy = Path(folder, "bundle")
            shuffled(self._bundle, copy, weights, seed)
            make_readable(copy)
            replies = self._examine(copy, [self._asks[id] for id in sample], cores())
        return Audit(len(weights), len(sample), sum(map(self._is_right, replies)))

    def _timed(self, name: str, step: Callable[[], Result]) -> Result:
        began = time.monotonic()
        self._notice(f"{_STEPS[name]} ...")
        result = step()
        self._timing[name] = time.monotonic() - began
        return result


# --- counting ----------------------------------------------------------------------------------------------------------


def coarse(groups: dict[str, Group]) -> dict[str, Group]:
    """What may be published: groups below five questions join the next smallest, so that none can be told from the total."""
    rest = sorted(groups.items(), key=lambda item: (item[1].questions, item[0]))
    small: list[tuple[str, Group]] = []
    while rest and (rest[0][1].questions < SMALLEST_GROUP or (small and _size(small) < SMALLEST_GROUP)):
        small.append(rest.pop(0))
    published = dict(sorted(rest))
    if _size(small) >= SMALLEST_GROUP:
        published["other"] = Group(sum(group.passed for _, group in small), _size(small))
    return published


def _size(groups: Sequence[tuple[str, Group]]) -> int:
    return sum(group.questions for _, group in groups)


def _count(questions: Sequence[Question], right: Sequence[str]) -> dict[str, Group]:
    passed = set(right)
    groups: dict[str, list[bool]] = {}
    for question in questions:
        groups.setdefault(question.category, []).append(question.id in passed)
    return {name: Group(sum(marks), len(marks)) for name, marks in sorted(groups.items())}


def _used_its_time(reply: Reply, track: Track) -> bool:
    limit = min(track.load_limit_s, track.question_limit_s)
    return reply.failure == "total time" or (reply.failure is not None and reply.seconds >= limit)


def _restarts(replies: Sequence[Reply], jails: int) -> int:
    """Every jail starts once; what is beyond that, the submission made necessary."""
    return max(0, sum(reply.start_s > 0 for reply in replies) - jails)


def _weights(bundle: Path) -> list[str]:
    """The declared weight files, as far as they are files of the bundle."""
    try:
        declared = msgspec.json.decode((bundle / MANIFEST).read_bytes(), type=Manifest).weights
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    files = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    return [name for name in dict.fromkeys(declared) if name in files]


def _flags(passed: int, order: Order, audit: Audit, unasked: int) -> list[str]:
    flags = []
    if order.differ:
        flags.append(f"order-dependent: {order.differ} of {order.asked} answers differ in another order")
    if passed and not audit.weights:
        flags.append("weights not used: none are declared, so the answers are owed to the code alone")
    if audit.asked and audit.kept >= _KEPT * audit.asked:
        flags.append(f"weights not used: {audit.kept} of {audit.asked} right answers stay with the weights shuffled")
    if unasked:
        flags.append(f"out of time: {unasked} questions were not answered before the total time was over")
    return flags
