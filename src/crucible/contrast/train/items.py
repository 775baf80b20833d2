"""The data block of a configuration -> training items: texts as ids, tiers, pools, senses, and what a reader must know of them.

Tiers come from a frozen eval set or from the rows; what has none is tiered by the base encoder's dangers, and that is noted.
Nothing is left out silently: every bundle or negative that is not trained on is counted in a note.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import textset, tiers
from crucible.contrast.bundle import Bundle, item_digest, normalised
from crucible.contrast.config import Data
from crucible.contrast.curriculum import Groups
from crucible.contrast.pooling import pools
from crucible.contrast.score import score
from crucible.contrast.textset import NO_TIER, TextSet
from crucible.contrast.tiers import TIERS
from crucible.contrast.train import sources
from crucible.contrast.train.batch import NO_SENSE, Senses, senses
from crucible.contrast.train.rundir import ItemLine
from crucible.errors import BadData

_PLACE = {name: place for place, name in enumerate(TIERS)}


@dataclass(frozen=True)
class Items:
    """`set` holds the texts; everything else has one value an item, in the same order."""

    set: TextSet
    digests: list[str]
    tier: npt.NDArray[np.int8]
    """Index into TIERS; NO_TIER where nobody has said it yet."""
    pool: list[str]
    sense: list[str | None]
    known: Senses
    duplicates: list[str]
    """Ids that stand in more than one pool."""
    without_metadata: int
    """Mined items that do not say how many lineups they passed."""
    notes: list[str]

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def groups(self) -> Groups:
        pool = np.array([pools.POOLS.index(name) for name in self.pool])
        third = {name: np.flatnonzero((self.tier == 2) & (pool == at)) for at, name in enumerate(pools.POOLS)}
        return Groups(np.flatnonzero(self.tier == 0), np.flatnonzero(self.tier == 1), third)

    @property
    def untiered(self) -> int:
        return int(np.count_nonzero(self.tier == NO_TIER))

    def sizes(self) -> dict[str, int]:
        """As `RunInfo.groups` names them."""
        found = self.groups.sizes()
        return {TIERS[0]: found.pop("tier1"), TIERS[1]: found.pop("tier2")} | found

    def lines(self) -> Iterable[ItemLine]:
        for index, own in enumerate(self.set.ids):
            tier = TIERS[self.tier[index]]
            yield ItemLine(index, own, self.digests[index], tier, self.pool[index], self.sense[index])


def read(data: Data) -> Items:
    """Every bundle of `data.bundles`; tiers as far as the data itself says them."""
    notes: list[str] = []
    fold = _Folded()
    rows = _without_false_negatives(_without_repeats(_rows(data), notes), fold, notes)
    if not rows:
        raise BadData("data.bundles hold no bundle to train on", fix="Check them: crucible bundles check FILE")
    bundles = [row.bundle for row in rows]
    whole = textset.build(bundles)
    names: dict[str, int] = {}
    of_item = np.array([NO_SENSE if b.sense is None else names.setdefault(b.sense, len(names)) for b in bundles])
    if not names:
        notes.append("no bundle names its sense: false negatives inside a batch are known by their text only")
    notes += _leaks(bundles, data, fold)
    return Items(
        set=whole,
        digests=[row.digest for row in rows],
        tier=np.array([NO_TIER if row.tier is None else _PLACE[row.tier] for row in rows], dtype=np.int8),
        pool=[row.pool for row in rows],
        sense=[bundle.sense for bundle in bundles],
        known=senses(of_item, np.array([fold.number(text) for text in whole.texts]), whole),
        duplicates=_in_two_pools(rows),
        without_metadata=sum(
            row.pool == "organic" and not {"passes", "lineups_tested"} <= row.bundle.metadata.keys() for row in rows
        ),
        notes=notes,
    )


def tiered(items: Items, vectors: npt.NDArray[np.float32], encoder: str) -> Items:
    """Tiers for what has none, by the reference algorithm over the dangers of the encoder that training starts from."""
    missing = np.flatnonzero(items.tier == NO_TIER)
    if not len(missing):
        return items
    dangers = score(items.set, vectors).danger[missing]
    tier = items.tier.copy()
    tier[missing] = tiers.assign(dangers, tiers.cut_points(dangers))
    counts = ", ".join(f"{name} {count}" for name, count in tiers.counts(tier[missing]).items())
    note = f"{len(missing)} of {len(items)} bundles carry no tier: {encoder} tiered them by danger ({counts})"
    return dataclasses.replace(items, tier=tier, notes=[*items.notes, note])


class _Row(NamedTuple):
    bundle: Bundle
    tier: str | None
    pool: str
    digest: str
    """Of the bundle as its file has it."""


def _rows(data: Data) -> list[_Row]:
    found: list[_Row] = []
    for name in data.bundles:
        for bundle, tier in sources.read(Path(name), len(found)):
            found.append(_Row(bundle, tier, pools.pool_of(bundle), item_digest(bundle)))
    return found


# --- what is left out --------------------------------------------------------------------------------------------------


class _Folded:
    """Texts -> numbers that are equal for texts a reader would call the same; each text is folded once."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._of: dict[str, int] = {}

    def number(self, text: str) -> int:
        found = self._of.get(text)
        if found is None:
            found = self._of[text] = self._number.setdefault(normalised(text), len(self._number))
        return found


