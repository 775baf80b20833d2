"""Curriculum settings and pool sizes -> the probability of each tier and pool at any step, and on average. Pure, no NumPy.

What is empty gives its share to the rest in proportion, and each time that is said in a note. Drawing is in `curriculum.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crucible.contrast.config import Curriculum
from crucible.errors import BadConfig, BadData

POOLS = ("legacy", "organic", "expanded")
TIER_NAMES = ("tier1", "tier2", "tier3")
TOLERANCE = 1e-6 * (1 + 1e-9)
"""Probabilities are written by hand: 0.333333 three times is meant to be 1."""

_SUMMED_ONE_BY_ONE = 100_000

Probabilities = tuple[float, float, float]


@dataclass(frozen=True)
class Piece:
    """Steps `begin` to before `end`: the tiers' probabilities go in a straight line from `first` to `last`."""

    begin: int
    end: int | None
    """None: to the end of the run; then `first` equals `last`."""
    first: Probabilities
    last: Probabilities

    def at(self, step: float) -> Probabilities:
        if self.end is None or self.first == self.last:
            return self.first
        way = (step - self.begin) / (self.end - self.begin)
        one, two, three = (a + (b - a) * way for a, b in zip(self.first, self.last, strict=True))
        return one, two, three


@dataclass(frozen=True)
class Shares:
    """What one slot of a batch is drawn from."""

    tiers: Probabilities
    pools: dict[str, float]
    """Of the tier-3 slots: their share of all slots is `tiers[2]` times this."""


@dataclass(frozen=True)
class Plan:
    """The probabilities of a whole run, after whatever is empty has given its share away."""

    pieces: tuple[Piece, ...]
    filled: tuple[bool, bool, bool]
    """Which tiers can be drawn from."""
    pools: dict[str, float]
    sizes: dict[str, int]
    """Bundles of tier1, tier2 and each pool that are used, after the caps."""
    notes: list[str] = field(default_factory=list)

    def at(self, step: int) -> Shares:
        if step < 0:
            raise ValueError(f"step {step} is before the first")
        return Shares(_filled(self._piece(step).at(step), self.filled), dict(self.pools))

    def draws(self, tier: int, steps: int) -> float:
        """Expected slots of a tier (0, 1, 2) in the first `steps` steps, for one slot a step."""
        total = []
        for piece in self.pieces:
            end = steps if piece.end is None else min(piece.end, steps)
            if end > piece.begin:
                total.append(_mass(self.filled, tier, piece, end))
        return math.fsum(total)

    def _piece(self, step: int) -> Piece:
        return next(piece for piece in self.pieces if piece.end is None or step < piece.end)


def _filled(tiers: Probabilities, filled: tuple[bool, bool, bool]) -> Probabilities:
    """What is empty gives its share to the rest in proportion."""
    one, two, three = (value if there else 0.0 for value, there in zip(tiers, filled, strict=True))
    total = one + two + three
    return one / total, two / total, three / total


