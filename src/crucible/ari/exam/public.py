"""Nothing -> the public validation set, the same every time. For checking formats, not for measuring ability.

Made from a published seed with the families and templates below: a third of the families, each in one template, with words
that no hidden question uses. `tests/ari/exam` holds its digest.
"""

from __future__ import annotations

from crucible.ari.exam.build import generate
from crucible.ari.exam.families import PUBLIC
from crucible.ari.exam.questions import encode

SEED = b"crucible public validation set 2"
QUESTIONS = 40


def public_set() -> bytes:
    """The bytes of `ari/brief/public.jsonl`."""
    return encode(generate(SEED, QUESTIONS, "public", PUBLIC, templates=1))