def _without_repeats(rows: Sequence[_Row], notes: list[str]) -> list[_Row]:
    """A bundle that stands in two files of one pool is one item: drawn twice as often it would be another curriculum."""
    kept: dict[tuple[str, str], _Row] = {}
    for row in rows:
        kept.setdefault((row.digest, row.pool), row)
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} bundles repeat another one of their pool and are counted once")
    return list(kept.values())


def _without_false_negatives(rows: Sequence[_Row], fold: _Folded, notes: list[str]) -> list[_Row]:
    kept, dropped, emptied = [], 0, []
    for row in rows:
        bundle = row.bundle
        own = {fold.number(bundle.anchor), fold.number(bundle.positive)}
        negatives = tuple(text for text in bundle.negatives if fold.number(text) not in own)
        dropped += len(bundle.negatives) - len(negatives)
        if negatives:
            kept.append(row._replace(bundle=msgspec.structs.replace(bundle, negatives=negatives)))
        else:
            emptied.append(bundle.id)
    if dropped:
        notes.append(f"{dropped} negatives are left out because they say the same as their anchor or positive")
    if emptied:
        notes.append(f"{len(emptied)} bundles have no other negative and are left out, the first is {emptied[0]!r}")
    return kept


def _in_two_pools(rows: Sequence[_Row]) -> list[str]:
    stands = Counter(own for own, _ in {(row.bundle.id, row.pool) for row in rows})
    return sorted(own for own, count in stands.items() if count > 1)


# --- what the eval sets share with the training data -------------------------------------------------------------------


def _leaks(bundles: Sequence[Bundle], data: Data, fold: _Folded) -> list[str]:
    notes = []
    if data.organic_eval:
        held = [row.bundle for row in sources.read(Path(data.organic_eval))]
        senses_seen = {bundle.sense for bundle in bundles} - {None}
        texts_seen = {fold.number(text) for bundle in bundles for text in (bundle.anchor, bundle.positive)}
        by_sense = sum(bundle.sense in senses_seen for bundle in held)
        by_text = sum(not {fold.number(b.anchor), fold.number(b.positive)}.isdisjoint(texts_seen) for b in held)
        if by_sense or by_text:
            notes.append(
                f"LEAK: of {len(held)} items of organic_eval, {by_sense} share a sense and {by_text} an anchor or positive "
                "with the training data: it does not measure generalisation (crucible pool split makes a clean holdout)"
            )
    if data.frozen_eval:
        asked = {(fold.number(bundle.anchor), fold.number(bundle.positive)) for bundle in bundles}
        frozen = [row.bundle for row in sources.read(Path(data.frozen_eval))]
        shared = sum((fold.number(bundle.anchor), fold.number(bundle.positive)) in asked for bundle in frozen)
        share = shared / max(1, len(frozen))
        notes.append(
            f"{shared} of {len(frozen)} items of frozen_eval ({share:.1%}) are trained on: frozen measures retention"
        )
    return notes
