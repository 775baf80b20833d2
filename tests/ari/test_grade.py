from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari import judge
from crucible.ari.agents import scripted
from crucible.ari.boxes.bwrap import BwrapBox
from crucible.ari.boxes.local import LocalBox
from crucible.ari.exam.questions import Question, encode
from crucible.ari.grade import grade
from crucible.ari.judge import Group, Order, coarse
from crucible.ari.run import run
from crucible.ari.rundir import RunDir
from crucible.ari.verdict import METRICS, SEALED, UNISOLATED
from crucible.errors import IntegrityBroken, Mistake
from crucible.kernel import ledger
from crucible.kernel.record import from_builtins

from .conftest import ECHO, small_track

AGENT = f"""
mkdir m && echo '{{"schema": 1, "entry": "model:Model"}}' > m/manifest.json
cat > m/model.py <<'EOF'
{ECHO}
EOF
runner submit m && runner promote s1
"""
QUESTIONS = [
    *(Question(f"r{i}", "records", "f", b"SECRETPROMPT %d a" % i, b"aaa" if i < 4 else b"aab") for i in range(6)),
    *(
        Question(f"l{i}", "lists", "f", b"\xffSECRETPROMPT %d" % i + b"\xff", b"\xff" if i == 0 else b"x")
        for i in range(5)
    ),
    *(Question(f"n{i}", "numbers", "f", b"SECRETPROMPT %d b" % i, b"bb" if i < 2 else b"b\n") for i in range(3)),
]
"""The model repeats the last byte of the prompt: 4 of 6, 1 of 5 and 2 of 3 are right."""
CODE_ALONE = "weights not used: none are declared, so the answers are owed to the code alone"


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    path = tmp_path / "exam.jsonl"
    path.write_bytes(encode(QUESTIONS))
    return path


def hour(tmp_path: Path, script: str = AGENT) -> RunDir:
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "agent.sh"
    path.write_text(script)
    return run(
        small_track(budget_s=60, questions=14), scripted.load(f"script:{path}"), 1, tmp_path / "runs", LocalBox()
    )


def records(place: RunDir) -> list[msgspec.Struct]:
    return [from_builtins(line.entry.body, "test") for line in ledger.read(place.ledger, "record")]


