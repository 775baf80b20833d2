"""A training log and its items -> how often each item was really seen, by tier and pool, beside what was expected.

An expectation cannot hurt, an item that is hardly ever seen can: where the rarest item stands in a worse class than the
expectation, or the draws themselves do not fit it, a warning says so. Reads a run's folder, changes nothing in it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crucible.contrast import exposure, shares
from crucible.contrast.config import Config
from crucible.documents import open_input, read_bytes, read_json
from crucible.errors import BadData
from crucible.kernel.stats import quantile

SIGMAS = 5.0
MAX_NAMED = 10
_TIERS = ("tier1_easy", "tier2_robust", "tier3_adversarial")
_ITEMS_FIX = (
    'Each line must be {"index": 0, "id": "…", "tier": "…", "pool": "…"}: give the items.jsonl of the same run.'
)
_LOG_FIX = 'Each line must be {"step": 1, "drawn": [index, …], …}: give the log.jsonl of a training run.'


class Item(msgspec.Struct, frozen=True):
    """What is read of a line of items.jsonl."""

    index: int
    id: str
    tier: str | None = None
    pool: str | None = None


class Step(msgspec.Struct, frozen=True):
    """What is read of a line of log.jsonl."""

    step: int
    drawn: list[int]


class Realised(msgspec.Struct, frozen=True, kw_only=True):
    """The exposures of one group: a pool of tier 3, or one of the other tiers."""

    group: str
    items: int
    """Those that are drawn from at all, after the cap."""
    draws: int
    expected: float | None
    expected_status: str | None
    mean: float
    minimum: int
    maximum: int
    minimum_status: str
    never_seen: int
    never_seen_ids: list[str]
    """The first of them."""
    quantiles: dict[str, float]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    log: str
    items: str
    steps: int
    batch_size: int
    groups: list[Realised]
    warnings: list[str]
    notes: list[str]


class _PoolFacts(msgspec.Struct, frozen=True):
    expected: float | None = None


class _RunFacts(msgspec.Struct, frozen=True):
    """What is read of run.json."""

    steps: int
    exposure: dict[str, _PoolFacts] = {}


@dataclass(frozen=True)
class _Expected:
    """Group -> exposures of each item, and how many items of it are used."""

    of: dict[str, float]
    used: dict[str, int]
    notes: list[str]


def realised(log: Path, items: Path | None = None) -> Report:
    """`items` is items.jsonl beside the log if not given; expectations come from config.yaml or run.json beside the log."""
    open_input(log, "a training log").close()
    beside = items or log.with_name("items.jsonl")
    known = list(_items(beside))
    seen, steps, batch_size, torn = _counted(log, known)
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in known:
        groups[_group_of(item)].append(item)
    sizes = {name: len(found) for name, found in groups.items()}
    expected = _expected(log.parent, steps, batch_size, sizes)
    order = [name for name in (*_TIERS[:2], *shares.POOLS) if name in groups]
    order += sorted(groups.keys() - set(order))
    made = [one for name in order if (one := _realised(name, groups[name], seen, expected)) is not None]
    notes = [f"the last line of {log.name} breaks off: it was left out"] if torn else []
    warnings = [text for one in made for text in _disagreements(one, steps * batch_size)]
    return Report(
        log=str(log),
        items=str(beside),
        steps=steps,
        batch_size=batch_size,
        groups=made,
        warnings=warnings,
        notes=notes + expected.notes,
    )


# --- reading -----------------------------------------------------------------------------------------------------------


def _items(path: Path) -> Iterator[Item]:
    decoder = msgspec.json.Decoder(Item)
    number = 0
    with open_input(path, "the items of a training run") as stream:
        for number, raw in enumerate(stream, 1):
            item = _decoded(decoder, raw, path, number, _ITEMS_FIX)
            if item.index != number - 1:
                problem = f"is {item.index}, but the line is number {number}: indices count from 0"
                raise BadData.at(path, problem, fix=_ITEMS_FIX, line=number, field="index")
            yield item
    if not number:
        raise BadData.at(path, "holds no item", fix=_ITEMS_FIX)


def _counted(path: Path, known: Sequence[Item]) -> tuple[list[int], int, int, bool]:
    """Draws of each item, steps, batch size, and whether the last line was torn."""
    decoder = msgspec.json.Decoder(Step)
    seen, steps, batch_size = Counter[int](), 0, 0
    with open_input(path, "the log of a training run") as stream:
        for number, raw in enumerate(stream, 1):
            if not raw.endswith(b"\n") and _is_torn(raw):
                return _drawn(seen, path, known, steps), steps, batch_size, True
            line = _decoded(decoder, raw, path, number, _LOG_FIX)
            if line.step != steps + 1:
                problem = f"is {line.step}, but {steps + 1} is expected: a log counts its steps from 1"
                raise BadData.at(path, problem, fix=_LOG_FIX, line=number, field="step")
            if not line.drawn or (batch_size and len(line.drawn) != batch_size):
                problem = f"holds {len(line.drawn)} items, the first line {batch_size or 'must hold some'}"
                raise BadData.at(path, problem, fix=_LOG_FIX, line=number, field="drawn")
            steps, batch_size = line.step, len(line.drawn)
            place = next((i for i, index in enumerate(line.drawn) if not 0 <= index < len(known)), None)
            if place is not None:
                problem = f"{line.drawn[place]} is no item: there are {len(known)}, counted from 0"
                raise BadData.at(path, problem, fix=_ITEMS_FIX, line=number, field=f"drawn[{place}]")
            seen.update(line.drawn)
    return _drawn(seen, path, known, steps), steps, batch_size, False


def _drawn(seen: Counter[int], path: Path, known: Sequence[Item], steps: int) -> list[int]:
    if not steps:
        raise BadData.at(path, "holds no step", fix=_LOG_FIX)
    return [seen[item.index] for item in known]


def _is_torn(raw: bytes) -> bool:
    """A line that a crash cut off is no JSON at all; one that is JSON, but wrong, is a fault of the file."""
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _decoded(decoder: Any, raw: bytes, path: Path, number: int, fix: str) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        field, problem = None, text
        if " - at `$." in text:
            problem, _, place = text.partition(" - at `$.")
            field = place.rstrip("`")
        elif text.startswith("Object missing required field `"):
            field, problem = text.split("`")[1], "missing"
        raise BadData.at(path, problem, fix=fix, line=number, field=field) from None


def _group_of(item: Item) -> str:
    tier = item.tier or "untiered"
    if tier != _TIERS[2]:
        return tier
    return item.pool if item.pool in shares.POOLS else f"{tier} without a pool"


# --- expecting ---------------------------------------------------------------------------------------------------------


def _expected(run: Path, steps: int, batch_size: int, sizes: Mapping[str, int]) -> _Expected:
    """From the settings for exactly these steps; else from the run's own summary; else none."""
    config = run / "config.yaml"
    if config.exists():
        named = {name: sizes.get(name, 0) for name in (*_TIERS[:2], *shares.POOLS)}
        plan = shares.plan(_config(config).curriculum, exposure.group_sizes(named))
        draws = {_TIERS[0]: plan.draws(0, steps), _TIERS[1]: plan.draws(1, steps)}
        draws |= {name: plan.draws(2, steps) * plan.pools[name] for name in shares.POOLS}
        used = {_TIERS[0]: plan.sizes["tier1"], _TIERS[1]: plan.sizes["tier2"]} | {
            name: plan.sizes[name] for name in shares.POOLS
        }
        return _Expected({name: batch_size * draws[name] / used[name] for name in used if used[name]}, used, plan.notes)
    summary = run / "run.json"
    if not summary.exists():
        return _Expected({}, {}, ["neither config.yaml nor run.json stands beside the log: nothing to expect"])
    facts = read_json(summary, _RunFacts, "the summary of a training run", "Give the log of a `crucible train` run.")
    part = steps / facts.steps if facts.steps > 0 else 1.0
    notes = [] if part == 1.0 else [f"{steps} of {facts.steps} steps are done: expectations are scaled to them"]
    found = {name: pool.expected * part for name, pool in facts.exposure.items() if pool.expected is not None}
    return _Expected(found, {}, notes)


