"""A question -> the rule of the exam that it breaks, or nothing. Says what is wrong, never with the question's own words.

The rules were each needed once in practice: a first byte that is white space makes two right answers, a text longer than the
window hides what the answer depends on, a question with two readings measures luck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from crucible.ari.exam.family import Family
from crucible.ari.exam.questions import Question

WINDOW = 1024
"""Bytes of prompt and answer together."""
CONSTANT_SHARE, CONSTANT_LEAST = 0.2, 20
"""An answer that this share of at least so many questions has in common is a constant."""


def broken(question: Question, family: Family | None = None) -> str | None:
    """The first rule that does not hold; with its family, the question is also answered again from the prompt alone."""
    if len(question.prompt) + len(question.answer) > WINDOW:
        return f"has {len(question.prompt) + len(question.answer)} bytes with its answer, {WINDOW} is the window"
    if question.answer[:1].isspace():
        return "has an answer that begins with white space"
    if not question.prompt.endswith(b" "):
        return "has a prompt that does not end with its delimiter and a space"
    if family is not None and family.solve(question.prompt.decode()) != {question.answer.decode()}:
        return "does not have its answer as the only reading"
    return None


def departures(questions: Sequence[Question]) -> list[str]:
    """What an exam of any origin leaves of the rules, counted: advice, because others may have their reasons."""
    counted = Counter(_kind(problem) for question in questions if (problem := broken(question)))
    found = [f"{count} of {len(questions)} questions: each {problem}" for problem, count in sorted(counted.items())]
    shared = len(questions) - len({question.prompt for question in questions})
    if shared:
        found.append(f"{shared} of {len(questions)} prompts are there more than once")
    common = Counter(question.answer for question in questions).most_common(1)[0][1] if questions else 0
    if len(questions) >= CONSTANT_LEAST and common > CONSTANT_SHARE * len(questions):
        found.append(f"one answer is right for {common} of {len(questions)} questions: a constant would score that")
    return found


def _kind(problem: str) -> str:
    return f"is longer than the window of {WINDOW} bytes" if "bytes" in problem else problem