def test_a_known_rule_gets_exactly_the_score_computed_by_hand(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    graded = grade(place, exam, LocalBox())
    assert (graded.outcome, graded.passed, graded.questions) == ("measured", 7, 14)
    assert graded.score == pytest.approx(50.0)
    assert graded.by_category == {"lists": Group(1, 5), "numbers": Group(2, 3), "records": Group(4, 6)}
    assert graded.flags == [UNISOLATED, CODE_ALONE]
    (record,) = records(place)
    assert set(record.metrics) <= set(METRICS)
    assert (record.artefact, record.seed) == (place.read_finished().artefact, 1)
    assert record.pin.facts["exam"] == graded.exam_sha256
    assert record.detail["by_category"] == {
        "other": {"passed": 3, "questions": 8},
        "records": {"passed": 4, "questions": 6},
    }


def test_the_jail_gives_the_same_judgement_and_names_what_held_it(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    graded = grade(place, exam, BwrapBox())
    assert (graded.passed, graded.questions, graded.failures, graded.restarts) == (7, 14, {}, 0)
    assert graded.flags == [CODE_ALONE] and graded.order == Order(14, 0)
    (record,) = records(place)
    # The last byte has e of e + 255 parts, any other one: along the true answers.
    pairs = [pair for q in QUESTIONS for pair in itertools.pairwise(q.prompt[-1:] + q.answer)]
    bits = [math.log2(math.e + 255) - (math.log2(math.e) if a == b else 0.0) for a, b in pairs]
    assert record.metrics["bpb"] == graded.bpb == pytest.approx(sum(bits) / len(bits), rel=1e-6)
    assert record.detail["grader"]["box"] == "bwrap" and "uid" in record.detail["grader"]["limits"]


def test_the_replies_are_in_the_ledger_before_the_record_is(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    graded = grade(place, exam, LocalBox())
    seal, record = list(ledger.read(place.ledger))[-2:]
    assert (seal.entry.kind, record.entry.kind) == (SEALED, "record")
    assert seal.entry.body == {
        "run": graded.run,
        "exam": graded.exam_sha256,
        "replies_sha256": graded.replies_sha256,
        "passed": 7,
    }


def test_a_judgement_that_was_stopped_after_its_seal_is_made_again_and_compared(
    tmp_path: Path, exam: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hour(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(judge, "bits_per_byte", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            grade(place, exam, LocalBox())
    assert records(place) == []
    again = grade(place, exam, LocalBox())
    assert again.passed == 7 and not any("earlier" in flag for flag in again.flags)

    other = hour(tmp_path / "other")
    run_id = other.read_finished().run
    body = {"run": run_id, "exam": again.exam_sha256, "replies_sha256": "0" * 64, "passed": 14}
    ledger.append(other.ledger, SEALED, body)
    flagged = grade(other, exam, LocalBox())
    assert flagged.passed == 7 and "1 earlier judgements that did not finish had other replies" in flagged.flags


def test_a_second_judgement_returns_the_first_and_another_exam_is_another_pin(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    first = grade(place, exam, LocalBox())
    assert grade(place, exam, LocalBox()) == first
    assert len(records(place)) == 1
    other = tmp_path / "other.jsonl"
    other.write_bytes(encode(QUESTIONS[:6]))
    again = grade(place, other, LocalBox())
    assert again.flags == [UNISOLATED, "the exam has 6 questions, the track tiny says 14", CODE_ALONE]
    one, two = records(place)
    assert [difference.fact for difference in one.pin.differences(two.pin)] == ["exam"]


def test_only_equal_bytes_are_equal(tmp_path: Path) -> None:
    """The model says two spaces, or AA: white space and case are bytes like any other."""
    near = [
        Question("q1", "c", "f", b"p ", b" \n"),
        Question("q2", "c", "f", b"pA", b"Aa"),
        Question("q3", "c", "f", b"p ", b"  "),
    ]
    path = tmp_path / "near.jsonl"
    path.write_bytes(encode(near))
    assert grade(hour(tmp_path), path, LocalBox()).passed == 1


def test_nothing_promoted_scores_zero_and_counts(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path, AGENT.replace("&& runner promote s1", ""))
    graded = grade(place, exam, LocalBox())
    assert (graded.outcome, graded.score, graded.passed) == ("empty", 0.0, 0)
    (record,) = records(place)
    assert record.outcome.reason == "nothing was promoted" and record.metrics["score"] == 0.0


def test_a_submission_that_only_breaks_is_measured_as_zero(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path, AGENT.replace("class Model", "raise OSError(28, 'No space left on device')\nclass Model"))
    graded = grade(place, exam, LocalBox())
    assert (graded.outcome, graded.score, graded.failures) == ("measured", 0.0, {"load": 14})


def test_what_was_changed_after_the_run_is_never_scored(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    finished = place.read_finished()
    assert finished.artefact is not None
    snapshot, history = place.snapshot(finished.artefact), place.history
    for path in (snapshot, history, place.finished):
        kept = path.read_bytes()
        path.write_bytes(kept.replace(b"s1", b"s2") if path == place.finished else kept[:-40])
        with pytest.raises(IntegrityBroken):
            grade(place, exam, LocalBox())
        path.write_bytes(kept)
    ledger.append(history, "submission.promoted", {"event": "promoted", "id": "s1", "at_s": 1.0})
    with pytest.raises(IntegrityBroken):
        grade(place, exam, LocalBox())
    assert records(place) == []


def test_an_exam_other_than_the_published_one_scores_nothing(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    with pytest.raises(IntegrityBroken):
        grade(place, exam, LocalBox(), "0" * 64)
    assert records(place) == []


def test_a_run_that_still_runs_or_is_invalid_is_not_graded(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    kept = place.finished.read_bytes()
    place.finished.unlink()
    with pytest.raises(Mistake, match="not finished"):
        grade(place, exam, LocalBox())
    invalid = json.loads(kept) | {"outcome": "invalid", "cause": "machinery failed", "reason": "disk"}
    place.finished.write_text(json.dumps(invalid))
    with pytest.raises(Mistake, match="invalid"):
        grade(place, exam, LocalBox())


def test_no_exam_text_is_in_anything_a_run_leaves(tmp_path: Path, exam: Path) -> None:
    place = hour(tmp_path)
    grade(place, exam, LocalBox())
    for path in place.root.rglob("*"):
        assert not path.is_file() or b"SECRETPROMPT" not in path.read_bytes(), path


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 12), min_size=1, max_size=6))
def test_no_published_group_and_no_difference_is_smaller_than_five_questions(sizes: dict[str, int]) -> None:
    groups = {name: Group(size // 2, size) for name, size in sizes.items()}
    published = coarse(groups)
    assert all(group.questions >= 5 for group in published.values())
    rest = sum(sizes.values()) - sum(group.questions for group in published.values())
    assert rest == 0 or not published, "what is left over could be read from the total"
    if all(size >= 5 for size in sizes.values()):
        assert published == groups
