"""Results of mining -> bundles, quarantine and stats on disk: who is accepted, in which order, and what is said about it.

Accepted are candidates with at least `min_passes` passes; those with fewer but some go to the quarantine; the output is ordered
by (passes, larger first; danger, larger first; id), which decides what `max_output` keeps. The bundles carry no time, so that the
same seed gives the same bytes; the time is in the stats. Searches and draws nothing.
"""

from __future__ import annotations

import datetime
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crucible.contrast.bundle import NEGATIVE_SOURCES, normalised
from crucible.contrast.corpus.build import Draft
from crucible.contrast.mining.candidates import Candidate, Catalogue, Chosen
from crucible.contrast.mining.lineups import STRENGTHS, strength
from crucible.contrast.tiers import TIERS
from crucible.documents import write_json, writing
from crucible.errors import BadConfig
from crucible.kernel import digest

SOURCE = "tier3_organic_miner"
DEFAULT_QUANTILE = 0.5
_MOST_LINEUPS, _MOST_NEAREST = 1000, 10_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every number of a run. Either `threshold` or `calibrate_to` is used; `complete()` fills in what nobody chose."""

    threshold: float | None = None
    calibrate_to: float | None = None
    threshold_source: str = "given"
    lineups: int = 10
    min_passes: int = 3
    within: int = 4
    sibling: int = 3
    cross_lemma: int = 3
    top_k_within: int = 8
    top_k_sibling: int = 16
    top_k_cross: int = 50
    candidates_per_sense: int = 4
    max_candidates: int | None = None
    max_output: int | None = None
    allow_known_senses: bool = False
    style: str | None = None
    seed: int = 42

    def __post_init__(self) -> None:
        for problem, fix in self._problems():
            raise BadConfig(problem, fix=fix)

    def _problems(self) -> Any:
        if self.threshold is not None and self.calibrate_to is not None:
            yield "both a threshold and a quantile to calibrate it to", "Give --threshold or --calibrate-to, not both."
        if self.threshold is not None and not math.isfinite(self.threshold):
            yield f"a threshold of {self.threshold}", "Give a finite danger, such as 0.1."
        if self.calibrate_to is not None and not 0.0 <= self.calibrate_to <= 1.0:
            yield f"the quantile {self.calibrate_to} is not between 0 and 1", "Try --calibrate-to 0.5."
        if not 1 <= self.lineups <= _MOST_LINEUPS:
            yield f"{self.lineups} lineups", f"Ask for 1 to {_MOST_LINEUPS}."
        if not 1 <= self.min_passes <= self.lineups:
            yield (
                f"at least {self.min_passes} passes of {self.lineups} lineups",
                "Ask for at least 1 pass and no more than there are lineups.",
            )
        if min(self.asked) < 0 or not sum(self.asked):
            kinds = f"{self.within} within-lemma, {self.sibling} sibling and {self.cross_lemma} cross-lemma negatives"
            yield f"{kinds} make no lineup", "Ask for at least one negative, and for none less than zero."
        for name, count, most in zip(("within", "sibling", "cross"), self.asked, self.nearest, strict=True):
            if most < max(1, count) or most > _MOST_NEAREST:
                what = f"--top-k-{name} {most} for lineups of {count}"
                yield what, f"Give at least what a lineup holds, at least 1 and at most {_MOST_NEAREST}."
        for name in ("candidates_per_sense", "max_candidates", "max_output"):
            value = getattr(self, name)
            if value is not None and value < 1:
                yield f"--{name.replace('_', '-')} {value}", "Give at least 1."

    @property
    def asked(self) -> tuple[int, int, int]:
        """How many negatives of each source a lineup holds, at most."""
        return self.within, self.sibling, self.cross_lemma

    @property
    def nearest(self) -> tuple[int, int, int]:
        return self.top_k_within, self.top_k_sibling, self.top_k_cross

    @property
    def enough(self) -> int:
        """Distinct lineups below which a candidate is not judged: repetitions are no evidence."""
        return max(self.min_passes, math.ceil(self.lineups / 2))

    def complete(self, *, with_existing: bool) -> Settings:
        if self.calibrate_to is not None and not with_existing:
            raise BadConfig("--calibrate-to needs the bundles to calibrate on", fix="Add --existing-tier3 FILE.")
        if self.threshold is not None:
            return self
        if self.calibrate_to is not None:
            return msgspec.structs.replace(self, threshold_source="calibrated")
        if with_existing:
            return msgspec.structs.replace(self, calibrate_to=DEFAULT_QUANTILE, threshold_source="default, calibrated")
        return msgspec.structs.replace(self, threshold=0.0, threshold_source="default")


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What the lineups said about one candidate; `negatives` are (event, source) of the hardest lineup."""

    passes: int
    tested: int
    danger: float | None
    negatives: list[tuple[int, int]]
    pools: list[int]
    rejected: str | None


