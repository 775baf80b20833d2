"""A box -> the table of the inference attacks I1 to I12: what each did, what was expected, what was seen, the verdict.

Every attack is a real hostile bundle in the real box, judged by the grader; nothing here asserts that a flag was set. A row is
"held" only if the attack was seen to run and to gain nothing.
"""

from __future__ import annotations

import ast
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crucible.ari.box import Box
from crucible.ari.exam.questions import Question
from crucible.ari.examine import Reply
from crucible.ari.redteam.stage import Stage, canaries, doings, staged
from crucible.errors import MachineryFailed, Mistake

Check = Callable[[Stage], tuple[str, bool]]
"""Runs the attack; (what was seen, whether the harness held)."""


class Row(msgspec.Struct, frozen=True):
    attack: str
    title: str
    expected: str
    observed: str
    verdict: str
    """"held" or "broken"."""


class Attack(NamedTuple):
    id: str
    bundle: str
    title: str
    expected: str
    check: Check


def run(box: Box, only: Sequence[str] = ()) -> list[Row]:
    """Every attack, or those with these ids, in front of this box."""
    unknown = sorted(set(only) - {attack.id for attack in ATTACKS})
    if unknown:
        raise Mistake(f"no attack {unknown[0]!a}", fix=f"The attacks are {', '.join(a.id for a in ATTACKS)}.")
    return [run_one(attack, box) for attack in ATTACKS if not only or attack.id in only]


def run_one(attack: Attack, box: Box) -> Row:
    if box.kind == "local":
        raise Mistake(
            "the local box isolates nothing: bombs and forgeries would hit this machine itself", fix="Use --box bwrap."
        )
    with staged(attack.bundle, box) as stage:
        try:
            observed, held = attack.check(stage)
        except MachineryFailed as fault:  # the subject must not be able to bring the machinery down
            observed, held = f"the machinery failed: {fault.message}", False
    return Row(attack.id, attack.title, attack.expected, observed, "held" if held else "broken")


# --- what each must come to --------------------------------------------------------------------------------------------


def _said(reply: Reply) -> Any:
    """A report that a bundle spoke as a Python literal."""
    text = reply.answer.rstrip(b".").decode(errors="replace")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"unreadable": text, "failure": reply.failure}


def _shadowing(stage: Stage) -> tuple[str, bool]:
    (reply,) = stage.answers(canaries(1)).values()
    said = _said(reply)
    nobody = said.get("uid") not in (None, 0, os.getuid())
    bare = (said.get("capabilities"), said.get("no_new_privs"), said.get("seccomp")) == (0, 1, 2)
    ran = said.get("pickle") == "ran"
    gained = said.get("gained", ["nothing was said"]) + said.get("early", [])
    return f"ran as user {said.get('uid')}, gained {gained or 'nothing'}", nobody and bare and ran and not gained


def _search(stage: Stage) -> tuple[str, bool]:
    questions = canaries(4)
    graded = stage.graded(questions)
    said = [_said(reply) for reply in stage.answers(questions).values()]
    # Its own prompt it must find, or the search did not work; nobody else's.
    clean = all(one == {"prompts": 1, "own": True, "looked": True} for one in said)
    return f"{graded.passed} answers found, prompts seen: {[one.get('prompts') for one in said]}", (
        clean and graded.passed == 0 and graded.restarts == 0
    )


def _only_good(stage: Stage, *things: str, harmless: int = 0, bombs: bool = False) -> tuple[str, bool]:
    """The plain questions pass, each of the others fails but the harmless ones, and nothing but a bomb hurts the zygote."""
    questions = doings(*things)
    graded = stage.graded(questions)
    good, bad = graded.by_category["good"], graded.by_category["bad"]
    failed = sum(graded.failures.values())
    failures = ", ".join(f"{count} {name}" for name, count in graded.failures.items())
    held = good.passed == good.questions and bad.passed == harmless and failed == bad.questions - harmless
    seen = f"{good.passed} of {good.questions} plain questions pass, {bad.passed} others; failed: {failures}"
    return f"{seen}; {graded.restarts} restarts", held and (bombs or graded.restarts == 0)


def _forgery(stage: Stage) -> tuple[str, bool]:
    things = ("everywhere", "guess", "ahead", "zygote", "through_proc", "result_file", "exit_code")
    return _only_good(stage, *things)


def _state(stage: Stage) -> tuple[str, bool]:
    questions = canaries(5)
    graded = stage.graded(questions)
    said = {reply.answer.rstrip(b".").decode(errors="replace") for reply in stage.answers(questions).values()}
    return f"{', '.join(sorted(said))}; {graded.order.differ} of {graded.order.asked} differ in another order", (
        said == {"found nothing"}
        and graded.order.differ == 0
        and graded.order.asked == len(questions)
        and graded.restarts == 0
    )


def _target(stage: Stage) -> tuple[str, bool]:
    asked = canaries(3)
    swapped = [
        msgspec.structs.replace(question, answer=bytes(byte ^ 1 for byte in question.answer)) for question in asked
    ]
    one, two = stage.graded(asked, "one"), stage.graded(swapped, "two")
    same = one.replies_sha256 == two.replies_sha256
    return f"the transcript is {'identical' if same else 'another one'} with other answers", same and not one.failures


def _length(stage: Stage) -> tuple[str, bool]:
    asked = [
        Question(f"q{length}", "c", "f", b"the same prompt for all = ", b"x" * length) for length in (1, 7, 40, 64)
    ]
    said = [stage.replies([question])[question.id].answer for question in asked]
    same = all(
        said[-1].startswith(answer) and len(answer) == len(q.answer) for q, answer in zip(asked, said, strict=True)
    )
    return f"answers of {[len(answer) for answer in said]} bytes, each the beginning of the longest: {same}", same


