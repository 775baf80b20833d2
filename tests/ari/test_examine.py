from __future__ import annotations

import itertools
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crucible.ari.box import Job
from crucible.ari.boxes.local import LocalBox, LocalRunning
from crucible.ari.clock import Clock
from crucible.ari.exam.questions import Question
from crucible.ari.examine import Ask, Reply, examine
from crucible.ari.judge import judge
from crucible.ari.submit import Book
from crucible.errors import MachineryFailed

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


def ask(tmp_path: Path, code: str, *prompts: bytes, length: int = 3, track=QUICK, box=None, **more: Any) -> list[Reply]:  # type: ignore[no-untyped-def]
    bundle = write_bundle(tmp_path / "bundle", code)
    asks = [Ask(f"q{n}", prompt, length) for n, prompt in enumerate(prompts or (b"ab",))]
    return examine(box or LocalBox(), bundle, asks, track, **more)


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
    "kills itself": ("os.kill(os.getpid(), 9)", "ended"),
    "gigabytes": ("os.write(4, b'\\x7f\\xff\\xff\\xff' + b'x' * 50000)\nreturn one(65)", "frame"),
    "forged frame": ("os.write(4, b'\\0\\0\\0\\1P')\nreturn one(65)", "frame"),
    "no nonce": ("os.write(4, b'\\0\\0\\4\\x11L' + bytes(16 + 1024))\nreturn one(65)", "frame"),
    "slow bytes": ("for _ in range(30): os.write(4, b'\\0'); time.sleep(0.1)", "frame"),
    "closed pipe": ("os.close(4)", "ended"),
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


def test_a_reply_made_before_it_was_asked_for_is_none(tmp_path: Path) -> None:
    """A second frame right after the first would be taken for the next step's, if steps had no nonce of their own."""
    early = "import struct\nframe = b'L' + bytes(16) + struct.pack('<256f', *one(65))"
    code = model(f"{early}\nos.write(4, struct.pack('>I', len(frame)) + frame)\nreturn one(65)")
    assert ask(tmp_path, code)[0].failure == "frame"


def test_a_bundle_that_names_torch_finds_it_loaded(tmp_path: Path) -> None:
    body = "return torch.nn.functional.one_hot(torch.tensor(72 + torch.get_num_threads()), 256).float()"
    reply = ask(tmp_path, "import torch\n" + model(body), track=small_track(load_limit_s=60, question_limit_s=30))[0]
    assert (reply.answer, reply.failure) == (b"III", None)


def test_an_entry_may_be_called_like_a_module_of_the_library(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "b", "")
    (bundle / "manifest.json").write_text('{"schema": 1, "entry": "json:Model"}')
    (bundle / "json.py").write_text(ECHO)
    assert examine(LocalBox(), bundle, [Ask("q", b"ab", 2)], QUICK)[0].answer == b"bb"


def test_every_question_is_asked_once_whatever_the_number_of_jails(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    code = model(f"open('{tmp_path}/seen/' + prefix.hex(), 'a').write('x')\nreturn one(65)")
    prompts = [struct.pack(">H", n) for n in range(40)]
    replies = ask(tmp_path, code, *prompts, length=1, at_once=3)
    assert [reply.id for reply in replies] == [f"q{n}" for n in range(40)]
    seen = Counter({path.name: len(path.read_text()) for path in (tmp_path / "seen").iterdir()})
    assert seen == Counter({prompt.hex(): 1 for prompt in prompts})


def test_when_the_time_is_over_everything_stops_at_once(tmp_path: Path) -> None:
    over = threading.Event()
    threading.Timer(1.0, over.set).start()
    track = small_track(load_limit_s=60, question_limit_s=60)
    replies = ask(tmp_path, model("time.sleep(50)"), b"a", b"b", b"c", b"d", track=track, over=over.is_set, at_once=2)
    assert [reply.failure for reply in replies] == ["total time"] * 4


def test_an_error_of_ours_ends_every_jail(tmp_path: Path) -> None:
    class Breaks(LocalBox):
        started = 0

        def start(self, job: Job) -> LocalRunning:
            Breaks.started += 1
            if Breaks.started == 2:
                raise MachineryFailed("no processes left", fix="")
            return super().start(job)

    box = Breaks()
    with pytest.raises(MachineryFailed):
        ask(tmp_path, model("return one(65)"), *([b"a"] * 50), box=box, at_once=2)
    assert box._running == []


def test_a_zygote_that_dies_is_started_again_and_costs_one_question(tmp_path: Path) -> None:
    """In the local box nothing keeps a question's process from killing the zygote; it still hurts nobody else."""
    code = model("if prefix.startswith(b'bad'):\n    os.kill(os.getppid(), 9)\n    time.sleep(5)\nreturn one(90)")
    prompts = [b"bad" if n % 3 == 1 else b"good" for n in range(9)]
    replies = ask(tmp_path, code, *prompts, track=small_track(load_limit_s=20, question_limit_s=20))
    assert [reply.failure for reply in replies] == ["ended" if p == b"bad" else None for p in prompts]


def test_swapping_the_hidden_answer_leaves_the_transcript_identical(tmp_path: Path) -> None:
    track = QUICK
    transcripts: list[Counter[bytes]] = []
    for answer in (b"right", b"wrong"):
        log = tmp_path / f"log-{answer.decode()}"
        log.mkdir()
        code = model("open(f'{LOG}/{time.monotonic_ns()}', 'xb').write(prefix)\nreturn one(114)")
        # The same bytes of code in both cases: where it writes comes from its folder.
        bundle = write_bundle(tmp_path / answer.decode(), "LOG = open(__file__[:-8] + 'where').read()\n" + code)
        (bundle / "where").write_text(str(log))
        clock = Clock(track)
        clock.start()
        book = Book(tmp_path / f"{answer.decode()}.jsonl", tmp_path / "snapshots", track, clock, lambda s: (0, 1))
        made = book.submit(bundle, "")
        questions = [Question("q1", "c", "f", b"the prompt ", answer), Question("q2", "c", "f", b"next ", answer)]

        def sealed(sha256: str, passed: int, log: Path = log) -> None:
            """What was asked up to here decided the score; bits-per-byte, which is forced along the answer, comes after."""
            transcripts.append(Counter(path.read_bytes() for path in log.iterdir()))

        snapshot = tmp_path / "snapshots" / f"{made.sha256}.tar.gz"
        assert judge(LocalBox(), snapshot, questions, track, seal=sealed).failures == {}
    assert transcripts[0] == transcripts[1]
    greedy = [prompt + b"r" * n for prompt in (b"the prompt ", b"next ") for n in range(5)]
    assert transcripts[0] == Counter(greedy)


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
