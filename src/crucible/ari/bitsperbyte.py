"""A submission and questions with their answers -> how many bits each answer byte costs it. A diagnostic; decides nothing.

Teacher-forced: each byte of the answer is predicted from the true bytes before it, in a fresh process per question, after
the exact-match result is sealed. The submission's numbers are made into probabilities here, by a log-softmax in float64,
so nothing that it calls a probability is believed. No byte costs more than the floor, and what it fails to answer costs
just that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Container, Sequence
from pathlib import Path

from crucible.ari.box import Box
from crucible.ari.exam.questions import Question
from crucible.ari.sitting import cores, sit
from crucible.ari.talk import Failed, Jail
from crucible.ari.track import Track

FLOOR_BITS = 32.0
"""The most one byte can cost: a probability of 2^-32."""


def bits_per_byte(
    box: Box, bundle: Path, questions: Sequence[Question], track: Track, skip: Container[str] = ()
) -> float:
    """Over all answer bytes; the questions in `skip` (by id) are not asked again and cost the floor."""

    def one(jail: Jail, question: Question, ends: float) -> float:
        return _one(jail, question, ends, track)

    asked = [question for question in questions if question.id not in skip]
    not_asked = sum(len(question.answer) for question in questions if question.id in skip)
    bits = sit(box, bundle, asked, one, total_s=track.grade_limit_s, at_once=cores())
    return math.fsum([*bits, FLOOR_BITS * not_asked]) / sum(len(question.answer) for question in questions)


def cost(numbers: Sequence[float], byte: int) -> float:
    """Bits for one byte: -log2 of its probability under a softmax of the numbers, at most the floor."""
    top = max(numbers)
    # float64 throughout: the differences of float32 numbers are exact enough, and exp never overflows at or below zero.
    total = math.log(math.fsum(math.exp(number - top) for number in numbers))
    return min(FLOOR_BITS, max(0.0, (total - (numbers[byte] - top)) / math.log(2)))


def _one(jail: Jail, question: Question, ends: float, track: Track) -> float:
    bits: list[float] = []
    try:
        if time.monotonic() >= ends:
            raise Failed("total time")
        jail.ready(ends)
        began = time.monotonic()
        with jail.question(min(ends, began + track.load_limit_s)) as predict:
            until = min(ends, time.monotonic() + track.question_limit_s)
            for at, byte in enumerate(question.answer):
                prefix = (question.prompt + question.answer[:at])[-track.context_bytes :]
                bits.append(cost(predict(prefix, until), byte))
    except Failed:
        bits += [FLOOR_BITS] * (len(question.answer) - len(bits))
    return math.fsum(bits)
