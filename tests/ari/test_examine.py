from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from crucible.ari.boxes.local import LocalBox
from crucible.ari.clock import Clock
from crucible.ari.exam.questions import Question
from crucible.ari.examine import Ask, Reply, examine
from crucible.ari.grade import judge
from crucible.ari.submit import Book

from .conftest import ECHO, open_files, small_track, write_bundle

QUICK = small_track(load_limit_s=5, question_limit_s=1, grade_limit_s=60)


def model(body: str, loading: str = "pass") -> str:
    """A Model whose `next_byte_logits` has this body; `one(byte)` prefers a byte."""
    inner = "\n        ".join(body.strip().splitlines())
    return f"""
import math, os, sys, time
def one(byte):
    logits = [0.0] * 256
    logits[byte] = 1.0
    return logits
class Model:
    def __init__(self, directory):
        self.directory = directory
        {loading}
    def next_byte_logits(self, prefix):
        {inner}
"""


def ask(tmp_path: Path, code: str, *prompts: bytes, length: int = 3, track=QUICK, **more: float) -> list[Reply]:  # type: ignore[no-untyped-def]
    bundle = write_bundle(tmp_path / "bundle", code)
    asks = [Ask(f"q{n}", prompt, length) for n, prompt in enumerate(prompts or (b"ab",))]
    return examine(LocalBox(), bundle, asks, track, **more)


def test_it_steps_greedily_for_exactly_the_asked_length(tmp_path: Path) -> None:
    replies = ask(tmp_path, model("return one((prefix[-1] + 1) % 256)"), b"ab", b"\xfe", length=4)
    assert [reply.answer for reply in replies] == [b"cdef", b"\xff\x00\x01\x02"]
    assert [reply.failure for reply in replies] == [None, None]


def test_the_lowest_byte_wins_a_tie(tmp_path: Path) -> None:
    body = "logits = [-1.0] * 256\nlogits[200] = logits[7] = 5.0\nreturn logits"
    assert ask(tmp_path, model(body))[0].answer == b"\x07\x07\x07"


