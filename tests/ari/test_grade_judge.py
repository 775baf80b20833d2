"""What a judgement is made of: the seal, the second order, bits-per-byte, the audit of the weights."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari import bitsperbyte
from crucible.ari.artefact import pack
from crucible.ari.bitsperbyte import FLOOR_BITS, cost
from crucible.ari.boxes.local import LocalBox
from crucible.ari.exam.questions import Question
from crucible.ari.judge import Judged, judge
from crucible.ari.shuffle import permuted, shuffled
from crucible.ari.submit import artefact_limits

from .conftest import ECHO, small_track, write_bundle

TRACK = small_track(load_limit_s=20, question_limit_s=10, grade_limit_s=120)
ECHOED = [Question(f"q{n}", "c", "f", b"say %d: " % n + bytes([65 + n]), bytes([65 + n]) * 3) for n in range(6)]


def judged(
    tmp_path: Path, code: str, questions: list[Question], weights: dict[str, bytes] | None = None, **more: Any
) -> Judged:
    folder = write_bundle(tmp_path / "source", code, **(weights or {}))
    (folder / "manifest.json").write_text(
        json.dumps({"schema": 1, "entry": "model:Model", "weights": list(weights or {})})
    )
    track = more.pop("track", TRACK)
    with (tmp_path / "b.tar.gz").open("wb") as stream:
        pack(folder, stream, artefact_limits(track))
    return judge(LocalBox(), tmp_path / "b.tar.gz", questions, track, **more)


def test_the_replies_are_sealed_before_a_true_byte_is_shown(tmp_path: Path) -> None:
    """The model says As; the answers are Bs: a prefix with a B in it can only come from teacher forcing."""
    log = tmp_path / "log"
    log.mkdir()
    code = ECHO.replace(
        "logits = ", f"open('{log}/%d' % __import__('time').monotonic_ns(), 'xb').write(prefix); logits = "
    )
    seen: list[tuple[str, int, bool]] = []

    def seal(sha256: str, passed: int) -> None:
        seen.append((sha256, passed, any(b"B" in path.read_bytes() for path in log.iterdir())))

    result = judged(tmp_path, code, [Question("q", "c", "f", b"A", b"ABBB")], seal=seal)
    assert seen == [(result.replies_sha256, 0, False)]
    assert any(b"B" in path.read_bytes() for path in log.iterdir())


def test_the_seal_depends_on_the_replies_and_the_salt_and_not_on_the_answers(tmp_path: Path) -> None:
    one = judged(tmp_path / "1", ECHO, ECHOED)
    swapped = [Question(q.id, q.category, q.family, q.prompt, b"xyz") for q in ECHOED]
    assert judged(tmp_path / "2", ECHO, swapped).replies_sha256 == one.replies_sha256
    assert judged(tmp_path / "3", ECHO, ECHOED, salt="s").replies_sha256 != one.replies_sha256
    assert judged(tmp_path / "4", ECHO.replace("prefix[-1]", "7"), ECHOED).replies_sha256 != one.replies_sha256


def test_an_order_that_matters_is_flagged_with_its_count_and_changes_no_score(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("")
    code = f"""
class Model:
    def __init__(self, directory):
        with open({str(counter)!r}, "a+") as stream:
            stream.seek(0)
            self.turn = len(stream.read())
            stream.write("x")
    def next_byte_logits(self, prefix):
        logits = [0.0] * 256
        logits[prefix[-1] if self.turn < 6 or prefix.startswith(b"say 0") else 0] = 1.0
        return logits
"""
    result = judged(tmp_path, code, ECHOED)
    assert (result.passed, result.order.asked, result.order.differ) == (6, 6, 5)
    assert "order-dependent: 5 of 6 answers differ in another order" in result.flags


def test_what_timed_out_is_not_given_its_time_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    code = f"""
import time
class Model:
    def __init__(self, directory): pass
    def next_byte_logits(self, prefix):
        if b"slow" in prefix:
            open({str(log)!r}, "a").write("x")
            time.sleep(60)
        logits = [0.0] * 256
        logits[prefix[-1]] = 20.0
        return logits
