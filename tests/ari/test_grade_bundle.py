"""`crucible ari grade-bundle` from outside: anyone's archive, anyone's exam, the real jail, one document."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crucible.ari.exam.questions import Question, encode
from crucible.kernel import digest, ledger
from crucible.kernel.record import from_builtins

from .conftest import ECHO, write_bundle

QUESTIONS = [
    *(Question(f"r{n}", "records", "f", b"SECRETPROMPT %d a" % n, b"aaa" if n < 4 else b"aab") for n in range(6)),
    *(Question(f"l{n}", "lists", "f", b"SECRETPROMPT %d z" % n, b"zz" if n < 1 else b"SECRETANSWER") for n in range(5)),
]
"""Whoever repeats the last byte is right 4 times of 6 and once of 5."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Grade = Callable[..., Ran]


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    path = tmp_path / "exam.jsonl"
    path.write_bytes(encode(QUESTIONS))
    return path


@pytest.fixture
def grade(tmp_path: Path, exam: Path) -> Grade:
    """`crucible ari grade-bundle ...`, in a process of its own."""

    def run(bundle: Path, *more: object, before: Sequence[str] = ()) -> Ran:
        argv = [
            *before,
            sys.executable,
            "-m",
            "crucible",
            "ari",
            "grade-bundle",
            bundle,
            "--exam",
            exam,
            *more,
            "--json",
        ]
        (tmp_path / "tmp").mkdir(exist_ok=True)
        env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        done = subprocess.run([str(part) for part in argv], cwd=tmp_path, env=env, capture_output=True, timeout=200)
        assert list((tmp_path / "tmp").iterdir()) == [], "it left something behind"
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def tar(folder: Path, into: Path, *options: str) -> Path:
    """As people pack: plain tar, with ./, folders, times and owners in it."""
    subprocess.run(["tar", "-czf", into, *options, "-C", folder, "."], check=True)
    return into


def test_a_known_rule_gets_exactly_the_score_computed_by_hand(grade: Grade, tmp_path: Path, exam: Path) -> None:
    bundle = tar(write_bundle(tmp_path / "source"), tmp_path / "b.tar.gz")
    done = grade(bundle, "--sha256", digest.of_file(exam), "--ledger", tmp_path / "ledger.jsonl")
    assert done.code == 0, done.err
    said = done.json
    assert (said["passed"], said["questions"], said["score"]) == (5, 11, pytest.approx(100 * 5 / 11))
    assert said["by_category"] == {"lists": {"passed": 1, "questions": 5}, "records": {"passed": 4, "questions": 6}}
    assert {"score", "passed", "questions", "bpb", "flags", "by_category", "seconds"} <= said.keys()
    assert said["grader"]["box"] == "bwrap" and "network namespace" in said["grader"]["limits"]["network"]
    assert (said["order"], said["failures"], said["restarts"]) == ({"asked": 11, "differ": 0}, {}, 0)
    assert said["exam_sha256"] == digest.of_file(exam)
    seal, line = ledger.read(tmp_path / "ledger.jsonl")
    assert seal.entry.body["replies_sha256"] == said["replies_sha256"] and seal.entry.body["passed"] == 5
    record = from_builtins(line.entry.body, "test")
    assert (record.digest, record.artefact) == (said["record"], said["artefact"])
    assert record.metrics["bpb"] == said["bpb"] and record.metrics["score"] == said["score"]


def test_no_exam_text_and_nothing_a_bundle_prints_comes_out(grade: Grade, tmp_path: Path) -> None:
    loud = ECHO.replace("logits = ", "print('LOUD', prefix, flush=True); raise OSError(prefix); logits = ", 1)
    done = grade(tar(write_bundle(tmp_path / "source", loud), tmp_path / "b.tar.gz"), "--ledger", tmp_path / "ledger")
    assert done.code == 0 and done.json["failures"] == {"exception": 11}
    for text in (done.out, done.err, (tmp_path / "ledger").read_text()):
        assert "SECRET" not in text and "LOUD" not in text


def test_however_it_was_packed_the_same_content_is_the_same_artefact(grade: Grade, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "source")
    one = grade(tar(folder, tmp_path / "1.tar.gz", "--sort=name")).json
    os.utime(folder / "model.py", (1, 1))
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("model.py", "manifest.json"):
            archive.add(folder / name, name)
    (tmp_path / "2.tar.gz").write_bytes(gzip.compress(plain.getvalue(), 1))
    two = grade(tmp_path / "2.tar.gz").json
    assert (one["artefact"], one["bytes"], one["passed"]) == (two["artefact"], two["bytes"], two["passed"])
    assert one["bytes"] not in ((tmp_path / "1.tar.gz").stat().st_size, (tmp_path / "2.tar.gz").stat().st_size)