def test_the_prefix_is_cut_to_the_context_and_grows_with_the_answer(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    body = f"open('{tmp_path}/seen/%d' % time.monotonic_ns(), 'wb').write(prefix)\nreturn one(65)"
    ask(tmp_path, model(body), b"x" + b"y" * 1024, length=3)
    seen = [path.read_bytes() for path in sorted((tmp_path / "seen").iterdir())]
    assert seen == [b"y" * 1024, b"y" * 1023 + b"A", b"y" * 1022 + b"AA"]


BROKEN = {
    "nan": ("return [math.nan] * 256", "not finite"),
    "infinite": ("return one(5)[:-1] + [math.inf]", "not finite"),
    "too few": ("return [0.0] * 255", "frame"),
    "too many": ("return [0.0] * 257", "frame"),
    "none": ("return []", "frame"),
    "text": ("return 'x' * 256", "exception"),
    "too large for float32": ("return [1e300] * 256", "exception"),
    "nothing": ("return None", "exception"),
    "raises": ("raise MemoryError('infrastructure')", "exception"),
    "exits": ("sys.exit(0)", "exception"),
    "dies": ("os._exit(0)", "ended"),
    "silent": ("time.sleep(60)", "question time"),
    "gigabytes": ("os.write(4, b'\\x7f\\xff\\xff\\xff' + b'x' * 50000)\nreturn one(65)", "frame"),
    "forged frame": ("os.write(4, b'\\0\\0\\0\\1P')\nreturn one(65)", "frame"),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_whatever_a_model_does_wrong_fails_that_question_only(tmp_path: Path, kind: str) -> None:
    body, failure = BROKEN[kind]
    inner = "\n    ".join(body.splitlines())
    code = model(f"if prefix.startswith(b'bad'):\n    {inner}\nreturn one(90)")
    track = small_track(load_limit_s=10, question_limit_s=0.7 if kind == "silent" else 10)
    good, bad, after = ask(tmp_path, code, b"good", b"bad", b"after", track=track)
    assert (good.answer, good.failure) == (b"ZZZ", None)
    assert bad.failure == failure
    assert (after.answer, after.failure) == (b"ZZZ", None)


@pytest.mark.parametrize(
    ("loading", "failure"),
    [("raise ValueError", "load"), ("os._exit(0)", "ended"), ("time.sleep(60)", "load")],
)
def test_a_model_that_does_not_load_fails_as_that(tmp_path: Path, loading: str, failure: str) -> None:
    track = small_track(load_limit_s=0.7)
    assert ask(tmp_path, model("return one(65)", loading), track=track)[0].failure == failure


def test_questions_beyond_the_total_time_fail_as_that(tmp_path: Path) -> None:
    replies = ask(tmp_path, model("time.sleep(60)"), b"a", b"b", b"c", total_s=0.5)
    assert [reply.failure for reply in replies] == ["total time"] * 3


def test_nothing_survives_from_one_question_to_the_next(tmp_path: Path) -> None:
    code = model("self.n = getattr(self, 'n', 64) + 1\nreturn one(self.n)", "self.n = 64")
    first, second = ask(tmp_path, code, b"a", b"b")
    assert first.answer == second.answer == b"ABC"


def test_what_a_model_prints_is_not_a_reply(tmp_path: Path) -> None:
    body = "print('forged', flush=True)\nos.write(1, b'\\0\\0\\0\\1P')\nsys.stderr.write('x')\nreturn one(66)"
    assert ask(tmp_path, model(body))[0].answer == b"BBB"


def test_modules_of_a_bundle_shadow_nothing_of_the_jail(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", json=b"")
    for name in ("json", "struct", "os", "sitecustomize"):
        (tmp_path / "bundle" / f"{name}.py").write_text("raise SystemExit")
    assert ask(tmp_path, ECHO)[0].answer == b"bbb"


def test_swapping_the_hidden_answer_leaves_the_transcript_identical(tmp_path: Path) -> None:
    track, transcripts = QUICK, []
    for answer in (b"right", b"wrong"):
        log = tmp_path / f"log-{answer.decode()}"
        log.mkdir()
        code = model("number = len(os.listdir(LOG))\nopen(f'{LOG}/{number}', 'wb').write(prefix)\nreturn one(114)")
        # The same bytes of code in both cases: where it writes comes from its folder.
        bundle = write_bundle(tmp_path / answer.decode(), "LOG = open(__file__[:-8] + 'where').read()\n" + code)
        (bundle / "where").write_text(str(log))
        clock = Clock(track)
        clock.start()
        book = Book(tmp_path / f"{answer.decode()}.jsonl", tmp_path / "snapshots", track, clock, lambda s: (0, 1))
        made = book.submit(bundle, "")
        questions = [Question("q1", "c", "f", b"the prompt ", answer), Question("q2", "c", "f", b"next ", answer)]
        judged = judge(LocalBox(), tmp_path / "snapshots" / f"{made.sha256}.tar.gz", questions, track)
        assert judged.failures == {}
        transcripts.append([(p.name, p.read_bytes()) for p in sorted(log.iterdir())])
    assert transcripts[0] == transcripts[1]
    assert len(transcripts[0]) == 10


def test_the_answer_is_nowhere_in_the_jail(tmp_path: Path) -> None:
    canary = b"CANARY" * 3
    body = f"""
found = []
for pid in ('self', str(os.getppid())):
    for what in ('cmdline', 'environ'):
        found.append(open(f'/proc/{{pid}}/{{what}}', 'rb').read())
found += [a.encode() for a in sys.argv] + [repr(sys._getframe(i).f_locals).encode() for i in range(3)]
open('{tmp_path}/found', 'ab').write(b'|'.join(found))
return one(67)"""
    bundle = write_bundle(tmp_path / "b", model(body))
    clock = Clock(QUICK)
    clock.start()
    made = Book(tmp_path / "h", tmp_path / "s", QUICK, clock, lambda s: (0, 1)).submit(bundle, "")
    judged = judge(
        LocalBox(), tmp_path / "s" / f"{made.sha256}.tar.gz", [Question("q", "c", "f", b"prompt ", canary)], QUICK
    )
    assert judged.failures == {}
    assert (tmp_path / "found").stat().st_size > 100
    assert canary not in (tmp_path / "found").read_bytes()


def test_asking_leaves_no_file_open_and_no_process(tmp_path: Path) -> None:
    before = open_files()
    box = LocalBox()
    bundle = write_bundle(tmp_path / "b", model("os.fork() and None\nreturn one(65)"))
    for _ in itertools.repeat(None, 3):
        examine(box, bundle, [Ask("q", b"p", 2)], QUICK)
    assert open_files() == before
    assert box._running == []
