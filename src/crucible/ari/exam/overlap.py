"""An exam, and a text or a question set -> how much of the exam is already in it, counted. Quotes nothing.

Overlap is counted in pieces of 24 bytes. Every piece contains a block of 12 bytes that begins at a multiple of 12, so the text
is looked at once in steps of 12, and closely only where a block is known: 60 MB take about a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from crucible.ari.exam.questions import Question
from crucible.kernel import digest

PIECE, BLOCK = 24, 12


class Limits(msgspec.Struct, frozen=True):
    """What is too much. Sentences that frame a question may be shared; questions may not."""

    ngram_share: float = 0.02
    """Of the pieces of all questions."""
    covered_questions: int = 0
    """Questions that have more than half of their pieces there."""
    shared_prompts: int = 0
    shared_answer_share: float = 0.05
    """Of the questions; short answers such as numbers and times meet by chance."""


class Overlap(msgspec.Struct, frozen=True):
    """How much of an exam one file already holds."""

    file: str
    sha256: str
    kind: str
    ngrams: int
    ngrams_shared: int
    ngram_share: float
    covered_questions: int
    shared_prompts: int
    shared_answers: int
    too_much: list[str]
    """The names of the limits that are passed."""


def with_questions(exam: Sequence[Question], others: Sequence[Question], path: Path, limits: Limits) -> Overlap:
    """Against a question set: the same prompts, the same answers, and shared pieces of text."""
    prompts, answers = {other.prompt for other in others}, {other.answer for other in others}
    there = {piece for other in others for piece in pieces(other.prompt + other.answer)}
    return _counted(
        exam,
        there & _pieces_of(exam),
        path,
        "questions",
        shared_prompts=sum(question.prompt in prompts for question in exam),
        shared_answers=sum(question.answer in answers for question in exam),
        limits=limits,
    )


def with_text(exam: Sequence[Question], text: bytes, path: Path, limits: Limits) -> Overlap:
    """Against a text: prompts that stand in it whole, and answers that stand in it behind the same words."""
    hits = found_in(text, _pieces_of(exam))
    whole = [question for question in exam if _stands_in(question, text, hits)]
    answered = sum((question.prompt + question.answer)[-PIECE:] in hits for question in exam)
    return _counted(exam, hits, path, "text", shared_prompts=len(whole), shared_answers=answered, limits=limits)


def _stands_in(question: Question, text: bytes, hits: set[bytes]) -> bool:
    """A prompt that is there whole; one shorter than a piece could be there by chance, so it counts with its answer only."""
    if len(question.prompt) >= PIECE:
        return pieces(question.prompt) <= hits and question.prompt in text
    return len(question.prompt + question.answer) >= BLOCK and question.prompt + question.answer in text


def pieces(data: bytes) -> set[bytes]:
    return {data[at : at + PIECE] for at in range(len(data) - PIECE + 1)}


def found_in(text: bytes, wanted: set[bytes]) -> set[bytes]:
    """Those of the wanted pieces that occur anywhere in the text."""
    blocks = {piece[at : at + BLOCK] for piece in wanted for at in range(PIECE - BLOCK + 1)}
    found: set[bytes] = set()
    for at in range(0, len(text) - BLOCK + 1, BLOCK):
        if text[at : at + BLOCK] in blocks:
            for start in range(max(0, at + BLOCK - PIECE), at + 1):
                piece = text[start : start + PIECE]
                if piece in wanted:
                    found.add(piece)
    return found


def _pieces_of(exam: Iterable[Question]) -> set[bytes]:
    return {piece for question in exam for piece in pieces(question.prompt + question.answer)}


def _counted(
    exam: Sequence[Question],
    hits: set[bytes],
    path: Path,
    kind: str,
    *,
    shared_prompts: int,
    shared_answers: int,
    limits: Limits,
) -> Overlap:
    own = [pieces(question.prompt + question.answer) for question in exam]
    total, shared = sum(map(len, own)), sum(len(some & hits) for some in own)
    covered = sum(2 * len(some & hits) > len(some) for some in own)
    share = shared / total if total else 0.0
    passed = {
        "ngram_share": share > limits.ngram_share,
        "covered_questions": covered > limits.covered_questions,
        "shared_prompts": shared_prompts > limits.shared_prompts,
        "shared_answer_share": shared_answers > limits.shared_answer_share * len(exam),
    }
    return Overlap(
        file=str(path),
        sha256=digest.of_file(path),
        kind=kind,
        ngrams=total,
        ngrams_shared=shared,
        ngram_share=round(share, 6),
        covered_questions=covered,
        shared_prompts=shared_prompts,
        shared_answers=shared_answers,
        too_much=[name for name, over in passed.items() if over],
    )
