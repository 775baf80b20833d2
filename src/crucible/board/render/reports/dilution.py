"""Expected and realised exposures of the tier-3 pools -> a page on whether training showed every item often enough."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from crucible.board.plots.exposure import Group, Seen, Times, Zone, over_zones, stretches, times_seen
from crucible.board.render.outline import Number, Outline, Picture, Section, Sentence, Table, name, said, strong
from crucible.board.render.page import count, decimal, visible
from crucible.board.render.reports.words import Fact, facts, many


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """One pool in one run or condition; what was realised is null without a log. Over several seeds the worst of them."""

    condition: str
    pool: str
    items: int | None
    expected: float
    status: str
    realised_mean: float | None
    realised_min: int | None
    realised_max: int | None
    never_seen: int | None


class Counts(msgspec.Struct, frozen=True):
    """How often each item of a pool was drawn."""

    pool: str
    times: Sequence[int]


class Level(msgspec.Struct, frozen=True):
    floor: float
    name: str


class DilutionReport(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    rows: Sequence[Exposure]
    """In the order of conditions, and of pools within them."""
    levels: Sequence[Level]
    """From the worst to the healthiest."""
    counts: Sequence[Counts]
    """Of a run; a sweep has none."""
    conditions: int
    seeds: int
    empty_pools: Sequence[str]
    notes: Sequence[str]
    facts: Sequence[Fact]


def outline(report: DilutionReport) -> Outline:
    sections = [Section("Expected and realised exposures", picture=_picture(report), tables=[_table(report)])]
    if report.counts:
        sections.append(
            Section(
                "How often each item was seen", picture=_times(report), folded=[("Every bar as a table", _bars(report))]
            )
        )
    sections.append(Section("How it was measured", points=_measured(report)))
    return Outline(
        kind="dilution report",
        title=report.title,
        lede=_lede(report),
        numbers=_numbers(report),
        notes=[said(name(note)) for note in report.notes],
        sections=sections,
        facts=facts(report.facts),
    )


def _legacy(report: DilutionReport) -> list[Exposure]:
    return [row for row in report.rows if row.pool == "legacy"] or list(report.rows)


def _lede(report: DilutionReport) -> list[Sentence]:
    rows = _legacy(report)
    pool = rows[0].pool
    healthy = report.levels[-1].name
    if report.conditions == 1:
        row = rows[0]
        first = said(
            f"Each {pool} item is expected ",
            strong(f"{row.expected:.1f} times: {row.status}"),
            f" ({_meaning(row.status, report)}).",
        )
    else:
        worst = min(rows, key=lambda row: row.expected)
        good = sum(row.status == healthy for row in rows)
        first = said(
            f"In {good} of {many(report.conditions, 'condition')} the {pool} pool is {healthy}; the most diluted is ",
            name(worst.condition, important=True),
            f" with {worst.expected:.1f} expected exposures an item: {worst.status}.",
        )
    return [first, _realised(report)]


def _realised(report: DilutionReport) -> Sentence:
    """A pool whose ratio is zero is meant not to be seen, and is not counted as forgotten."""
    logged = [row for row in report.rows if row.realised_min is not None and row.expected > 0]
    if not logged:
        return said("What was really shown is not on record: there is no log.")
    least = min(logged, key=lambda row: row.realised_min or 0)
    forgotten = [row for row in logged if row.never_seen]
    if not forgotten:
        often = f"the least seen item was shown {_times_said(least.realised_min)} ({least.pool})"
        return said(f"In the log every item was seen; {often}.")
    if report.conditions == 1:
        never = sum(row.never_seen or 0 for row in forgotten)
        pools = " and ".join(row.pool for row in forgotten)
        return said("In the log ", strong(f"{many(never, 'item was', 'items were')} never seen"), f" ({pools}).")
    worst = max(forgotten, key=lambda row: row.never_seen or 0)
    some = len({row.condition for row in forgotten})
    return said(
        "In the log ",
        strong(f"{some} of {many(report.conditions, 'condition')} left items unseen"),
        ", most of all ",
        name(worst.condition),
        f": {count(worst.never_seen)} of the {worst.pool} pool.",
    )


def _times_said(number: float | None) -> str:
    return "once" if number == 1 else f"{decimal(number, 0)} times"


def _meaning(status: str, report: DilutionReport) -> str:
    floors = [level.floor for level in report.levels]
    place = [level.name for level in report.levels].index(status)
    if place == len(floors) - 1:
        return f"{floors[place]:g} or more"
    return f"below {floors[place + 1]:g}" if place == 0 else f"{floors[place]:g} to {floors[place + 1]:g}"


def _numbers(report: DilutionReport) -> list[Number]:
    if report.conditions > 1:
        return []
    numbers = []
    for row in report.rows:
        more = (
            "no log"
            if row.realised_mean is None
            else f"realised {row.realised_mean:.1f}, at least {decimal(row.realised_min, 0)}"
        )
        numbers.append(Number(f"Expected, {row.pool}", f"{row.expected:.1f}", said(strong(row.status), f"; {more}")))
    if any(row.never_seen is not None for row in report.rows):
        never = sum(row.never_seen or 0 for row in report.rows if row.expected > 0)
        numbers.append(Number("Never seen", count(never), said("of all tier-3 items")))
    return numbers


# --- pictures ----------------------------------------------------------------------------------------------------------


def _picture(report: DilutionReport) -> Picture:
    zones = [Zone(level.floor, level.name) for level in report.levels]
    if report.conditions == 1:
        groups = [Group("", [_seen(row, row.pool) for row in report.rows])]
    else:
        pools = list(dict.fromkeys(row.pool for row in report.rows))
        groups = [Group(pool, [_seen(row, row.condition) for row in report.rows if row.pool == pool]) for pool in pools]
    words = " ".join(
        f"{visible(row.condition)}, {row.pool}: expected {row.expected:.1f}, {row.status}"
        + (
            f"; realised {row.realised_mean:.1f} on average, {decimal(row.realised_min, 0)} at least."
            if row.realised_mean is not None
            else "."
        )
        for row in report.rows
    )
    caption = (
        "A diamond is the expectation, a dot the realised mean; the line runs from the least to the most often "
        "seen item. "
        "The axis is stretched at its left end, where it matters."
    )
    return Picture("Exposures per item", words, lambda width: over_zones(groups, zones, width), said(caption))


def _seen(row: Exposure, label: str) -> Seen:
    return Seen(
        visible(label), row.expected, row.realised_min, row.realised_mean, row.realised_max or row.realised_mean
    )


def _times(report: DilutionReport) -> Picture:
    pools = [_pool(one) for one in report.counts]
    words = " ".join(
        f"{pool.name}: {count(pool.items)} items, {count(pool.never)} never seen, from {min(low for low, _, _ in pool.bars)} "
        ""
        ""
        ""
        f"to {max(high for _, high, _ in pool.bars)} times."
        for pool in pools
    )
    return Picture(
        "Items by times seen",
        words,
        lambda width: times_seen(pools, width),
        said("Items by the number of times that training drew them. Each panel has a height scale of its own."),
    )


def _pool(one: Counts) -> Times:
    return Times(visible(one.pool), len(one.times), sum(time == 0 for time in one.times), stretches(one.times))


def _bars(report: DilutionReport) -> Table:
    rows = [
        [one.pool, f"{low}" if low == high else f"{low} to {high}", count(items)]
        for one in report.counts
        for low, high, items in stretches(one.times)
    ]
    return Table("Items by times seen", ["pool", "times seen", "items"], rows)


# --- table -------------------------------------------------------------------------------------------------------------


def _table(report: DilutionReport) -> Table:
    several = report.conditions > 1
    columns = [
        *(["condition"] if several else []),
        "pool",
        *([] if several else ["items"]),
        "expected",
        "status",
        "realised mean",
        "least",
        "most",
        "never seen",
    ]
    rows = []
    for row in report.rows:
        first = [row.condition, row.pool] if several else [row.pool, count(row.items)]
        numbers = [
            decimal(value, digits)
            for value, digits in ((row.realised_mean, 1), (row.realised_min, 0), (row.realised_max, 0))
        ]
        rows.append([*first, f"{row.expected:.1f}", row.status, *numbers, count(row.never_seen)])
    for pool in report.empty_pools if not several else ():
        rows.append([pool, "0", *["–"] * 6])
    of = f"; of {many(report.seeds, 'seed')} the mean, the least and the most" if several and report.seeds > 1 else ""
    return Table(f"Exposures of an item, by tier-3 pool{of}", columns, rows, left=2 if several else 1)


def _measured(report: DilutionReport) -> list[Sentence]:
    floors = ", ".join(f"{level.name} from {level.floor:g}" for level in reversed(report.levels[1:]))
    return [
        said(
            "Expected exposures are steps × batch size × the probability of tier 3 × the pool's ratio ÷ the "
            "pool's size. The ratios are those that the run really used, after an empty pool's share was given "
            "to the others."
        ),
        said(
            f"The zones are those of the metrics reference: {floors}, below that {report.levels[0].name}. They "
            "are meant for the legacy pool."
        ),
        said(
            "Realised exposures are counted in the training log, item by item: an expectation says nothing about "
            "the item that was forgotten."
        ),
    ]
