"""A pool file -> the bundles of it that a filter holds for, and that share no sense or text with another file.

The lines are copied byte for byte. The filter's language is in `expression_text.py`; what a field means is here:

    id, sense, lemma, tier, danger, pool, source, anchor, positive     as recorded, or as the pools imply it
    negatives                                                          how many there are
    anything else, with dots for inner keys                            an entry of the metadata; metadata.tier for a hidden one
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crucible.contrast.bundle import Bundle, normalised, signature
from crucible.contrast.pooling import expression as tree
from crucible.contrast.pooling.expression_text import parse
from crucible.contrast.pooling.poolfile import Manifest, PoolFile, Written, copied, publish, require_outputs
from crucible.contrast.pooling.pools import POOLS, lemma_of, pool_of, tier_of
from crucible.contrast.read import OnProblem
from crucible.contrast.tiers import TIERS
from crucible.errors import BadConfig, BadData

FIELDS: dict[str, Callable[[Bundle], Any]] = {
    "id": lambda bundle: bundle.id,
    "sense": lambda bundle: bundle.sense,
    "lemma": lemma_of,
    "tier": tier_of,
    "danger": lambda bundle: bundle.danger,
    "pool": pool_of,
    "source": lambda bundle: bundle.metadata.get("source"),
    "negatives": lambda bundle: len(bundle.negatives),
    "anchor": lambda bundle: bundle.anchor,
    "positive": lambda bundle: bundle.positive,
}
_TIER_NAMES = {
    alias: name for place, name in enumerate(TIERS, 1) for alias in (name, f"tier{place}", str(place), place)
}


def field_of(bundle: Bundle, name: str) -> Any:
    """None where the bundle does not have it."""
    if name in FIELDS:
        return FIELDS[name](bundle)
    found = _inner(bundle.metadata, name)
    return found if found is not None else _inner({"metadata": bundle.metadata}, name)


def _inner(value: Any, path: str) -> Any:
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def prepared(text: str) -> tree.Expression:
    """The tree of a filter, in which tiers have their full names; a tier or pool that does not exist is an error."""
    return _named(parse(text))


def _named(expression: tree.Expression) -> tree.Expression:
    if isinstance(expression, tree.And | tree.Or):
        return type(expression)(tuple(map(_named, expression.parts)))
    if isinstance(expression, tree.Not):
        return tree.Not(_named(expression.of))
    if isinstance(expression, tree.Compare):
        for name, known in (("tier", _TIER_NAMES), ("pool", {pool: pool for pool in POOLS})):
            if tree.Field(name) in (expression.left, expression.right) and expression.operator != "contains":
                left, right = (_full(side, name, known) for side in (expression.left, expression.right))
                return tree.Compare(left, expression.operator, right)
    return expression


def _full(operand: tree.Operand, name: str, known: Mapping[Any, str]) -> tree.Operand:
    if isinstance(operand, tree.Listed):
        return tree.Listed(tuple(tree.Value(_known(value.value, name, known)) for value in operand.values))
    return tree.Value(_known(operand.value, name, known)) if isinstance(operand, tree.Value) else operand


def _known(value: Any, name: str, known: Mapping[Any, str]) -> str | None:
    if value is None or (value in known and not isinstance(value, bool)):
        return None if value is None else known[value]
    raise BadConfig(f"no {name} is called {value!r}", fix=f"Choose from {', '.join(dict.fromkeys(known.values()))}.")


@dataclass
class Other:
    """What must not be shared with another file."""

    file: PoolFile
    senses: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    def read(self) -> None:
        for bundle, _, _ in self.file:
            self.senses.update([bundle.sense] if bundle.sense is not None else [])
            self.texts.update((normalised(bundle.anchor), normalised(bundle.positive)))

    def shares(self, bundle: Bundle) -> str | None:
        if bundle.sense is not None and bundle.sense in self.senses:
            return "sense"
        if normalised(bundle.anchor) in self.texts or normalised(bundle.positive) in self.texts:
            return "text"
        return None


@dataclass
class _Sieve:
    """What is kept, and what was seen on the way."""

    where: tree.Expression | None
    other: Other | None
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    signatures: set[str] = field(default_factory=set)
    repeated: int = 0
    crossing: int = 0

    def lines(self, file: PoolFile) -> Iterator[tuple[int, bytes]]:
        asked = tree.fields(self.where) if self.where else []
        for entry in file:
            bundle = entry.bundle
            for name in asked:
                self.lacking[name] += field_of(bundle, name) is None
            if asked:
                self.names.update(_paths(bundle.metadata))
            reason = self._reason(bundle)
            if reason is not None:
                self.dropped[reason] += 1
                continue
            self._count(bundle)
            yield 0, copied(entry)
        self._require_known(asked, file.bundles)
        if not self.kept:
            raise BadData.at(
                file.path,
                f"no bundle of {file.bundles} is left: {', '.join(f'{n} by {why}' for why, n in self.dropped.items())}",
                fix=f"`crucible pool stats {file.path}` shows what there is.",
            )

    def _reason(self, bundle: Bundle) -> str | None:
        if self.where is not None and not tree.holds(self.where, lambda name: field_of(bundle, name), bundle.id):
            return "where"
        return self.other.shares(bundle) if self.other else None

    def _count(self, bundle: Bundle) -> None:
        self.kept += 1
        sign = signature(bundle)
        self.repeated += sign in self.signatures
        self.signatures.add(sign)
        if self.other:
            self.crossing += any(normalised(text) in self.other.texts for text in bundle.negatives)

    def _require_known(self, asked: list[str], total: int) -> None:
        for name in asked:
            if name in FIELDS or self.lacking[name] < total or name.removeprefix("metadata.") in self.names:
                continue
            known = sorted({*FIELDS, *self.names})
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise BadConfig(f"no bundle has a field {name!r}", fix=f"{guess}Known are {', '.join(known)[:600]}.")


def _paths(metadata: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in metadata.items():
        yield before + name
        if isinstance(value, Mapping) and before.count(".") < 8:
            yield from _paths(value, f"{before}{name}.")


def keep(
    source: Path,
    output: Path,
    *,
    where: str | None = None,
    without_senses_of: Path | None = None,
    on_problem: OnProblem | None = None,
) -> Manifest:
    if where is None and without_senses_of is None:
        raise BadConfig("nothing to filter by", fix="Give --where EXPRESSION, --without-senses-of FILE, or both.")
    condition = None if where is None else prepared(where)
    inputs = [source] if without_senses_of is None else [source, without_senses_of]
    require_outputs([output], inputs)
    file = PoolFile(source, on_problem)
    other = None if without_senses_of is None else Other(PoolFile(without_senses_of))
    if other:
        other.read()
    sieve = _Sieve(condition, other)
    return publish([output], sieve.lines(file), lambda written: _manifest(where, file, sieve, written))


def _manifest(where: str | None, file: PoolFile, sieve: _Sieve, written: list[Written]) -> Manifest:
    other = sieve.other
    notes = [
        f"{count} of {file.bundles} bundles have no {name}: comparing it is false for them"
        for name, count in sieve.lacking.items()
        if count
    ]
    if file.numbered:
        notes.append(f"{file.numbered} bundles have no id of their own: in the output they are numbered anew")
    if file.header:
        notes.append("the header line was left out: it describes the whole file")
    return Manifest(
        command="pool filter",
        inputs=[file.described(), *([other.file.described()] if other else [])],
        outputs=written,
        settings={"where": where, "without_senses_of": str(other.file.path) if other else None},
        counts={"bundles": file.bundles, "kept": sieve.kept}
        | {f"dropped_by_{reason}": count for reason, count in sorted(sieve.dropped.items())},
        duplicates={"signature": sieve.repeated},
        leaks={"shared_senses": 0, "shared_texts": 0, "bundles_with_a_negative_in_other": sieve.crossing}
        if other
        else None,
        notes=notes,
    )
