"""The finished runs of a sweep -> one row a condition with cross-seed statistics, as results.json has them. Pure; reads no file.

Nothing that depends on the clock, the machine or the order in which runs ended stands in a row: a sweep that was killed and
resumed has the same bytes as one that was left alone. A seed counts only with a checkpoint of its own: one checkpoint scored
three times would have a spread of zero and mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from crucible.contrast.guardrails import Finding, Point, cliff
from crucible.contrast.sweeps.conditions import Condition, Kind
from crucible.contrast.train.rundir import METRICS, RunInfo
from crucible.errors import BadData
from crucible.kernel import stats
from crucible.kernel.stats import Summary


@dataclass(frozen=True)
class Outcome:
    """One run: what it measured, or why it measured nothing (training broke, or a guardrail stopped it)."""

    seed: int
    info: RunInfo | None
    reason: str = ""


class SeedRow(msgspec.Struct, frozen=True):
    seed: int
    frozen_tier3: float
    organic_holdout: float
    frozen_overall: float
    checkpoint: str
    counted: bool = True


class Exposed(msgspec.Struct, frozen=True):
    """One pool over all counted seeds: the mean of the means, the lowest minimum, the most that were never seen."""

    expected: float | None
    status: str | None
    realised_mean: float | None
    realised_min: int | None
    never_seen: int


class Row(msgspec.Struct, frozen=True):
    condition: str
    set: dict[str, Any]
    n_seeds: int
    frozen_tier3: Summary
    organic_holdout: Summary
    frozen_overall: Summary
    frozen_tier3_q10: Summary
    organic_q10: Summary
    seeds: list[SeedRow]
    exposure: dict[str, Exposed]
    steps: int
    notes: list[str]


class Failed(msgspec.Struct, frozen=True):
    """A condition without a single measured seed."""

    condition: str
    set: dict[str, Any]
    reasons: list[str]


class Results(msgspec.Struct, frozen=True):
    """results.json; `recommendation` is what the board says about the rows."""

    schema: int
    kind: Kind
    seeds: list[int]
    fingerprints: dict[str, str]
    items: dict[str, int]
    """How many items each truth has: of frozen tier 3, of the organic holdout."""
    base: dict[str, float]
    rows: list[Row]
    failed: list[Failed]
    findings: list[Finding]
    """The overfitting cliff between the step counts of a steps sweep (G8)."""
    caveats: list[str]
    recommendation: dict[str, Any] | None = None


def results(
    kind: Kind,
    seeds: Sequence[int],
    runs: Mapping[str, tuple[Condition, Sequence[Outcome]]],
    fingerprints: Mapping[str, str],
    items: Mapping[str, int],
    caveats: Sequence[str],
) -> Results:
    """`runs` by condition, in the order of the sweep; `items` counts what each truth has."""
    rows, failed = [], []
    for condition, outcomes in runs.values():
        measured = [one.info for one in outcomes if one.info is not None]
        if measured:
            rows.append(_row(condition, measured, outcomes))
        else:
            reasons = [f"seed {one.seed}: {one.reason}" for one in outcomes]
            failed.append(Failed(condition.name, condition.set, reasons))
    infos = [one.info for _, outcomes in runs.values() for one in outcomes if one.info is not None]
    points = [Point(row.steps, row.frozen_tier3.mean, row.organic_holdout.mean) for row in rows]
    return Results(
        schema=1,
        kind=kind,
        seeds=list(seeds),
        fingerprints=dict(fingerprints),
        items=dict(items),
        base=_base(infos),
        rows=rows,
        failed=failed,
        findings=cliff(points) if kind == "steps" else [],
        caveats=[*caveats, *_item_sampling(rows, items)],
    )


def _item_sampling(rows: Sequence[Row], items: Mapping[str, int]) -> list[str]:
    """The spread over seeds knows nothing of the items: with others of the same kind every row would move."""
    told = []
    for metric, n in items.items():
        rates = [getattr(row, metric).mean for row in rows]
        widest = max((math.sqrt(max(0.0, rate * (1.0 - rate)) / n) for rate in rates if n), default=0.0)
        if widest:
            told.append(f"±{widest:.4f} on {metric} ({n} items)")
    return [f"another draw of items would move the rows together by about {' and '.join(told)}"] if told else []


def _row(condition: Condition, measured: Sequence[RunInfo], outcomes: Sequence[Outcome]) -> Row:
    counted, notes = _counted(measured)
    notes += [f"seed {one.seed} gave no result: {one.reason}" for one in outcomes if one.info is None]
    frozen_tier3, frozen_overall, frozen_tier3_q10, organic_holdout, organic_q10 = (
        stats.summary([_metric(info, name, condition.name) for info in counted]) for name in METRICS
    )
    return Row(
        condition=condition.name,
        set=condition.set,
        n_seeds=len(counted),
        frozen_tier3=frozen_tier3,
        organic_holdout=organic_holdout,
        frozen_overall=frozen_overall,
        frozen_tier3_q10=frozen_tier3_q10,
        organic_q10=organic_q10,
        seeds=[
            SeedRow(
                seed=info.seed,
                frozen_tier3=_metric(info, "frozen_tier3", condition.name),
                organic_holdout=_metric(info, "organic_holdout", condition.name),
                frozen_overall=_metric(info, "frozen_overall", condition.name),
                checkpoint=info.checkpoint or "",
                counted=info in counted,
            )
            for info in measured
        ],
        exposure={pool: _exposed([info.exposure[pool] for info in counted]) for pool in counted[0].exposure},
        steps=counted[0].steps,
        notes=notes + [note for note in counted[0].notes if all(note in info.notes for info in counted)],
    )


def _counted(measured: Sequence[RunInfo]) -> tuple[list[RunInfo], list[str]]:
    """One run of every checkpoint; in the order of the seeds, so that nobody can choose which one counts."""
    first: dict[str, RunInfo] = {}
    notes = []
    for info in measured:
        other = first.setdefault(info.checkpoint or "", info)
        if other is not info:
            notes.append(f"seed {info.seed} is not counted: its checkpoint is the one of seed {other.seed}")
    return list(first.values()), notes


def _metric(info: RunInfo, name: str, condition: str) -> float:
    value = info.metrics.get(name)
    if value is None:
        raise BadData(f"{condition}, seed {info.seed}: there is no {name}", fix="Both truths must be configured.")
    return value


def _exposed(found: Sequence[Any]) -> Exposed:
    means = [one.realised_mean for one in found if one.realised_mean is not None]
    lowest = [one.realised_min for one in found if one.realised_min is not None]
    return Exposed(
        expected=found[0].expected,
        status=found[0].status,
        realised_mean=stats.summary(means).mean if means else None,
        realised_min=min(lowest) if lowest else None,
        never_seen=max(one.never_seen for one in found),
    )


def _base(infos: Sequence[RunInfo]) -> dict[str, float]:
    """The encoder that every run started from: one model, one measurement."""
    found: dict[str, float] = {}
    for info in infos[:1]:
        found = {name: value for name in METRICS if (value := info.metrics.get(f"base_{name}")) is not None}
    return found