@functools.lru_cache(1024)
def _mass(filled: tuple[bool, bool, bool], tier: int, piece: Piece, end: int) -> float:
    """The sum of a tier's probability over the steps of a piece that come before `end`."""
    begin, steps = piece.begin, end - piece.begin
    if piece.first == piece.last:
        return steps * _filled(piece.first, filled)[tier]
    if all(filled):  # a straight line: the mean of its two ends
        return steps * (_filled(piece.at(begin), filled)[tier] + _filled(piece.at(end - 1), filled)[tier]) / 2
    # A share that is divided by the rest is no straight line. Long ones are summed in blocks, each by its middle: the curve
    # is so smooth that the error is below 1e-8 of the sum.
    width = -(-steps // _SUMMED_ONE_BY_ONE)
    blocks = ((low, min(low + width, end)) for low in range(begin, end, width))
    return math.fsum((high - low) * _filled(piece.at((low + high - 1) / 2), filled)[tier] for low, high in blocks)


def pieces(curriculum: Curriculum) -> tuple[Piece, ...]:
    """The run as pieces in order; the last has no end. A phase holds for the steps before its `until_step`."""
    if curriculum.mode == "phased":
        begins = [0, *(phase.until_step for phase in curriculum.phases)]
        each = [phase.tier_probabilities for phase in curriculum.phases]
        made = [Piece(begin, end, p, p) for begin, end, p in zip(begins, begins[1:], each, strict=False) if end > begin]
        return (*made, Piece(begins[-1], None, curriculum.tier_probabilities, curriculum.tier_probabilities))
    if curriculum.mode == "phased_v2":
        start, end = curriculum.start_probabilities, curriculum.end_probabilities
        begin, until = curriculum.transition_start, curriculum.transition_end
        assert start is not None and end is not None and begin is not None and until is not None  # see problems()
        before = (Piece(0, begin, start, start),) if begin else ()
        return (*before, Piece(begin, until, start, end), Piece(until, None, end, end))
    return (Piece(0, None, curriculum.tier_probabilities, curriculum.tier_probabilities),)


def plan(curriculum: Curriculum, sizes: Mapping[str, int]) -> Plan:
    """`sizes` names tier1, tier2 and the pools; BadConfig for impossible settings, BadData where nothing can be drawn."""
    wrong = problems(curriculum)
    if wrong:
        raise BadConfig("; ".join(wrong), fix="Correct the curriculum block, then `crucible config validate`.")
    used, notes = capped(sizes, curriculum.tier_caps)
    shares = _pool_shares(curriculum, used, notes)
    filled = (used["tier1"] > 0, used["tier2"] > 0, any(shares.values()))
    if not any(filled):
        counts = ", ".join(f"{name} {used[name]}" for name in used)
        raise BadData(
            f"there is no bundle to train on ({counts})", fix="Check data.bundles: `crucible pool stats FILE`."
        )
    made = pieces(curriculum)
    _note_empty_tiers(made, filled, notes)
    return Plan(made, filled, shares, used, notes)


def capped(
    sizes: Mapping[str, int], caps: Sequence[int | None] = (None, None, None)
) -> tuple[dict[str, int], list[str]]:
    """How many bundles of each group are used; the cap of tier 3 is shared by the pools in proportion to their sizes."""
    used = {name: sizes.get(name, 0) for name in (*TIER_NAMES[:2], *POOLS)}
    notes = []
    for tier, cap in zip(TIER_NAMES, caps, strict=True):
        names = POOLS if tier == "tier3" else (tier,)
        total = sum(used[name] for name in names)
        if cap is None or total <= cap:
            continue
        whole = {name: used[name] * cap // total for name in names}
        rest = {name: used[name] * cap % total for name in names}
        for name in sorted(names, key=lambda name: -rest[name])[: cap - sum(whole.values())]:
            whole[name] += 1
        used |= whole
        notes.append(f"{tier} is capped: {cap} of its {total} bundles are used")
    return used, notes


def _pool_shares(curriculum: Curriculum, used: Mapping[str, int], notes: list[str]) -> dict[str, float]:
    ratios = {name: float(getattr(curriculum.tier3_ratios, name)) for name in POOLS}
    kept = {name: ratio for name, ratio in ratios.items() if used[name] and ratio > 0}
    if not kept:
        if any(used[name] for name in POOLS):
            there = " and ".join(name for name in POOLS if used[name])
            notes.append(f"tier3 has bundles only in {there}, whose ratio is 0: none of them is drawn")
        return dict.fromkeys(POOLS, 0.0)
    for name in POOLS:
        if not used[name] and ratios[name] > 0:
            notes.append(f"pool {name} is empty: its ratio {ratios[name]:.2f} goes to {_listed(list(kept))}")
    total = math.fsum(kept.values())
    return {name: kept.get(name, 0.0) / total for name in POOLS}


def _note_empty_tiers(made: Sequence[Piece], filled: Sequence[bool], notes: list[str]) -> None:
    ends = [(piece, ps) for piece in made for ps in ((piece.first, piece.last) if piece.end else (piece.first,))]
    for piece, ps in ends:
        if not any(p > 0 and there for p, there in zip(ps, filled, strict=True)):
            only = _listed([name for name, p in zip(TIER_NAMES, ps, strict=True) if p > 0])
            raise BadData(
                f"from step {piece.begin} on everything is drawn from {only}, where there is no bundle",
                fix="Give another tier a probability above 0, or add bundles: `crucible pool stats FILE`.",
            )
    rest = [name for name, there in zip(TIER_NAMES, filled, strict=True) if there]
    for place, tier in enumerate(TIER_NAMES):
        asked = sorted({ps[place] for _, ps in ends if ps[place] > 0})
        if filled[place] or not asked:
            continue
        spread = f"{asked[0]:.2f}" if len(asked) == 1 else f"{asked[0]:.2f} to {asked[-1]:.2f}"
        notes.append(f"{tier} is empty: its probability {spread} goes to {_listed(rest)}")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) + (" in proportion" if len(names) > 1 else "")


def problems(curriculum: Curriculum) -> list[str]:
    """Everything that is wrong with the block, each with its key in dotted form; empty when it can be used."""
    wrong = _distribution("curriculum.tier_probabilities", curriculum.tier_probabilities)
    ratios = tuple(float(getattr(curriculum.tier3_ratios, name)) for name in POOLS)
    wrong += _distribution("curriculum.tier3_ratios", ratios, POOLS)
    for place, cap in enumerate(curriculum.tier_caps):
        if cap is not None and cap < 1:
            wrong.append(f"curriculum.tier_caps[{place}] is {cap}, it must be null or at least 1")
    if curriculum.mode == "phased":
        wrong += _phases(curriculum)
    elif curriculum.phases:
        wrong.append(f"curriculum.phases is given, but curriculum.mode is {curriculum.mode}: only phased reads it")
    v2 = ("start_probabilities", "end_probabilities", "transition_start", "transition_end")
    given = [name for name in v2 if getattr(curriculum, name) is not None]
    if curriculum.mode == "phased_v2":
        wrong += [f"curriculum.{name} is missing, phased_v2 needs it" for name in v2 if name not in given]
        wrong += _transition(curriculum)
    else:
        wrong += [
            f"curriculum.{name} is given, but curriculum.mode is {curriculum.mode}: only phased_v2 reads it"
            for name in given
        ]
    return wrong


def _phases(curriculum: Curriculum) -> list[str]:
    if not curriculum.phases:
        return ["curriculum.phases is empty, phased needs at least one phase"]
    wrong, earlier = [], 0
    for place, phase in enumerate(curriculum.phases):
        key = f"curriculum.phases[{place}]"
        if phase.until_step <= earlier:
            than = "0" if not place else f"{earlier} of the phase before"
            wrong.append(f"{key}.until_step is {phase.until_step}, it must be above {than}")
        earlier = max(earlier, phase.until_step)
        wrong += _distribution(f"{key}.tier_probabilities", phase.tier_probabilities)
    return wrong


def _transition(curriculum: Curriculum) -> list[str]:
    wrong = []
    for name in ("start_probabilities", "end_probabilities"):
        if (given := getattr(curriculum, name)) is not None:
            wrong += _distribution(f"curriculum.{name}", given)
    begin, end = curriculum.transition_start, curriculum.transition_end
    if begin is not None and begin < 0:
        wrong.append(f"curriculum.transition_start is {begin}, it must be at least 0")
    if begin is not None and end is not None and begin >= end:
        wrong.append(f"curriculum.transition_start is {begin}, it must be below curriculum.transition_end, {end}")
    return wrong


def _distribution(key: str, values: Sequence[float], names: Sequence[str] | None = None) -> list[str]:
    places = [f"{key}.{name}" for name in names] if names else [f"{key}[{place}]" for place in range(len(values))]
    wrong = [
        f"{place} is {value:g}, it must be from 0 to 1"
        for place, value in zip(places, values, strict=True)
        if not 0.0 <= value <= 1.0  # also catches NaN
    ]
    total = math.fsum(values)
    if not wrong and abs(total - 1.0) > TOLERANCE:
        wrong.append(f"{key} sum to {total:.7g}, they must sum to 1")
    return wrong
