"""A build -> its counts: by part of speech, by source of negatives, and how many negatives a bundle has. Builds nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from crucible.contrast.bundle import NEGATIVE_SOURCES
from crucible.contrast.corpus.build import Built, Plan
from crucible.contrast.corpus.events import Event


class Spread(msgspec.Struct, frozen=True):
    """How many negatives the bundles have."""

    min: int
    mean: float
    max: int
    distribution: dict[str, int]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What a build gave, for people and for stats.json."""

    style: str
    seed: int
    asked: dict[str, int]
    bundles: int
    available: int
    bundles_by_pos: dict[str, int]
    events_by_kind: dict[str, int]
    negatives_by_source: dict[str, int]
    bundles_with_source: dict[str, int]
    negatives_per_bundle: Spread | None
    anchors_left_out: dict[str, int]


def of_build(events: Iterable[Event], plan: Plan, built: Built) -> Stats:
    counts = Counter(len(draft.negatives) for draft in built.drafts)
    total = sum(size * often for size, often in counts.items())
    sources = Counter(source for draft in built.drafts for _, source in draft.negatives)
    having = Counter(source for draft in built.drafts for source in {source for _, source in draft.negatives})
    return Stats(
        style=plan.style,
        seed=plan.seed,
        asked=dict(zip(NEGATIVE_SOURCES, (plan.within, plan.sibling, plan.cross_lemma), strict=True)),
        bundles=len(built.drafts),
        available=built.available,
        bundles_by_pos=_sorted(Counter(draft.anchor.pos or "unknown" for draft in built.drafts)),
        events_by_kind=_sorted(Counter(event.shape for event in events)),
        negatives_by_source={source: sources[source] for source in NEGATIVE_SOURCES},
        bundles_with_source={source: having[source] for source in NEGATIVE_SOURCES},
        negatives_per_bundle=Spread(
            min(counts), total / len(built.drafts), max(counts), {str(k): counts[k] for k in sorted(counts)}
        )
        if counts
        else None,
        anchors_left_out=_sorted(built.left_out),
    )


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
