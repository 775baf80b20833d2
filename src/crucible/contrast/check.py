"""A bundle file -> a report on everything in it that is wrong or doubtful, with counts and places. Changes and writes nothing.

Wrong are lines that are no bundle. Doubtful, and only counted, are bundles that ask the same question twice and bundles that
nobody can pass or fail: a negative that reads like the positive, an anchor that reads like the positive.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from crucible.contrast.bundle import Bundle, Problem, normalised, signature
from crucible.contrast.formats import Header
from crucible.contrast.read import BundleFile
from crucible.contrast.tiers import TIERS
from crucible.errors import BadData

MAX_PROBLEMS = 100
MAX_SHOWN = 20


class Found(msgspec.Struct, frozen=True):
    """How many bundles have a trait, and the first of them."""

    count: int
    ids: list[str]


class Group(msgspec.Struct, frozen=True):
    """Bundles that ask the same question."""

    ids: list[str]
    lines: list[int]


class Duplicates(msgspec.Struct, frozen=True):
    count: int
    """Bundles that repeat an earlier one."""
    groups: list[Group]


class Spread(msgspec.Struct, frozen=True):
    min: int
    mean: float
    max: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    format: str | None
    compression: str
    header: Header | None
    bundles: int
    valid: int
    invalid: int
    problems: list[Problem]
    """The first of them; `problems_total` is how many there are."""
    problems_total: int
    texts: int
    """Different texts, as they are written."""
    negatives: Spread | None
    sources: dict[str, int] | None
    """Negatives by source, if the file names sources."""
    tiers: dict[str, int] | None
    """Bundles by recorded tier, if the file records tiers."""
    duplicates: Duplicates
    identical_negatives: Found
    """A negative reads like the positive: no model can pass."""
    anchor_in_negatives: Found
    """A negative reads like the anchor: no model can pass."""
    duplicate_negatives: Found
    """The same negative twice in one bundle."""
    anchor_is_positive: int
    """The positive reads like the anchor: no model can fail."""
    header_disagrees: list[str]
    """What the header says about the file and the file does not hold."""

    @property
    def clean(self) -> bool:
        return self.valid > 0 and self.invalid == 0


@dataclass
class _Ids:
    """Counts all, keeps the first."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.first) < MAX_SHOWN:
            self.first.append(name)

    def found(self) -> Found:
        return Found(self.count, self.first)


@dataclass
class _Tally:
    """What is counted while the file streams by; texts and signatures are kept as digests, so memory stays small."""

    valid: int = 0
    texts: set[bytes] = field(default_factory=set)
    sizes: Counter[int] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    tiers: Counter[str] = field(default_factory=Counter)
    same: dict[str, list[str]] = field(default_factory=dict)
    identical: _Ids = field(default_factory=_Ids)
    anchor_negative: _Ids = field(default_factory=_Ids)
    repeated: _Ids = field(default_factory=_Ids)
    anchor_is_positive: int = 0

    def add(self, bundle: Bundle) -> None:
        self.valid += 1
        self.texts.update(map(_short_digest, (bundle.anchor, bundle.positive, *bundle.negatives)))
        self.sizes[len(bundle.negatives)] += 1
        self.sources.update(source or "unknown" for source in bundle.sources or ())
        self.tiers.update([bundle.tier] if bundle.tier else [])
        self.same.setdefault(signature(bundle), []).append(bundle.id)
        anchor, positive = normalised(bundle.anchor), normalised(bundle.positive)
        negatives = [normalised(text) for text in bundle.negatives]
        if positive in negatives:
            self.identical.add(bundle.id)
        if anchor in negatives:
            self.anchor_negative.add(bundle.id)
        if len(set(negatives)) < len(negatives):
            self.repeated.add(bundle.id)
        self.anchor_is_positive += anchor == positive


def check(path: Path) -> Report:
    """Reads the whole file, whatever is wrong with it; only a file that cannot be opened or is no bundle file is an error."""
    problems: list[Problem] = []
    counted = 0

    def keep(problem: Problem, raw: bytes) -> None:
        nonlocal counted
        counted += 1
        if len(problems) < MAX_PROBLEMS:
            problems.append(problem)

    source = BundleFile(path, on_problem=keep)
    tally = _Tally()
    try:
        for bundle in source:
            tally.add(bundle)
    except BadData as error:
        line = error.facts.get("line")
        if not isinstance(line, int):  # the file as a whole, not a place in it
            raise
        name, problem = error.facts.get("field"), str(error.facts.get("problem"))
        keep(Problem(line, name if isinstance(name, str) else None, problem, error.fix), b"")
    return _report(source, tally, problems, counted)


def _report(source: BundleFile, tally: _Tally, problems: list[Problem], counted: int) -> Report:
    groups = [ids for ids in tally.same.values() if len(ids) > 1]
    total = sum(size * often for size, often in tally.sizes.items())
    tiers = {tier: tally.tiers[tier] for tier in TIERS} if tally.tiers else None
    return Report(
        file=str(source.path),
        format=source.format or None,
        compression=source.compression,
        header=source.header,
        bundles=tally.valid + counted,
        valid=tally.valid,
        invalid=counted,
        problems=problems,
        problems_total=counted,
        texts=len(tally.texts),
        negatives=Spread(min(tally.sizes), total / tally.valid, max(tally.sizes)) if tally.valid else None,
        sources=dict(sorted(tally.sources.items())) or None,
        tiers=tiers,
        duplicates=Duplicates(
            sum(len(ids) - 1 for ids in groups),
            [Group(ids, [source.first_line[name] for name in ids]) for ids in groups[:MAX_SHOWN]],
        ),
        identical_negatives=tally.identical.found(),
        anchor_in_negatives=tally.anchor_negative.found(),
        duplicate_negatives=tally.repeated.found(),
        anchor_is_positive=tally.anchor_is_positive,
        header_disagrees=_disagreements(source.header, tally),
    )


def _disagreements(header: Header | None, tally: _Tally) -> list[str]:
    if header is None:
        return []
    found = []
    if header.eval_count is not None and header.eval_count != tally.valid:
        found.append(f"eval_count is {header.eval_count}, the file holds {tally.valid} bundles")
    recorded = {tier: count for tier, count in tally.tiers.items() if count}
    said = {tier: count for tier, count in (header.tier_counts or {}).items() if count}
    if header.tier_counts is not None and {name.split("_")[0]: n for name, n in said.items()} != {
        name.split("_")[0]: n for name, n in recorded.items()
    }:
        found.append(f"tier_counts is {said}, the file holds {recorded}")
    return found


def _short_digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
