"""An exam -> how much of it each no-learning baseline gets right, overall and by family, with Wilson intervals. Trains nothing.

An exam discriminates only if what has learned nothing scores nothing: every baseline has to stay under the limit overall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from crucible.ari.exam.baselines import GUESSES, constant
from crucible.ari.exam.questions import Question
from crucible.kernel.stats import wilson

LIMIT = 0.15
"""The largest share of an exam that a baseline may get right."""


class Rate(msgspec.Struct, frozen=True):
    """A share of questions, 0 to 1, with its 95% Wilson interval."""

    passed: int
    questions: int
    rate: float
    ci95: tuple[float, float]


class Baseline(msgspec.Struct, frozen=True):
    overall: Rate
    by_category: dict[str, Rate]
    by_family: dict[str, Rate]


class Calibration(msgspec.Struct, frozen=True):
    questions: int
    families: int
    limit: float
    baselines: dict[str, Baseline]
    above_limit: list[str]


def calibrate(questions: Sequence[Question]) -> Calibration:
    """Every baseline on every question: exact bytes, as the grader compares them."""
    common = constant(questions)
    right: dict[str, list[bool]] = {
        name: [guess(question.prompt, len(question.answer)) == question.answer for question in questions]
        for name, guess in GUESSES.items()
    }
    right["constant"] = [common(question) == question.answer for question in questions]
    baselines = {name: _baseline(questions, marks) for name, marks in right.items()}
    return Calibration(
        questions=len(questions),
        families=len({question.family for question in questions}),
        limit=LIMIT,
        baselines=baselines,
        above_limit=[name for name, baseline in baselines.items() if baseline.overall.rate >= LIMIT],
    )


def _baseline(questions: Sequence[Question], marks: Sequence[bool]) -> Baseline:
    def by(label: Callable[[Question], str]) -> dict[str, Rate]:
        groups: dict[str, list[bool]] = {}
        for question, mark in zip(questions, marks, strict=True):
            groups.setdefault(label(question), []).append(mark)
        return {name: _rate(group) for name, group in sorted(groups.items())}

    return Baseline(_rate(marks), by(lambda question: question.category), by(lambda question: question.family))


def _rate(marks: Sequence[bool]) -> Rate:
    low, high = wilson(sum(marks), len(marks))
    return Rate(sum(marks), len(marks), round(sum(marks) / len(marks), 6), (round(low, 6), round(high, 6)))
