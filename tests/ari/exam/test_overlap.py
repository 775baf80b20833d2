from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.exam.build import generate
from crucible.ari.exam.overlap import PIECE, Limits, Overlap, found_in, pieces, with_questions, with_text
from crucible.ari.exam.questions import Question

EXAM = generate(b"overlap" * 3, 64, "hidden")


def against(tmp_path: Path, text: bytes, exam: list[Question] = EXAM) -> Overlap:
    path = tmp_path / "text"
    path.write_bytes(text)
    return with_text(exam, text, path, Limits())


@given(st.binary(max_size=400), st.binary(min_size=24, max_size=120), st.integers(0, 60), st.data())
def test_every_piece_that_is_there_is_found_and_no_other(
    noise: bytes, text: bytes, at: int, data: st.DataObject
) -> None:
    """Against the plain definition, with the text planted at every alignment."""
    planted = noise[:at] + text + noise[at:]
    if data.draw(st.booleans()):
        planted = planted[: data.draw(st.integers(0, len(planted)))]
    wanted = pieces(text)
    assert found_in(planted, wanted) == {piece for piece in wanted if piece in planted}


def test_a_text_that_has_nothing_to_do_with_the_exam_shares_nothing(tmp_path: Path) -> None:
    found = against(tmp_path, b"It is a truth universally acknowledged. " * 5000)
    assert (found.ngrams_shared, found.covered_questions, found.shared_prompts, found.shared_answers) == (0, 0, 0, 0)
    assert found.too_much == [] and found.ngrams > 10_000


def test_one_leaked_question_is_too_much(tmp_path: Path) -> None:
    leaked = os.urandom(10_007) + EXAM[5].prompt + EXAM[5].answer + os.urandom(5000)
    found = against(tmp_path, leaked)
    assert (found.covered_questions, found.shared_prompts, found.shared_answers) == (1, 1, 1)
    assert {"covered_questions", "shared_prompts"} <= set(found.too_much)


def test_a_leaked_answer_counts_only_behind_its_own_words(tmp_path: Path) -> None:
    assert against(tmp_path, b"... ".join(question.answer for question in EXAM)).shared_answers == 0
    some = EXAM[7].prompt[-PIECE:] + EXAM[7].answer
    assert against(tmp_path, b"x" + some).shared_answers == 1


def test_most_of_a_question_is_as_bad_as_all_of_it(tmp_path: Path) -> None:
    prompt = EXAM[3].prompt
    assert against(tmp_path, prompt[: len(prompt) * 2 // 3]).covered_questions == 1
    assert against(tmp_path, prompt[: len(prompt) // 3]).covered_questions == 0


def test_short_questions_of_others_are_found_with_their_answers(tmp_path: Path) -> None:
    short = [Question("s", "c", "f", b"capital of X: ", b"Ypsilon")]
    assert against(tmp_path, b"... capital of X: Ypsilon ...", short).shared_prompts == 1
    assert against(tmp_path, b"... capital of X: Zeta ...", short).shared_prompts == 0


def test_shared_prompts_and_answers_of_a_question_set_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "set"
    path.write_bytes(b"stands for the set")
    one = EXAM[0]
    others = [Question("o", "c", "f", one.prompt, b"other"), Question("p", "c", "f", b"another ", EXAM[1].answer)]
    found = with_questions(EXAM, others, path, Limits())
    same_answer = sum(question.answer == EXAM[1].answer for question in EXAM)
    assert (found.shared_prompts, found.shared_answers, found.covered_questions) == (1, same_answer, 1)
    assert "shared_prompts" in found.too_much
    assert with_questions(EXAM, EXAM, path, Limits()).ngram_share == 1.0


@pytest.mark.parametrize("limit", ["ngram_share", "covered_questions", "shared_prompts", "shared_answer_share"])
def test_each_limit_can_trip_alone(tmp_path: Path, limit: str) -> None:
    path = tmp_path / "set"
    path.write_bytes(b"")
    loose = {"ngram_share": 1.0, "covered_questions": 64, "shared_prompts": 64, "shared_answer_share": 1.0}
    tight = {"ngram_share": 0.5, "covered_questions": 63, "shared_prompts": 63, "shared_answer_share": 0.5}
    assert with_questions(EXAM, EXAM, path, Limits(**loose)).too_much == []
    assert with_questions(EXAM, EXAM, path, Limits(**{**loose, limit: tight[limit]})).too_much == [limit]
