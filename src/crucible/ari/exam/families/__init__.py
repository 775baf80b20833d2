"""The families of questions, one file for each category of the methodology; `FAMILIES` has them all by name."""

from __future__ import annotations

from crucible.ari.exam.families import (
    extraction,
    lists,
    numbers,
    passages,
    records,
    schedules,
    symbols,
    vocabularies,
)
from crucible.ari.exam.family import Family

_CATEGORIES = (passages, records, vocabularies, schedules, lists, symbols, numbers, extraction)

FAMILIES: dict[str, Family] = {family.name: family for category in _CATEGORIES for family in category.FAMILIES}
CATEGORIES: tuple[str, ...] = tuple(category.CATEGORY for category in _CATEGORIES)

PUBLIC = (
    "passage-speaker",
    "record-field",
    "record-code",
    "glossary-pair",
    "schedule-time",
    "list-back",
    "symbol-mirror",
    "number-step",
    "extract-code",
    "extract-address",
)
"""The families that the public validation set shows, each in one template: about a third; the others are unseen there."""
