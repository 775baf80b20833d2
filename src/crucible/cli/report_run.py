"""A training run's folder -> what the summary, margin, trajectory and dilution pages show of it. Draws nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from crucible.board.plots.curves import thinned
from crucible.board.render.bins import binned
from crucible.board.render.reports.dilution import Counts, DilutionReport, Exposure, Level
from crucible.board.render.reports.margins import Group, MarginReport, Margins
from crucible.board.render.reports.summary_run import Rate, RunSummary, Stretch, Truth
from crucible.board.render.reports.trajectory import Cliff, Point, Trajectory, Value
from crucible.board.render.reports.words import NAMES, Fact
from crucible.cli import report_files as files
from crucible.contrast.exposure import STATUSES
from crucible.contrast.guardrails import Finding
from crucible.contrast.scoreboard import Scoreboard, TierStats
from crucible.contrast.tiers import TIERS
from crucible.contrast.train.rundir import RunDir, RunInfo
from crucible.contrast.versus import Loaded, compare_all
from crucible.errors import BadData
from crucible.kernel import stats

TIER3 = TIERS[2]
LEVELS = [Level(floor, name) for floor, name in sorted(STATUSES)]
BY_CONSTRUCTION = (
    "The base encoder is the one that tiered the frozen set: tier 3 is 0% or near it for it by construction, so "
    "what training "
    "gains there is in part a return to the mean. Compare trained models with each other, or look at the organic "
    "holdout."
)


class LogLine(msgspec.Struct, frozen=True):
    """A line of log.jsonl, as far as a report needs it."""

    step: int
    loss: float | None
    drawn: list[int] = []


# --- summary -----------------------------------------------------------------------------------------------------------


def summary(folder: Path) -> RunSummary:
    info = files.run_info(folder)
    boards = {name: files.board(folder, name) for name in ("base-frozen", "frozen", "base-organic", "organic")}
    return RunSummary(
        title=f"{info.subject}, seed {info.seed}",
        subject=info.subject,
        encoder=info.encoder["id"],
        train=info.train,
        state=info.state,
        steps=info.steps,
        steps_done=info.steps_done,
        seed=info.seed,
        groups=info.groups,
        truths=_truths(boards),
        loss=loss(folder),
        findings=files.findings(folder),
        overrides=info.overrides,
        notes=[*caveats(boards.values(), info), *map(files.sentence, info.notes)],
        facts=[*files.run_facts(info, folder), *eval_facts(boards.values())],
    )


def _truths(boards: Mapping[str, Loaded | None]) -> list[Truth]:
    found = []
    for which, label in (("frozen", "frozen"), ("organic", "organic holdout")):
        base, trained = boards[f"base-{which}"], boards[which]
        if base is None and trained is None:
            continue
        paired = compare_all([base, trained]).comparisons[0].groups if base and trained else {}
        names = [*TIERS, "overall"] if which == "frozen" else ["overall"]
        for name in names:
            tests = paired.get(name)
            p = None if tests is None else tests.p if name == "overall" else tests.p_holm
            said = (
                f"{label} {NAMES[name].split(',')[0]}"
                if name in NAMES
                else f"{label}, all tiers"
                if which == "frozen"
                else label
            )
            header = (trained or base).board.eval_header  # type: ignore[union-attr]
            found.append(
                Truth(
                    name=said,
                    eval_set=f"{header.eval_set} {header.version}".strip(),
                    headline=name == TIER3 or which == "organic",
                    base=_rate(base, name),
                    trained=_rate(trained, name),
                    p=p,
                )
            )
    return found


def _rate(loaded: Loaded | None, name: str) -> Rate | None:
    if loaded is None:
        return None
    found = _stats(loaded.board, name)
    interval = stats.wilson(found.correct, found.n) if found.n else None
    return Rate(found.n, found.correct, found.pass_rate, interval, found.q10_margin)


def _stats(board: Scoreboard, name: str) -> TierStats:
    return board.overall if name == "overall" else board.by_tier[name]


def caveats(boards: Iterable[Loaded | None], info: RunInfo) -> list[str]:
    pins = [one.board.eval_header.pin for one in boards if one]
    if any(pin.facts.get("reference_encoder") == info.encoder["digest"] for pin in pins):
        return [BY_CONSTRUCTION]
    return []


def eval_facts(boards: Iterable[Loaded | None]) -> list[Fact]:
    headers = [one.board.eval_header for one in boards if one]
    named = {f"{one.eval_set} {one.version}".strip(): one.fingerprint for one in headers}
    return [Fact(f"Eval set {name}", fingerprint, True) for name, fingerprint in named.items()]


def loss(folder: Path) -> list[Stretch]:
    """The log in at most a few hundred stretches; steps without a finite loss are left out."""
    path = RunDir(folder).log
    if not path.exists():
        return []
    found = [(line.step, line.loss) for line in files.lines(path, LogLine) if line.loss is not None]
    return thinned([step for step, _ in found], [value for _, value in found])


# --- margins -----------------------------------------------------------------------------------------------------------


def margins(folder: Path) -> MarginReport:
    info = files.run_info(folder)
    groups: list[Group] = []
    every: dict[str, list[float]] = {}
    used: list[Loaded] = []
    for which in ("frozen", "organic"):
        base, trained = files.board(folder, f"base-{which}"), files.board(folder, which)
        if base is None or trained is None:
            continue
        used.append(trained)
        before = _margins(files.items_of(base, folder, f"base-{which}").values())
        after = _margins(files.items_of(trained, folder, which).values())
        for name, label in _panels(which, after):
            groups.append(_group(label, before[name], after[name], whole=name == "overall" and which == "frozen"))
            if not groups[-1].whole:
                every |= {f"{label} base": before[name], f"{label} trained": after[name]}
    if not groups:
        path = RunDir(folder).board_items("frozen")
        raise files.missing(
            path,
            "neither truth was measured before and after training",
            "Train with data.frozen_eval or data.organic_eval set: crucible train --config FILE --output-dir DIR",
        )
    return MarginReport(
        title=f"Margins of {info.subject}, seed {info.seed}",
        subject=info.subject,
        encoder=info.encoder["id"],
        groups=groups,
        histogram=binned(every),
        tail=[one.message for one in files.findings(folder) if one.guardrail == "G10"],
        notes=caveats(used, info),
        facts=[*files.run_facts(info, folder), *eval_facts(used)],
    )


def _margins(items: Iterable[object]) -> dict[str, list[float]]:
    """All margins, and those of each tier."""
    found: dict[str, list[float]] = {"overall": []}
    for item in items:
        margin, tier = item.margin, item.tier  # type: ignore[attr-defined]
        found["overall"].append(margin)
        found.setdefault(tier or "no tier", []).append(margin)
    return found


def _panels(which: str, after: Mapping[str, list[float]]) -> list[tuple[str, str]]:
    if which == "organic":
        return [("overall", "organic holdout")]
    tiers = [(tier, f"frozen {NAMES[tier].split(',')[0]}") for tier in TIERS if after.get(tier)]
    return [*tiers, ("overall", "frozen, all tiers")] if tiers else [("overall", "frozen, all tiers")]


def _group(label: str, before: list[float], after: list[float], *, whole: bool) -> Group:
    return Group(label, len(after), _summary(before), _summary(after), whole)


def _summary(margins_: list[float]) -> Margins:
    passed = sum(margin > 0 for margin in margins_)
    return Margins(passed, passed / len(margins_), *(stats.quantile(margins_, q) for q in (0.1, 0.5, 0.9)))


# --- trajectory --------------------------------------------------------------------------------------------------------


def trajectory(folder: Path) -> Trajectory:
    info = files.run_info(folder)
    run = RunDir(folder)
    matches = [
        re.fullmatch(r"step-(\d+)-(?:frozen|organic)\.json", path.name) for path in run.scoreboards.glob("step-*.json")
    ]
    steps = sorted({int(match[1]) for match in matches if match})
    if not steps:
        raise BadData.at(
            run.scoreboards,
            "holds no step-*.json: this run was evaluated at its end only",
            fix="Train with evaluations on the way: crucible train --config FILE --experiment.eval_every 500 --output-dir DIR",
        )
    places = {0: ("base-frozen", "base-organic")}
    places |= {step: (f"step-{step:08d}-frozen", f"step-{step:08d}-organic") for step in steps}
    if info.state == "done":
        places[info.steps_done] = ("frozen", "organic")
    points, used = [], []
    for step, names in sorted(places.items()):
        frozen, organic = (files.board(folder, name) for name in names)
        used += [frozen, organic]
        points.append(Point(step, _value(frozen, TIER3), _value(organic, "overall")))
    return Trajectory(
        title=f"{info.subject}, seed {info.seed}, by steps",
        source="run",
        points=[point for point in points if point.frozen_tier3 or point.organic_holdout],
        cliff=next((cliff for one in files.found_in(folder) if (cliff := cliff_of(one))), None),
        seeds=1,
        notes=caveats(used, info),
        facts=[*files.run_facts(info, folder), *eval_facts(used)],
    )


def cliff_of(finding: Finding) -> Cliff | None:
    numbers = finding.numbers
    if finding.guardrail != "G8" or not {"from_step", "to_step"} <= numbers.keys():
        return None
    return Cliff(int(numbers["from_step"]), int(numbers["to_step"]), finding.message)


def _value(loaded: Loaded | None, name: str) -> Value | None:
    if loaded is None:
        return None
    found = _stats(loaded.board, name)
    return None if found.pass_rate is None else Value(found.pass_rate, stats.wilson(found.correct, found.n))


# --- dilution ----------------------------------------------------------------------------------------------------------


class ItemLine(msgspec.Struct, frozen=True):
    """A line of items.jsonl, as far as a report needs it."""

    index: int
    tier: str | None
    pool: str | None


def dilution(folder: Path) -> DilutionReport:
    info = files.run_info(folder)
    counts, left_out = times_seen(folder, info)
    notes = [files.sentence(note) for note in info.notes]
    if left_out:
        notes.append(f"{left_out} items were left out by curriculum.tier_caps; they are not counted here.")
    if info.state != "done":
        notes.insert(
            0, f"The run is not finished: realised numbers are those of {info.steps_done} of {info.steps} steps."
        )
    return DilutionReport(
        title=f"Exposures of {info.subject}, seed {info.seed}",
        rows=exposures(info, info.subject, counts),
        levels=LEVELS,
        counts=[Counts(pool, times) for pool, times in counts.items() if times],
        conditions=1,
        seeds=1,
        empty_pools=[pool for pool, found in info.exposure.items() if found.expected is None],
        notes=notes,
        facts=files.run_facts(info, folder),
    )


def exposures(info: RunInfo, condition: str, counts: Mapping[str, list[int]]) -> list[Exposure]:
    return [
        Exposure(
            condition=condition,
            pool=pool,
            items=info.groups.get(pool),
            expected=found.expected,
            status=found.status or "",
            realised_mean=found.realised_mean,
            realised_min=found.realised_min,
            realised_max=max(counts[pool]) if counts.get(pool) else None,
            never_seen=found.never_seen if found.realised_mean is not None else None,
        )
        for pool, found in info.exposure.items()
        if found.expected is not None
    ]


def times_seen(folder: Path, info: RunInfo) -> tuple[dict[str, list[int]], int]:
    """How often each tier-3 item was drawn, by pool, and how many items the tier caps left out of the run."""
    run = RunDir(folder)
    if not (run.items.exists() and run.log.exists()):
        return {}, 0
    drawn: Counter[int] = Counter()
    for line in files.lines(run.log, LogLine):
        drawn.update(line.drawn)
    found: dict[str, list[int]] = {}
    for item in files.lines(run.items, ItemLine):
        if item.tier == TIER3 and item.pool:
            found.setdefault(item.pool, []).append(drawn[item.index])
    left_out = 0
    for pool, times in found.items():
        # What a cap leaves out is never drawn either; the run itself knows how many of the others were not.
        never = info.exposure[pool].never_seen if pool in info.exposure else 0
        spare = times.count(0) - never
        left_out += max(0, spare)
        found[pool] = sorted(times)[max(0, spare) :]
    return found, left_out
