"""A seed -> the questions of an exam, each held against the rules, and the bytes of its file. Writes nothing.

The same seed, side, families and weights always give the same questions. The salt of an exam comes from its seed too, so
that the same seed gives the same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from crucible.ari.exam.draw import draw
from crucible.ari.exam.families import FAMILIES
from crucible.ari.exam.family import Family
from crucible.ari.exam.questions import Header, Question, encode
from crucible.ari.exam.rules import broken
from crucible.ari.exam.words import Side
from crucible.errors import MachineryFailed


def generate(
    seed: bytes,
    count: int,
    side: Side,
    families: Sequence[str] | None = None,
    *,
    known: Mapping[str, Family] = FAMILIES,
    weights: Mapping[str, float] | None = None,
    templates: int | None = None,
) -> list[Question]:
    """`count` questions from the named families or all of them, in an order that tells nothing."""
    drawn = draw(seed, count, side, families, known=known, weights=weights, templates=templates)
    width = max(4, len(str(count)))
    return [
        Question(
            f"{side}-{place:0{width}d}", one.family.category, one.family.name, one.prompt.encode(), one.answer.encode()
        )
        for place, one in enumerate(drawn, 1)
    ]


def build_exam(
    seed: bytes,
    count: int,
    protocol_version: str,
    *,
    known: Mapping[str, Family] = FAMILIES,
    weights: Mapping[str, float] | None = None,
) -> bytes:
    """The bytes of a hidden exam. Every question is held against the rules and answered again before it is let in."""
    questions = generate(seed, count, "hidden", known=known, weights=weights)
    for question in questions:
        problem = broken(question, known[question.family])
        if problem:
            raise MachineryFailed(
                f"the family {question.family} made a question that {problem}",
                fix="Leave the family out with --weight NAME=0, and report it.",
            )
    salt = hashlib.sha256(b"salt\0" + seed).hexdigest()
    return encode(questions, Header(1, protocol_version, salt))
