"""A pool file -> how many bundles of each pool, tier, strength and pass count it holds, and how they repeat. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from crucible.contrast.bundle import Bundle, signature
from crucible.contrast.check import Spread
from crucible.contrast.pooling.poolfile import PoolFile
from crucible.contrast.pooling.pools import POOLS, lemma_of, pool_of, tier_of
from crucible.contrast.read import OnProblem
from crucible.contrast.tiers import TIERS
from crucible.kernel.stats import quantile

STRENGTHS = ("ultra", "mid", "low", "none")
UNRECORDED = "unrecorded"
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


class Dangers(msgspec.Struct, frozen=True):
    recorded: int
    quantiles: dict[str, float]
    """Linear between the values, as everywhere: q0 is the smallest, q100 the largest."""


class Repeats(msgspec.Struct, frozen=True):
    bundles: int
    """Bundles that ask the same question as an earlier one."""
    ids: list[str]
    """The first of them."""


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    sha256: str
    format: str
    bundles: int
    pools: dict[str, int]
    tiers: dict[str, int]
    """Mined and expanded bundles count as tier 3 even where no tier is recorded."""
    pools_by_tier: dict[str, dict[str, int]]
    strength: dict[str, int]
    passes: dict[str, int]
    senses: int
    without_sense: int
    lemmas: int
    without_lemma: int
    bundles_a_sense: Spread | None
    negatives: Spread
    duplicates: Repeats
    danger: Dangers | None


@dataclass
class _Tally:
    """Counts while the file streams by."""

    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    strength: Counter[str] = field(default_factory=Counter)
    passes: Counter[int] = field(default_factory=Counter)
    senses: Counter[str | None] = field(default_factory=Counter)
    lemmas: Counter[str | None] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    dangers: list[float] = field(default_factory=list)
    signatures: set[str] = field(default_factory=set)
    repeats: list[str] = field(default_factory=list)

    def add(self, bundle: Bundle) -> None:
        self.cells[pool_of(bundle), tier_of(bundle) or UNRECORDED] += 1
        given = bundle.metadata.get("strength")
        self.strength[given if isinstance(given, str) else UNRECORDED] += 1
        passes = bundle.metadata.get("passes")
        if isinstance(passes, int) and not isinstance(passes, bool):
            self.passes[passes] += 1
        self.senses[bundle.sense] += 1
        self.lemmas[lemma_of(bundle)] += 1
        self.sizes.append(len(bundle.negatives))
        if bundle.danger is not None:
            self.dangers.append(bundle.danger)
        sign = signature(bundle)
        if sign in self.signatures:
            self.repeats.append(bundle.id)
        self.signatures.add(sign)


def stats(path: Path, on_problem: OnProblem | None = None) -> PoolStats:
    file, tally = PoolFile(path, on_problem), _Tally()
    for bundle, _, _ in file:
        tally.add(bundle)
    senses = {sense: count for sense, count in tally.senses.items() if sense is not None}
    pools, tiers = Counter[str](), Counter[str]()
    for (pool, tier), count in tally.cells.items():
        pools[pool] += count
        tiers[tier] += count
    columns = _ordered(tiers, TIERS)
    return PoolStats(
        file=str(path),
        sha256=file.sha256,
        format=file.format,
        bundles=file.bundles,
        pools=_ordered(pools, POOLS),
        tiers=columns,
        pools_by_tier={pool: {tier: tally.cells[pool, tier] for tier in columns} for pool in POOLS},
        strength=_ordered(tally.strength, STRENGTHS) if set(tally.strength) - {UNRECORDED} else {},
        passes={str(passes): tally.passes[passes] for passes in sorted(tally.passes)},
        senses=len(senses),
        without_sense=tally.senses[None],
        lemmas=len(tally.lemmas.keys() - {None}),
        without_lemma=tally.lemmas[None],
        bundles_a_sense=_spread(senses.values()) if senses else None,
        negatives=_spread(tally.sizes),
        duplicates=Repeats(len(tally.repeats), tally.repeats[:20]),
        danger=_dangers(tally.dangers) if tally.dangers else None,
    )


def _ordered(counts: Counter[str], names: Sequence[str]) -> dict[str, int]:
    """The known names first, even with nothing in them, then whatever else there is."""
    return {name: counts[name] for name in (*names, *sorted(counts.keys() - set(names)))}


def _spread(values: Iterable[int]) -> Spread:
    found = list(values) or [0]
    return Spread(min(found), sum(found) / len(found), max(found))


def _dangers(values: list[float]) -> Dangers:
    return Dangers(len(values), {f"q{round(100 * q)}": quantile(values, q) for q in QUANTILES})
