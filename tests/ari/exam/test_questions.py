from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.exam.questions import Header, Question, encode, load, save_secret
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest

labels = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=12)
some_bytes = st.binary(min_size=1, max_size=60)


def exam_of(word: str) -> bytes:
    return encode([Question("a", "c", "f", b"p ", word.encode())], Header(1, "1", "salt"))


@given(
    st.lists(
        st.tuples(labels, labels, labels, some_bytes, some_bytes), min_size=1, max_size=6, unique_by=lambda q: q[0]
    ),
    st.booleans(),
)
def test_questions_survive_a_round_trip_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, raw: list[tuple[str, str, str, bytes, bytes]], headed: bool
) -> None:
    made = [Question(*fields) for fields in raw]
    path = tmp_path_factory.mktemp("exam") / "q.jsonl"
    path.write_bytes(encode(made, Header(1, "1", "salt") if headed else None))
    exam = load(path)
    assert list(exam.questions) == made
    assert exam.sha256 == digest.of_file(path)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_exam_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("exam") / "any.jsonl"
    path.write_bytes(data)
    with pytest.raises(BadData) as caught:
        load(path)
    assert "any.jsonl" in caught.value.message


GOOD = '{"id": "a", "category": "c", "family": "f", "prompt": "p", "answer": "b"}'


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (GOOD.replace('"p"', "5"), "prompt"),
        (GOOD.replace('"prompt": "p", ', ""), "prompt"),
        (GOOD.replace('"b"', '""'), "answer"),
        (GOOD.replace('"answer"', '"answer_b64"').replace('"b"', '"!!"'), "answer"),
        (GOOD.replace('"b"', '"b", "answer_b64": "YQ=="'), "answer"),
        (GOOD.replace('"a"', '""'), "id"),
        (GOOD.replace('"c"', '"\\u001b[31m"'), "category"),
        (GOOD, "id"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_field_and_never_quoted(tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "exam.jsonl"
    secret = GOOD.replace('"p"', '"SECRET-PROMPT"')
    path.write_text(secret + "\n" + line.replace('"p"', '"SECRET-PROMPT"') + "\n")
    with pytest.raises(BadData) as caught:
        load(path)
    assert "exam.jsonl:2" in caught.value.message
    assert field in caught.value.message
    assert "SECRET" not in caught.value.message


def test_an_exam_that_is_not_the_published_one_is_the_machinerys_failure(tmp_path: Path) -> None:
    path = tmp_path / "exam"
    path.write_bytes(exam_of("s"))
    published = digest.of_file(path)
    assert load(path, published.upper()).sha256 == published
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(IntegrityBroken):
        load(path, published)


def test_an_exam_is_for_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "safe" / "exam"
    data = exam_of("s")
    save_secret(path, data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    save_secret(path, data)
    path.chmod(0o400)
    save_secret(path, data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o400, "a frozen exam stays read-only"
    with pytest.raises(BadConfig):
        save_secret(path, exam_of("t"))
    assert path.read_bytes() == data


@pytest.mark.parametrize("git", ["folder", "file"])
def test_an_exam_never_enters_a_git_work_tree(tmp_path: Path, git: str) -> None:
    (tmp_path / ".git").mkdir() if git == "folder" else (tmp_path / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "down")
    for path in (tmp_path / "exam", tmp_path / "deep" / "down" / "exam", tmp_path / "link" / "exam"):
        with pytest.raises(BadConfig, match="git work tree"):
            save_secret(path, b"x")
        assert not path.exists()