"""
    questions = [Question("slow", "c", "f", b"slow A", b"AA"), Question("fast", "c", "f", b"fast A", b"AA")]
    result = judged(tmp_path, code, questions, track=small_track(load_limit_s=20, question_limit_s=1))
    assert log.read_text() == "x"
    assert (result.passed, result.failures, result.order.asked) == (1, {"question time": 1}, 1)
    assert result.bpb == pytest.approx(FLOOR_BITS / 2, abs=1e-3)


def test_questions_beyond_the_total_time_are_flagged(tmp_path: Path) -> None:
    code = ECHO.replace("logits = ", "__import__('time').sleep(1.0); logits = ", 1)
    result = judged(tmp_path, code, ECHOED, track=small_track(grade_limit_s=2.5))
    assert result.failures["total time"] >= 3
    assert any(flag.startswith("out of time") for flag in result.flags)


# --- bits per byte -----------------------------------------------------------------------------------------------------


def test_bits_per_byte_are_those_computed_by_hand(tmp_path: Path) -> None:
    """ln 3 for one byte and 0 for the others: p = 3 / 258, or 1 / 258 for any other byte."""
    code = ECHO.replace("= 1.0", "= __import__('math').log(3)")
    questions = [Question("a", "c", "f", b"A", b"AAB"), Question("b", "c", "f", b"x", b"yy")]
    likely, other = math.log2(258 / 3), math.log2(258)
    expected = (2 * likely + other + other + likely) / 5
    assert judged(tmp_path, code, questions).bpb == pytest.approx(expected, rel=1e-7)


def test_a_model_that_fails_costs_the_floor_for_what_is_left(tmp_path: Path) -> None:
    code = ECHO.replace("logits = ", "assert b'!' not in prefix\n        logits = ", 1).replace("= 1.0", "= 0.0")
    result = judged(tmp_path, code, [Question("a", "c", "f", b"A", b"AA!A")])
    assert result.bpb == pytest.approx((3 * 8.0 + FLOOR_BITS) / 4)


def spread(some: list[float]) -> list[float]:
    """256 numbers made of a few."""
    return [some[n % len(some)] for n in range(256)]


numbers = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9).map(spread)


@given(numbers, st.integers(0, 255))
def test_a_cost_is_never_negative_nor_above_the_floor(logits: list[float], byte: int) -> None:
    assert 0.0 <= cost(logits, byte) <= FLOOR_BITS


@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=9).map(spread))
def test_the_probabilities_add_up_to_one(logits: list[float]) -> None:
    bits = [cost(logits, byte) for byte in range(256)]
    if max(bits) < FLOOR_BITS:
        assert math.fsum(2.0**-b for b in bits) == pytest.approx(1.0, rel=1e-9)
    shifted = [number + 4.0 for number in logits]
    assert cost(shifted, 3) == pytest.approx(cost(logits, 3), abs=1e-4)


# --- the audit of the weights ------------------------------------------------------------------------------------------

USES = """
class Model:
    def __init__(self, directory):
        self.table = open(directory + "/w.bin", "rb").read()
    def next_byte_logits(self, prefix):
        logits = [0.0] * 256
        logits[self.table[prefix[-1]]] = 1.0
        return logits
"""


def test_a_model_that_uses_its_weights_is_not_flagged(tmp_path: Path) -> None:
    result = judged(tmp_path, USES, ECHOED, {"w.bin": bytes(range(256))})
    assert (result.passed, result.audit.weights, result.audit.asked, result.flags) == (6, 1, 6, [])
    assert result.audit.kept < 3


@pytest.mark.parametrize(
    "reading", ["pass", "__import__('json').load(open(directory + '/w.bin'))[0]", "load(directory)"]
)
def test_a_model_that_does_not_is_flagged_and_scored_as_earned(tmp_path: Path, reading: str) -> None:
    """Never read at all; or read as JSON, which shuffling breaks: that one counts as used, and only the number says so."""
    code = "import numpy\n" if "load(directory)" in reading else ""
    code += ECHO.replace("pass", reading.replace("load(directory)", "numpy.load(directory + '/w.bin')"), 1)
    data = io.BytesIO()
    np.save(data, np.arange(4096, dtype=np.float32))
    result = judged(tmp_path, code, ECHOED, {"w.bin": b"[1, 2, 3, 44, 5]" if "json" in reading else data.getvalue()})
    assert result.passed == 6
    used = "json" in reading
    assert result.audit.kept == (0 if used else 6)
    flag = "weights not used: 6 of 6 right answers stay with the weights shuffled"
    assert result.flags == ([] if used else [flag])


def test_formats_in_wide_use_still_load_after_shuffling(tmp_path: Path) -> None:
    import torch

    array = np.arange(5000, dtype=np.float32)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", w=array, v=array[:70])
    torch.save({"w": torch.arange(5000.0), "v": torch.arange(90.0)}, tmp_path / "c.pt")
    header = json.dumps({"w": {"dtype": "F32", "shape": [5000], "data_offsets": [0, 20000]}}).encode()
    (tmp_path / "d.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + array.tobytes())
    names = [path.name for path in sorted(tmp_path.iterdir())]
    shuffled(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy", names, "seed")
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    for found in (
        np.load(copy / "a.npy"),
        np.load(copy / "b.npz")["w"],
        torch.load(copy / "c.pt", weights_only=True)["w"].numpy(),
        np.frombuffer((copy / "d.safetensors").read_bytes()[8 + len(header) :], dtype=np.float32),
    ):
        assert sorted(found) == sorted(array) and (found != array).mean() > 0.9


@given(st.binary(max_size=3000), st.integers(0, 10))
def test_shuffling_keeps_the_bytes_and_repeats_from_its_seed(data: bytes, seed: int) -> None:
    once = permuted(data, random.Random(seed))
    assert sorted(once) == sorted(data) and once == permuted(data, random.Random(seed))


@pytest.mark.parametrize("kind", ["overlap", "deflated", "cut", "lies"])
def test_a_hostile_archive_is_shuffled_as_plain_bytes(kind: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if kind == "deflated" else zipfile.ZIP_STORED) as archive:
        archive.writestr("w", bytes(100_000))
    data = out.getvalue()
    if kind == "cut":
        data = data[:50_000]
    if kind == "lies":
        data = data.replace(struct.pack("<I", 100_000), struct.pack("<I", 4_000_000_000))
    if kind == "overlap":
        end = data.index(b"PK\x01\x02")
        entry = data[end : data.index(b"PK\x05\x06")]
        data = data[:end] + 50 * entry + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 50, 50, 50 * len(entry), end, 0)
    shuffled_bytes = permuted(data, random.Random(1))
    assert len(shuffled_bytes) == len(data) and sorted(shuffled_bytes) == sorted(data)


def test_the_floor_is_the_one_of_the_protocol() -> None:
    assert bitsperbyte.FLOOR_BITS == 32.0 and cost([0.0] * 255 + [-1e9], 255) == 32.0
