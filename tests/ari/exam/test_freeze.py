from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from crucible.ari.exam.build import build_exam
from crucible.ari.exam.freeze import freeze, take_in
from crucible.ari.exam.questions import Header, Question, encode, load, save_secret
from crucible.documents import as_builtins
from crucible.errors import BadConfig, BadData
from crucible.kernel import digest

SEED = bytes(range(50, 90))


@pytest.fixture
def exam(tmp_path: Path) -> Path:
    path = tmp_path / "safe" / "EXAM"
    save_secret(path, build_exam(SEED, 16, "7"))
    return path


def test_freezing_publishes_four_facts_and_twice_gives_the_same(exam: Path) -> None:
    published, departures = freeze(exam)
    assert set(as_builtins(published)) == {"sha256", "questions", "categories", "protocol_version"}
    assert (published.sha256, published.questions, published.protocol_version) == (digest.of_file(exam), 16, "7")
    assert sum(published.categories.values()) == 16 and departures == []
    assert stat.S_IMODE(exam.stat().st_mode) == 0o400
    assert freeze(exam) == (published, departures) and stat.S_IMODE(exam.stat().st_mode) == 0o400


def test_building_again_over_a_frozen_exam_leaves_it_frozen(exam: Path) -> None:
    freeze(exam)
    save_secret(exam, build_exam(SEED, 16, "7"))
    assert stat.S_IMODE(exam.stat().st_mode) == 0o400
    with pytest.raises(BadConfig, match="another file"):
        save_secret(exam, build_exam(SEED[::-1], 16, "7"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_an_exam_that_others_could_read_is_not_frozen(exam: Path, mode: int) -> None:
    exam.chmod(mode)
    with pytest.raises(BadConfig, match=f"{mode:o}"):
        freeze(exam)
    assert stat.S_IMODE(exam.stat().st_mode) == mode


def test_an_exam_in_a_git_work_tree_is_not_frozen(exam: Path) -> None:
    (exam.parent / ".git").mkdir()
    with pytest.raises(BadConfig, match="git work tree"):
        freeze(exam)


@pytest.mark.parametrize("header", [None, Header(1, "1", "short")])
def test_without_a_salt_nothing_is_published(tmp_path: Path, header: Header | None) -> None:
    path = tmp_path / "EXAM"
    save_secret(path, encode([Question("q", "c", "f", b"secret words ", b"answer")], header))
    with pytest.raises(BadData, match="salt") as caught:
        freeze(path)
    assert "secret words" not in caught.value.message


def lines(folder: Path, *extra: dict[str, str]) -> Path:
    plain = {"id": "a", "category": "c", "family": "f", "prompt": "p ", "answer": "naïve"}
    raw = {"id": "b", "category": "c", "family": "g", "prompt_b64": base64.b64encode(b"\xff ").decode(), "answer": "x"}
    path = folder / "Q.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (plain, raw, *extra)) + "\n")
    return path


def test_anyones_questions_become_an_exam_with_a_salt_of_its_own(tmp_path: Path) -> None:
    source = lines(tmp_path)
    one, two = take_in(source, tmp_path / "one", "1"), take_in(source, tmp_path / "two", "1")
    assert one.questions == two.questions == load(source).questions
    assert [question.prompt for question in one.questions] == [b"p ", b"\xff "]
    assert one.sha256 != two.sha256 and one.header and two.header and one.header.salt != two.header.salt
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    assert take_in(source, tmp_path / "one", "1") == one, "the same questions again are the same exam"
    freeze(tmp_path / "one")
    more = lines(tmp_path, {"id": "c", "category": "c", "family": "f", "prompt": "q ", "answer": "y"})
    with pytest.raises(BadConfig, match="another file"):
        take_in(more, tmp_path / "one", "1")


def test_questions_that_cannot_be_read_are_named_by_line_and_never_quoted(tmp_path: Path) -> None:
    source = lines(tmp_path, {"id": "c", "category": "c", "family": "f", "prompt": "secret words"})
    with pytest.raises(BadData, match=r"Q\.jsonl:3") as caught:
        take_in(source, tmp_path / "EXAM", "1")
    assert "secret words" not in caught.value.message and not (tmp_path / "EXAM").exists()


def test_an_exam_is_not_imported_into_a_git_work_tree(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    with pytest.raises(BadConfig, match="git work tree"):
        take_in(lines(tmp_path), tmp_path / "repo" / "EXAM", "1")
