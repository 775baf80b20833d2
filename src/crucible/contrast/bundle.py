"""What a bundle is, and what is wrong with one: the types every reader fills and the rules every bundle obeys. No files.

Readers of the accepted formats are in `formats.py` (JSON lines) and `columns.py` (Parquet, Arrow); `read.py` chooses.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import msgspec

from crucible.kernel import digest

NEGATIVE_SOURCES = ("within_lemma", "sibling", "cross_lemma")


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """One question to an embedding model: is the positive closer to the anchor than every negative?"""

    id: str
    anchor: str
    positive: str
    negatives: tuple[str, ...]
    sense: str | None = None
    tier: str | None = None
    """As recorded in the file; an eval set assigns its own."""
    danger: float | None = None
    """As recorded in the file."""
    sources: tuple[str, ...] | None = None
    """Where each negative came from: within_lemma, sibling or cross_lemma."""
    metadata: dict[str, Any] = {}


class Problem(msgspec.Struct, frozen=True):
    """Why one line (or row) of a file is no bundle."""

    line: int
    field: str | None
    problem: str
    fix: str


def problem_in(bundle: Bundle) -> tuple[str | None, str, str] | None:
    """The first thing wrong with a bundle that has the right shape, as (field, problem, fix)."""
    if not bundle.id.strip():
        return "id", "empty id", "Give the bundle an id, or none."
    if not bundle.negatives:
        return "negatives", "no negatives", "A bundle needs at least one."
    if not bundle.anchor.strip():
        return "anchor", _EMPTY, _FILL
    if not bundle.positive.strip():
        return "positive", _EMPTY, _FILL
    for place, text in enumerate(bundle.negatives):
        if not text.strip():
            return f"negatives[{place}]", _EMPTY, _FILL
    return None


_EMPTY, _FILL = "empty text", "Fill it in or remove the bundle."


def item_digest(bundle: Bundle) -> str:
    """Identity of a bundle: its id and every text, in order. Tier, danger and metadata are not identity."""
    return digest.of_json([bundle.id, bundle.anchor, bundle.positive, list(bundle.negatives)])


def signature(bundle: Bundle) -> str:
    """Equal for two bundles that ask the same question: normalised texts, negatives in any order, sense."""
    texts = [normalised(bundle.anchor), normalised(bundle.positive), sorted(map(normalised, bundle.negatives))]
    return digest.of_json([*texts, bundle.sense])


def normalised(text: str) -> str:
    """Case, width and spacing folded away: what a reader would call the same text."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
