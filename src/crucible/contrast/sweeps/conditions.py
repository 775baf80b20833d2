"""What a person typed -> the conditions of a sweep: a name and the settings that make it different. Pure; trains nothing.

ratio      85_10_5             percent of the tier-3 slots for legacy, organic and expanded bundles; 0.85_0.10_0.05 too
steps      500,1000            training.steps
ablation   name=key:value      any settings, several with `;` between them; or one part less at a time, as listed here
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import yaml

from crucible.contrast.config import Config
from crucible.contrast.shares import POOLS
from crucible.errors import BadConfig

Kind = Literal["ratio", "steps", "ablation"]
BASELINE = "baseline"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RATIO = "Give percent of legacy, organic and expanded that sum to 100, e.g. 75_15_10."


class Condition(msgspec.Struct, frozen=True):
    """`set` are dotted keys of the configuration; the name is the name of its folder."""

    name: str
    set: dict[str, Any]


def ratios(text: str) -> list[Condition]:
    return _distinct([_ratio(one) for one in _parts(text, "--ratios", _RATIO)], "--ratios")


def _ratio(text: str) -> Condition:
    try:
        numbers = [float(part) for part in text.split("_")]
    except ValueError:
        numbers = []
    if len(numbers) != len(POOLS) or not all(math.isfinite(one) and one >= 0 for one in numbers):
        raise BadConfig(f"{text!r} is not three numbers legacy_organic_expanded", fix=_RATIO)
    total = math.fsum(numbers)
    if math.isclose(total, 1.0, abs_tol=1e-9):
        percent = [round(100.0 * one, 9) for one in numbers]
    elif math.isclose(total, 100.0, abs_tol=1e-7):
        percent = numbers
    else:
        raise BadConfig(f"{text!r} sums to {total:g}, it must sum to 100 (or to 1)", fix=_RATIO)
    shares = {f"curriculum.tier3_ratios.{pool}": one / 100.0 for pool, one in zip(POOLS, percent, strict=True)}
    return Condition("_".join(f"{one:g}" for one in percent), shares)


def steps(text: str) -> list[Condition]:
    fix = "Give whole numbers, e.g. --steps 500,1000,2000."
    found = []
    for part in _parts(text, "--steps", fix):
        if not re.fullmatch(r"[1-9]\d{0,9}", part):
            raise BadConfig(f"--steps: {part!r} is not a number of steps", fix=fix)
        found.append(Condition(f"steps_{part}", {"training.steps": int(part)}))
    return _distinct(found, "--steps")


def seeds(text: str) -> tuple[int, ...]:
    fix = "Give different whole numbers, e.g. --seeds 42,123,456."
    parts = _parts(text, "--seeds", fix)
    wrong = [part for part in parts if not re.fullmatch(r"\d{1,15}", part)]
    found = tuple(int(part) for part in parts if part not in wrong)
    if wrong or len(set(found)) < len(found):
        raise BadConfig(f"--seeds: {wrong[0] if wrong else text!r} is not a list of different numbers", fix=fix)
    return found


# --- ablations ---------------------------------------------------------------------------------------------------------------


def ablations(given: Sequence[str], config: Config) -> list[Condition]:
    """The configuration as it is, and what was given with --set; without it, one part less at a time."""
    found = [_ablation(one) for one in given] if given else list(_less(config))
    if any(one.name == BASELINE for one in found):
        raise BadConfig(f"--set: {BASELINE} is the configuration as it is, and always there", fix="Use another name.")
    return _distinct([Condition(BASELINE, {}), *found], "--set")


def _ablation(text: str) -> Condition:
    fix = 'Write NAME=KEY:VALUE, e.g. --set "no_tier3=curriculum.tier_probabilities:[0.7,0.3,0.0]".'
    name, equals, settings = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise BadConfig(f"--set: {text!r} does not begin with a name", fix=fix)
    changes = {}
    for part in settings.split(";"):
        key, colon, value = part.partition(":")
        if not colon or not key.strip():
            raise BadConfig(f"--set: {part.strip()!r} is not KEY:VALUE", fix=fix)
        try:
            changes[key.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise BadConfig(f"--set: {value.strip()!r} is not a value (YAML)", fix=fix) from None
    return Condition(name, changes)


def _less(config: Config) -> Iterator[Condition]:
    """Each takes one thing away and shares what it had among the others; what is not there cannot be taken away."""
    model, curriculum = config.model, config.curriculum
    if model.in_batch_negatives:
        yield Condition("no_in_batch_negatives", {"model.in_batch_negatives": False})
    if model.hidden:
        yield Condition("linear_head", {"model.hidden": 0})
    held = {pool: getattr(curriculum.tier3_ratios, pool) for pool in POOLS}
    for pool in POOLS:
        rest = _without(held, pool)
        if rest is not None:
            yield Condition(f"no_{pool}", {f"curriculum.tier3_ratios.{name}": value for name, value in rest.items()})
    tiers = dict(zip(("tier1", "tier2", "tier3"), curriculum.tier_probabilities, strict=True))
    flat = {"curriculum.mode": "uniform"} if curriculum.mode != "uniform" else {}
    if flat or max(tiers.values()) - min(tiers.values()) > 1e-9:
        yield Condition("uniform_tiers", flat | {"curriculum.tier_probabilities": [1 / 3, 1 / 3, 1 / 3]})
    for tier in ("tier1", "tier3"):
        rest = _without(tiers, tier)
        if rest is not None:
            yield Condition(f"no_{tier}", flat | {"curriculum.tier_probabilities": list(rest.values())})


def _without(shares: dict[str, float], name: str) -> dict[str, float] | None:
    """The shares with one at 0 and the others in proportion; None where that changes or leaves nothing."""
    left = math.fsum(value for other, value in shares.items() if other != name)
    if shares[name] <= 0.0 or left <= 0.0:
        return None
    made = {other: 0.0 if other == name else value / left for other, value in shares.items()}
    largest = max(made, key=lambda other: made[other])
    made[largest] = 1.0 - math.fsum(value for other, value in made.items() if other != largest)  # sums to 1 exactly
    return made


# --- lists -------------------------------------------------------------------------------------------------------------------


def _parts(text: str, option: str, fix: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise BadConfig(f"{option}: {text!r} is not a list with commas", fix=fix)
    return parts


def _distinct(found: list[Condition], option: str) -> list[Condition]:
    seen: set[str] = set()
    for one in found:
        if one.name.casefold() in seen:  # folders on some disks know no case
            raise BadConfig(f"{option}: {one.name} is there twice", fix="Give every condition once.")
        seen.add(one.name.casefold())
    return found