def test_what_cannot_be_packed_is_refused_with_the_reason(grade: Grade, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "source")
    (folder / "link").symlink_to("/etc/passwd")
    done = grade(tar(folder, tmp_path / "b.tar.gz"))
    assert done.code == 1 and "link" in done.json["error"]["message"]
    (tmp_path / "junk").write_bytes(b"not an archive")
    done = grade(tmp_path / "junk")
    assert done.code == 1 and done.json["error"]["kind"] == "SubmissionRefused"
    assert grade(tmp_path / "nowhere").code == 3


def test_another_exam_than_the_published_one_is_never_graded_with(grade: Grade, tmp_path: Path) -> None:
    done = grade(tar(write_bundle(tmp_path / "source"), tmp_path / "b.tar.gz"), "--sha256", "0" * 64)
    assert done.code == 6 and "published" in done.json["error"]["message"] and "SECRET" not in done.out + done.err


def test_the_local_box_says_loudly_that_it_isolates_nothing(grade: Grade, tmp_path: Path) -> None:
    done = grade(tar(write_bundle(tmp_path / "source"), tmp_path / "b.tar.gz"), "--box", "local")
    assert done.code == 0 and "isolates NOTHING" in done.err
    assert any("nothing isolated" in flag for flag in done.json["flags"]) and done.json["passed"] == 5
    assert grade(tmp_path / "b.tar.gz", "--box", "docker").code == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="hides bubblewrap by a mount")
def test_where_there_is_no_sandbox_nothing_is_graded_in_a_weaker_one(grade: Grade, tmp_path: Path) -> None:
    bundle = tar(write_bundle(tmp_path / "source"), tmp_path / "b.tar.gz")
    real = shutil.which("bwrap")
    assert real is not None
    hidden = (real, "--dev-bind", "/", "/", "--ro-bind", "/dev/null", real)
    done = grade(bundle, before=hidden)
    assert done.code == 7, done.err
    assert done.json["error"]["kind"] == "SandboxUnavailable" and "--box local" in done.json["error"]["fix"]
    assert grade(bundle, "--box", "local", before=hidden).code == 0


def test_the_limits_of_a_track_file_hold(grade: Grade, tmp_path: Path) -> None:
    track = tmp_path / "strict.toml"
    track.write_text(
        'name = "strict"\nquestion_limit_s = 1.5\ngrade_limit_s = 60\nquestions = 11\nartifact_bytes = 100000\n'
    )
    slow = ECHO.replace("logits = ", "__import__('time').sleep(9 if b'SECRETPROMPT 3' in prefix else 0); logits = ", 1)
    done = grade(tar(write_bundle(tmp_path / "source", slow), tmp_path / "b.tar.gz"), "--track", track)
    assert (done.json["failures"], done.json["passed"], done.json["track"]) == ({"question time": 2}, 4, "strict")
    folder = write_bundle(tmp_path / "large", ECHO, noise=os.urandom(100_001))
    done = grade(tar(folder, tmp_path / "large.tar.gz"), "--track", track)
    assert done.code == 1 and "100,000" in done.json["error"]["message"]


@pytest.mark.slow
def test_torch_works_in_the_jail(grade: Grade, tmp_path: Path, exam: Path) -> None:
    import torch

    code = """
import os, sys
import numpy, torch
class Model:
    def __init__(self, directory):
        self.table = torch.load(directory + "/w.pt", weights_only=True)
        self.layer = torch.nn.Linear(64, 64)
        assert not any(name.startswith(("crucible", "pytest", "msgspec")) for name in os.listdir(os.path.dirname(torch.__path__[0])))
    def next_byte_logits(self, prefix):
        assert torch.get_num_threads() == 1
        with torch.inference_mode():
            self.layer(torch.randn(8, 64))
            return self.table[prefix[-1]]
"""
    data = io.BytesIO()
    torch.save(torch.eye(256), data)
    folder = write_bundle(tmp_path / "source", code)
    (folder / "w.pt").write_bytes(data.getvalue())
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "entry": "model:Model", "weights": ["w.pt"]}))
    exam.write_bytes(encode(QUESTIONS[:1]))
    said: dict[str, Any] = grade(tar(folder, tmp_path / "b.tar.gz")).json
    assert (said["passed"], said["failures"], said["restarts"]) == (1, {}, 0)
    assert said["grader"]["runtime"].keys() == {"python", "numpy", "torch"}
    assert not any("weights not used" in flag for flag in said["flags"])
