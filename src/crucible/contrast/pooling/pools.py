"""Bundles -> the pool, tier and lemma that each counts for. Reads and writes no files: `poolfile.py` does.

The pools:

    legacy     what was there before: everything whose metadata names no other origin
    organic    found by `crucible mine` (source tier3_organic_miner)
    expanded   written after the pattern of another bundle (source tier3_expansion, or an `expansion` entry)

A bundle's own `metadata.pool` comes before all of these.
"""

from __future__ import annotations

from crucible.contrast.bundle import Bundle
from crucible.contrast.shares import POOLS as POOLS
from crucible.contrast.tiers import TIERS
from crucible.errors import BadData

MINED, EXPANDED = "tier3_organic_miner", "tier3_expansion"


def pool_of(bundle: Bundle) -> str:
    """The pool that the metadata names, or else the one its source implies."""
    given = bundle.metadata.get("pool")
    if given is not None:
        if given not in POOLS:
            raise BadData(
                f"bundle {bundle.id}: metadata.pool is {given!r}, which is none of {', '.join(POOLS)}",
                fix="Correct it, or set it for a whole file: `crucible pool merge FILE --as legacy=FILE --output M.jsonl`.",
                facts={"id": bundle.id, "field": "metadata.pool"},
            )
        return str(given)
    source = bundle.metadata.get("source")
    if source == MINED:
        return "organic"
    return "expanded" if source == EXPANDED or bundle.metadata.get("expansion") else "legacy"


def tier_of(bundle: Bundle) -> str | None:
    """The recorded tier; what was mined or expanded is tier 3 even where none is recorded."""
    if bundle.tier is None and pool_of(bundle) != "legacy":
        return TIERS[2]
    return bundle.tier


def lemma_of(bundle: Bundle) -> str | None:
    """The recorded lemma, or the part of the sense before its `#`."""
    given = bundle.metadata.get("lemma")
    if isinstance(given, str) and given:
        return given
    if bundle.sense is not None and "#" in bundle.sense:
        return bundle.sense.partition("#")[0] or None
    return None