class Calibration(msgspec.Struct, frozen=True):
    quantile: float
    bundles: int
    lowest: float
    highest: float


@dataclass(frozen=True)
class Targets:
    output: Path
    quarantine: Path
    stats: Path

    def named(self) -> tuple[tuple[str, Path], ...]:
        return ("--output", self.output), ("--quarantine", self.quarantine), ("--stats", self.stats)

    @property
    def work(self) -> Path:
        """Where a killed run leaves what it has done."""
        return self.output.with_name(f".{self.output.name[:200]}.mining")


def targets(output: Path, quarantine: Path | None = None, stats: Path | None = None) -> Targets:
    """O.jsonl -> O.quarantine.jsonl and O.stats.json beside it, unless they are given."""
    stem = output.name.removesuffix(".jsonl")
    return Targets(
        output,
        quarantine or output.with_name(f"{stem}.quarantine.jsonl"),
        stats or output.with_name(f"{stem}.stats.json"),
    )


class PoolStats(msgspec.Struct, frozen=True):
    """Sizes of one kind of pool over all candidates."""

    top_k: int
    in_lineup: int
    candidates_with: int
    mean: float
    max: int


class MiningStats(msgspec.Struct, frozen=True, kw_only=True):
    """O.stats.json, and what --json prints. `tested` are candidates with enough distinct lineups; the pass rate is theirs."""

    candidates: int
    tested: int
    accepted: int
    written: int
    mining_pass_rate: float
    threshold: float
    threshold_source: str
    calibration: Calibration | None
    lineups: int
    min_passes: int
    seed: int
    style: str
    pass_distribution: dict[str, int]
    strength: dict[str, int]
    effective_lineups: dict[str, float]
    rejected: dict[str, int]
    quarantined: int
    duplicates: dict[str, int]
    """Left out before testing (sense, signature), or after it because a harder bundle asks the same (within_output)."""
    left_out: dict[str, int]
    """Beyond --max-candidates and --max-output."""
    pools: dict[str, PoolStats]
    encoder: dict[str, str]
    events: int
    senses: int
    settings: Settings
    inputs: dict[str, str]
    outputs: dict[str, str]
    notes: list[str]
    duration_s: float
    mined_at: str


@dataclass(frozen=True)
class Tested:
    """All candidates with their results, in one order."""

    catalogue: Catalogue
    chosen: Chosen
    results: Sequence[Result]
    settings: Settings
    threshold: float
    calibration: Calibration | None

    def unfit(self) -> Counter[str]:
        return Counter(result.rejected for result in self.results if result.rejected)

    def ranked(self) -> list[tuple[Candidate, Result]]:
        """Those with enough lineups, the hardest first."""
        fit = [pair for pair in zip(self.chosen.candidates, self.results, strict=True) if pair[1].rejected is None]
        return sorted(fit, key=lambda pair: (-pair[1].passes, -(pair[1].danger or 0.0), pair[0].id))

    def line(self, candidate: Candidate, result: Result, more: dict[str, Any]) -> bytes:
        events = self.catalogue.events
        negatives = tuple((events[number], NEGATIVE_SOURCES[source]) for number, source in result.negatives)
        # The shape is the one of `bundles build`; what is ours comes on top.
        nested = msgspec.json.decode(Draft(events[candidate.anchor], events[candidate.positive], negatives).line())
        nested["bundle_id"] = candidate.id
        nested["metadata"] |= {
            "source": SOURCE,
            **more,
            "danger": result.danger,
            "passes": result.passes,
            "lineup_passes": result.passes,
            "lineups_tested": result.tested,
            "strength": strength(result.passes, result.tested),
            "threshold": self.threshold,
        }
        return msgspec.json.encode(nested) + b"\n"