def _malformed(stage: Stage) -> tuple[str, bool]:
    numbers = (
        "nan",
        "infinite",
        "minus_infinite",
        "too_few",
        "too_many",
        "empty",
        "text",
        "strings",
        "huge",
        "endless",
    )
    return _only_good(stage, *numbers, "gigabytes", "raises", "silent", "drip", "hangs_up")


def _odds(stage: Stage) -> tuple[str, bool]:
    kinds = ("flat and high", "flat and low", "all probabilities one", "all certain")
    flat = [Question(kind, "flat", "f", kind.encode() + b": Z", b"ABCD") for kind in kinds]
    graded = stage.graded(flat)
    sure = [Question("sure", "sure", "f", b"sure: ZZ", b"ZZZZ"), Question("off", "sure", "f", b"off: ZZ", b"ZqZq")]
    sealed = stage.graded(sure, "sure")
    held = graded.bpb == 8.0 and graded.passed == 0 and sealed.passed == 1
    return f"256 equal numbers cost {graded.bpb} bits a byte; the sealed score stays {sealed.passed} of 2", held


def _slowness(stage: Stage) -> tuple[str, bool]:
    return _only_good(stage, "awake", "asleep", "in_threads", "just_under", harmless=1)


def _leak(stage: Stage) -> tuple[str, bool]:
    questions = [
        *canaries(3),
        *(
            Question(f"{how}-q", "c2", "f", b"do " + how.encode() + b" " + question.prompt, question.answer)
            for how, question in zip(("raise", "crash", "abort"), canaries(3), strict=True)
        ),
    ]
    before = _temporary()
    graded = stage.graded(questions)
    marks = [text for question in questions for text in (question.prompt[-40:-3], question.answer)]
    places = [*stage.published(), *_contents(_temporary() - before)]
    leaks = sorted({name for name, data in places for mark in marks if mark in data or mark in name.encode()})
    asked = graded.questions == len(questions) and sum(graded.failures.values()) == 3
    return f"{len(places)} published or temporary files scanned, exam text in {leaks or 'none'}", asked and not leaks


def _temporary() -> set[str]:
    """Files that anybody could find lying about on this machine."""
    found = set()
    for place in {tempfile.gettempdir(), "/dev/shm", "/var/crash", "/var/tmp"}:  # noqa: S108
        for path in Path(place).glob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and os.access(path, os.R_OK) and path.stat().st_size < 1 << 24:
                    found.add(str(path))
    return found


def _contents(paths: set[str]) -> Iterator[tuple[str, bytes]]:
    for path in sorted(paths):
        with contextlib.suppress(OSError):  # somebody else's, and gone by now
            yield path, Path(path).read_bytes()


def _equality(stage: Stage) -> tuple[str, bool]:
    kinds = ("case", "newline", "space", "early", "lookalike", "nul", "wide")
    wanted = [Question(kind, "near", "f", kind.encode() + b": ", b"Berlin") for kind in kinds if kind != "newline"]
    wanted += [
        Question("newline", "near", "f", b"newline: ", b"Berlin\r"),
        Question("decomposed", "near", "f", b"decomposed: ", "Caf\u00e9".encode()),
        Question("composed", "near", "f", b"composed: ", "Cafe\u0301".encode()),
        Question("exact", "exact", "f", b"exact: ", b"Berlin"),
    ]
    # A longer answer that only begins rightly is cut to the asked length by the stepping: those two are equal bytes.
    cut = {"space", "nul"}
    graded = stage.graded([question for question in wanted if question.id not in cut])
    return f"{graded.passed} of {graded.questions} equal", graded.passed == 1 and graded.by_category[
        "exact"
    ].passed == 1


def _excuses(stage: Stage) -> tuple[str, bool]:
    raised = ("disk", "memory", "network", "interrupt", "leave", "vanish")
    return _only_good(stage, *raised, "killed", "segfault", "everyone", "parents", "stopped", "hang_up")


def _bombs(stage: Stage) -> tuple[str, bool]:
    return _only_good(stage, "memory", "shared_memory", "forks", "fat_forks", "threads", "descriptors", bombs=True)


_FAILS = "that question fails, the grader goes on"
ATTACKS = (
    Attack(
        "I1",
        "shadowing",
        "sitecustomize, .pth, shadowed modules, pickle payloads",
        "runs as nobody, gains nothing",
        _shadowing,
    ),
    Attack("I2", "search", "looks for the exam in files, processes and memory", "finds nothing", _search),
    Attack("I3", "forgery", "forged frames, result files, exit codes", "a broken frame fails the question", _forgery),
    Attack("I4", "state", "marks in memory, files, the kernel, processes that stay", "no question finds one", _state),
    Attack("I5", "target", "answers that depend on the withheld answer", "byte-identical with other answers", _target),
    Attack("I6", "target", "the answer's length as a hint", "the length is never announced", _length),
    Attack("I7", "malformed", "NaN, wrong counts, strings, gigabytes, exceptions, silence", _FAILS, _malformed),
    Attack("I8", "odds", "numbers that pretend to be cheap", "log-softmax decides, after the seal", _odds),
    Attack("I9", "slowness", "minutes of search per byte", "a time-out fails the question", _slowness),
    Attack("I10", "leak", "exam text into logs, files, crash dumps", "nothing published holds any", _leak),
    Attack("I11", "equality", "newline, case, unicode forms", "raw bytes, equal or not", _equality),
    Attack("I12", "excuses", "failures that look like the machine's", "a result, never invalid", _excuses),
    Attack("C13", "bombs", "memory, processes, threads, disk until something gives", _FAILS, _bombs),
)