def _config(path: Path) -> Config:
    import yaml  # not at the top: only a log with settings beside it needs it

    try:
        tree = yaml.safe_load(read_bytes(path, "the settings of a run").replace(b"$${", b"${"))
        return msgspec.convert(tree, type=Config)
    except (yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        fix = "Give the log of a `crucible train` run, with its config.yaml as the run wrote it."
        raise BadData.at(path, f"is not the settings of a run: {error}", fix=fix) from None


# --- judging -----------------------------------------------------------------------------------------------------------


def _realised(name: str, items: Sequence[Item], seen: Sequence[int], expected: _Expected) -> Realised | None:
    """None for a group that the caps leave nothing of."""
    counts = sorted((seen[item.index], item.index) for item in items)
    # A cap leaves some items out for good: they are not rare, they are not there.
    left_out = len(items) - expected.used.get(name, len(items))
    names = {item.index: item.id for item in items}
    never = [index for count, index in counts if count == 0]
    kept = counts[min(left_out, len(never)) :]
    unseen = len(never) - min(left_out, len(never))
    if not kept:
        return None
    values = [float(count) for count, _ in kept]
    wanted = expected.of.get(name)
    return Realised(
        group=name,
        items=len(kept),
        draws=sum(count for count, _ in counts),
        expected=wanted,
        expected_status=None if wanted is None else exposure.status_of(wanted),
        mean=math.fsum(values) / len(values),
        minimum=kept[0][0],
        maximum=kept[-1][0],
        minimum_status=exposure.status_of(kept[0][0]),
        never_seen=unseen,
        never_seen_ids=[names[index] for index in never[:MAX_NAMED]] if unseen else [],
        quantiles={f"q{round(100 * q)}": quantile(values, q) for q in (0.1, 0.5, 0.9)},
    )


def _disagreements(one: Realised, slots: int) -> Iterator[str]:
    if one.expected is None or one.expected_status is None:
        return
    order = [name for _, name in exposure.STATUSES]
    if order.index(one.minimum_status) > order.index(one.expected_status):
        yield (
            f"{one.group}: {one.expected:.1f} exposures were expected ({one.expected_status}), but the rarest item was "
            f"seen {one.minimum} times ({one.minimum_status})"
        )
    if one.never_seen and one.expected >= 1:
        yield f"{one.group}: {one.never_seen} of {one.items} items were never seen, {one.expected:.1f} times were expected"
    share = min(one.expected * one.items / slots, 1.0)
    spread = math.sqrt(slots * share * (1 - share)) / one.items  # phases only make it smaller
    off = abs(one.mean - one.expected)
    if off > SIGMAS * spread + 1e-9 * one.expected:
        yield (
            f"{one.group}: {one.mean:.2f} exposures on average where {one.expected:.2f} were expected, more than "
            f"{SIGMAS:g} standard deviations ({spread:.3f}) off: the draws did not follow the settings"
        )