def write(
    tested: Tested, targets: Targets, about: dict[str, dict[str, str]], notes: list[str], began: float
) -> MiningStats:
    """Bundles and quarantine first, then the stats that name both with their digests."""
    settings = tested.settings
    ranked = tested.ranked()
    accepted = [pair for pair in ranked if pair[1].passes >= settings.min_passes]
    low = [pair for pair in ranked if 0 < pair[1].passes < settings.min_passes]
    different = _different(tested.catalogue, accepted)
    kept = different[: settings.max_output]
    with writing(targets.output) as stream:
        stream.writelines(tested.line(*pair, {"tier": TIERS[2]}) for pair in kept)
    with writing(targets.quarantine) as stream:
        stream.writelines(tested.line(*pair, {"quarantined": True}) for pair in low)
    if not kept:
        notes = [*notes, f"no candidate passed {settings.min_passes} lineups: the output is empty"]
    passes = Counter(result.passes for _, result in ranked)
    strengths = Counter(strength(result.passes, result.tested) for _, result in ranked)
    rejected = tested.unfit() + Counter(no_pass=passes[0], low_passes=len(low))
    effective = [result.tested for result in tested.results]
    stats = MiningStats(
        candidates=len(tested.results),
        tested=len(ranked),
        accepted=len(accepted),
        written=len(kept),
        mining_pass_rate=len(accepted) / len(ranked),
        threshold=tested.threshold,
        threshold_source=settings.threshold_source,
        calibration=tested.calibration,
        lineups=settings.lineups,
        min_passes=settings.min_passes,
        seed=settings.seed,
        style=tested.catalogue.style,
        pass_distribution={str(count): passes[count] for count in range(settings.lineups + 1)},
        strength={name: strengths[name] for name in STRENGTHS},
        effective_lineups={
            "min": min(effective),
            "mean": sum(effective) / len(effective),
            "too_few": tested.unfit()["too_few_lineups"],
        },
        rejected=dict(sorted(rejected.items())),
        quarantined=len(low),
        duplicates={
            "signature": tested.chosen.known_pair,
            "sense": tested.chosen.known_sense,
            "within_output": len(accepted) - len(different),
        },
        left_out={"max_candidates": tested.chosen.beyond_limit, "max_output": len(different) - len(kept)},
        pools=_pool_stats(tested),
        encoder=about["encoder"],
        events=len(tested.catalogue.events),
        senses=tested.catalogue.senses,
        settings=settings,
        inputs=about["inputs"],
        outputs={str(path): digest.of_file(path) for path in (targets.output, targets.quarantine)},
        notes=notes,
        duration_s=round(time.monotonic() - began, 3),
        mined_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    write_json(targets.stats, stats)
    return stats


def _different(catalogue: Catalogue, ranked: Sequence[tuple[Candidate, Result]]) -> list[tuple[Candidate, Result]]:
    """The first of all that have the same two texts: an example that uses two words of a synset is an event of both."""
    first: dict[tuple[str, str], tuple[Candidate, Result]] = {}
    for pair in ranked:
        texts = (normalised(catalogue.events[number].text) for number in (pair[0].anchor, pair[0].positive))
        anchor, positive = texts
        first.setdefault((anchor, positive), pair)
    return list(first.values())


def _pool_stats(tested: Tested) -> dict[str, PoolStats]:
    found = {}
    for place, source in enumerate(NEGATIVE_SOURCES):
        sizes = [result.pools[place] for result in tested.results]
        found[source] = PoolStats(
            top_k=tested.settings.nearest[place],
            in_lineup=tested.settings.asked[place],
            candidates_with=sum(size > 0 for size in sizes),
            mean=sum(sizes) / len(sizes),
            max=max(sizes),
        )
    return found
