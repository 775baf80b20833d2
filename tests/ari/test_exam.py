from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.ari import track as tracks
from crucible.ari.exam import toy
from crucible.ari.exam.questions import Header, Question, encode, load, save_secret
from crucible.errors import BadConfig, BadData, IntegrityBroken, Mistake
from crucible.kernel import digest

labels = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=12)
some_bytes = st.binary(min_size=1, max_size=60)


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
    path.write_bytes(toy.build_exam(b"s" * 16, 4, "1"))
    published = digest.of_file(path)
    assert load(path, published.upper()).sha256 == published
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(IntegrityBroken):
        load(path, published)


def test_an_exam_is_for_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "safe" / "exam"
    data = toy.build_exam(b"s" * 16, 4, "1")
    save_secret(path, data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    save_secret(path, data)
    with pytest.raises(BadConfig):
        save_secret(path, toy.build_exam(b"t" * 16, 4, "1"))
    assert path.read_bytes() == data


@pytest.mark.parametrize("git", ["folder", "file"])
def test_an_exam_never_enters_a_git_work_tree(tmp_path: Path, git: str) -> None:
    (tmp_path / ".git").mkdir() if git == "folder" else (tmp_path / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "down")
    for path in (tmp_path / "exam", tmp_path / "deep" / "down" / "exam", tmp_path / "link" / "exam"):
        with pytest.raises(BadConfig, match="git work tree"):
            save_secret(path, b"x")
        assert not path.exists()


@settings(max_examples=15)
@given(st.binary(min_size=16, max_size=40), st.sampled_from(["public", "hidden"]))
def test_toy_questions_obey_the_rules_of_the_exam(seed: bytes, side: toy.Side) -> None:
    made = toy.build(seed, 64, side)
    assert made == toy.build(seed, 64, side)
    assert len({question.prompt for question in made}) == len(made)
    for question in made:
        assert not question.answer[:1].isspace()
        assert question.prompt.endswith(b" ")
        assert len(question.prompt) + len(question.answer) <= 1024
        if question.family == "number-line":
            assert question.answer.endswith(b",") and b"," in question.prompt


def test_no_constant_answers_a_family_and_candidates_are_prefix_free() -> None:
    made = toy.build(b"many" * 4, 2000, "hidden")
    for family in toy.FAMILIES:
        answers = [question.answer for question in made if question.family == family]
        assert Counter(answers).most_common(1)[0][1] < 0.03 * len(answers)
        if family != "number-line":
            assert len({len(answer) for answer in answers}) == 1, "candidates of one length"


def test_public_and_hidden_questions_share_no_word() -> None:
    def words(side: toy.Side) -> set[str]:
        text = b" ".join(q.prompt + q.answer for q in toy.build(b"q" * 16, 400, side)).decode()
        found = {word.strip("|:;.,'[]/\n") for word in text.replace(".", " ").replace("\n", " ").split()}
        frame = "who where what for name home trade The of is means Words Say Count on series next Turn back"
        return {word for word in found if word.isalpha()} - set(frame.split())

    public, hidden = words("public"), words("hidden")
    assert len(public) > 500 and len(hidden) > 500
    assert not public & hidden


def test_a_sequence_with_two_readings_is_seen_as_such() -> None:
    assert toy.continuations([1, 2, 3, 4, 5, 6]) == {7}
    assert toy.continuations([1, 2, 4, 7, 11, 16]) == {22}
    assert toy.continuations([1, 2, 4, 8, 16, 32]) == {64}
    assert toy.continuations([1, 2, 3, 5, 8, 13]) == {21}
    assert toy.continuations([5, 1, 6, 2, 7, 3]) == {8}
    assert toy.continuations([2, 4, 6, 10]) == {16, 10}, "sums of the two before, or two sequences in turn"


def test_another_seed_gives_another_exam_and_a_short_one_is_refused() -> None:
    assert toy.build_exam(b"a" * 16, 8, "1") != toy.build_exam(b"b" * 16, 8, "1")
    with pytest.raises(Mistake, match="15 bytes"):
        toy.build_exam(b"a" * 15, 8, "1")


def test_the_shipped_public_set_is_what_the_generator_makes() -> None:
    assert tracks.PUBLIC.read_bytes() == encode(toy.build(b"crucible public validation set 1", 10, "public"))
