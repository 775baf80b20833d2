"""Groups of training items and a curriculum -> the batch of any step: tier first, then the pool of tier 3. Trains nothing.

Each slot draws a tier with the probabilities of its step, a tier-3 slot then draws a pool by ratio, and inside a group the
items come in shuffled passes: every item once before any item twice, so that the rarest is seen as often as the mean allows.

A batch is a pure function of the groups, the settings, the seed and the step. Random bits come from a counter-based generator
(Philox) whose counter is the step, so no state has to be saved: a run that resumes at step k asks for batch k.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crucible.contrast import config
from crucible.contrast.shares import POOLS, TIER_NAMES, Piece, Shares, plan
from crucible.contrast.shares import problems as problems
from crucible.errors import BadConfig

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_NAMES = (*TIER_NAMES[:2], *POOLS)
"""The groups that are drawn from, in the order of the codes inside a block."""
_BLOCK = 1 << 14
"""Slots that are drawn at once, in whole steps; what is drawn does not depend on it."""


@dataclass(frozen=True)
class Groups:
    """What is drawn from: indices into the training items."""

    tier1: IntArray
    tier2: IntArray
    tier3: dict[str, IntArray]
    """Pool -> indices; a pool that is missing is empty."""

    def sizes(self) -> dict[str, int]:
        return {name: len(items) for name, items in self.named().items()}

    def named(self) -> dict[str, IntArray]:
        pools = {name: self.tier3.get(name, np.empty(0, np.int64)) for name in POOLS}
        return {"tier1": self.tier1, "tier2": self.tier2} | pools


@dataclass(frozen=True)
class Batch:
    items: IntArray
    """Indices into the training items."""
    tiers: npt.NDArray[np.int8]
    """0, 1, 2."""
    pools: npt.NDArray[np.int8]
    """Index into POOLS; -1 outside tier 3."""


@dataclass(frozen=True)
class _Block:
    """Some consecutive steps: the group of every slot, and how often each group was drawn before each step."""

    first: int
    group: npt.NDArray[np.int8]
    before: IntArray


class Sampler:
    """`batch(step)` for steps from 0, in any order of calls."""

    def __init__(self, groups: Groups, curriculum: config.Curriculum, *, batch_size: int, seed: int) -> None:
        if batch_size < 1:
            raise BadConfig(f"training.batch_size is {batch_size}, it must be at least 1", fix="Give at least 1.")
        unknown = sorted(groups.tier3.keys() - set(POOLS))
        if unknown:
            raise BadConfig(f"no pool is called {unknown[0]!r}", fix=f"The pools are {', '.join(POOLS)}.")
        self.batch_size, self.seed = batch_size, seed
        self._steps = max(1, _BLOCK // batch_size)
        self._plan = plan(curriculum, groups.sizes())
        self.notes: list[str] = list(self._plan.notes)
        self._items = {
            name: self._kept(name, np.asarray(items, np.int64), self._plan.sizes[name])
            for name, items in groups.named().items()
        }
        self._counts: list[IntArray] = [np.zeros(len(_NAMES), np.int64)]
        """Draws of each group before each block, as far as they are known."""
        self._last: _Block | None = None
        self._orders: dict[str, dict[int, IntArray]] = {}

    @property
    def used(self) -> Groups:
        """What is left after the caps: an item that is not in it is never drawn."""
        items = self._items
        return Groups(items["tier1"], items["tier2"], {name: items[name] for name in POOLS})

    def shares(self, step: int) -> Shares:
        """The probability of each tier, and of each pool among the tier-3 slots, after redistribution."""
        return self._plan.at(step)

    def batch(self, step: int) -> Batch:
        if step < 0:
            raise ValueError(f"step {step} is before the first")
        block = self._block(step // self._steps)
        group, before = block.group[step - block.first], block.before[step - block.first]
        items = np.empty(self.batch_size, np.int64)
        for code, name in enumerate(_NAMES):
            slots = np.flatnonzero(group == code)
            if len(slots):
                items[slots] = self._drawn(name, int(before[code]), len(slots))
        tiers = np.minimum(group, 2)
        pools = np.where(group < 2, -1, group - 2).astype(np.int8)
        return Batch(items, tiers, pools)

    # --- which group ---------------------------------------------------------------------------------------------------

    def _block(self, number: int) -> _Block:
        if self._last is not None and self._last.first == number * self._steps:
            return self._last
        while len(self._counts) <= number:
            group = self._groups((len(self._counts) - 1) * self._steps)
            self._counts.append(self._counts[-1] + np.bincount(group.ravel(), minlength=len(_NAMES)))
        group = self._groups(number * self._steps)
        per_step = np.stack([np.count_nonzero(group == code, axis=1) for code in range(len(_NAMES))], axis=1)
        before = self._counts[number] + np.cumsum(per_step, axis=0) - per_step
        self._last = _Block(number * self._steps, group, before)
        return self._last

    def _groups(self, first: int) -> npt.NDArray[np.int8]:
        """The group of every slot of a block of steps: two uniform numbers a slot, for the tier and for the pool."""
        size = self.batch_size
        words = -(-2 * size // 4)  # Philox gives four numbers for each value of its counter
        philox = np.random.Philox(key=_key(self.seed, "slots"), counter=first * words)
        raw = philox.random_raw(self._steps * words * 4).reshape(self._steps, words * 4)
        uniform: FloatArray = (raw[:, : 2 * size] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        tier = _chosen(uniform[:, :size], self._tiers(first))
        ratios = np.array([[self._plan.pools[name] for name in POOLS]])
        pool = _chosen(uniform[:, size:], ratios) if tier.max() == 2 else np.zeros_like(tier)
        return np.where(tier < 2, tier, 2 + pool).astype(np.int8)

    def _tiers(self, first: int) -> FloatArray:
        """The tiers' probabilities at each step of a block, not yet divided by their sum."""
        made = np.empty((self._steps, 3))
        for piece in self._plan.pieces:
            begin = max(piece.begin, first)
            end = first + self._steps if piece.end is None else min(piece.end, first + self._steps)
            if begin < end:
                made[begin - first : end - first] = _along(piece, begin, end)
        made *= np.array(self._plan.filled)
        return made

    # --- which item ----------------------------------------------------------------------------------------------------

    def _drawn(self, name: str, before: int, count: int) -> IntArray:
        """The next `count` items of a group of which `before` were drawn."""
        size, parts = len(self._items[name]), []
        while count:
            turn, place = divmod(before, size)
            part = self._order(name, turn)[place : place + count]
            parts.append(part)
            before += len(part)
            count -= len(part)
        return np.concatenate(parts)

    def _order(self, name: str, turn: int) -> IntArray:
        known = self._orders.setdefault(name, {})
        if turn not in known:
            while len(known) > 1:  # two passes meet in a batch, older ones are not asked for again
                del known[min(known)]
            known[turn] = self._items[name][_order(self.seed, f"pass {name} {turn}", len(self._items[name]))]
        return known[turn]

    def _kept(self, name: str, items: IntArray, count: int) -> IntArray:
        if count == len(items):
            return items
        return items[np.sort(_order(self.seed, f"cap {name}", len(items))[:count])]


def _along(piece: Piece, begin: int, end: int) -> FloatArray:
    """`piece.at` for many steps: the same operations in the same order, so the same numbers."""
    first, last = np.array(piece.first), np.array(piece.last)
    if piece.end is None or piece.first == piece.last:
        return np.broadcast_to(first, (end - begin, 3))
    way = (np.arange(begin, end) - piece.begin) / (piece.end - piece.begin)
    line: FloatArray = first + (last - first) * way[:, None]
    return line


def _chosen(uniform: FloatArray, weights: FloatArray) -> npt.NDArray[np.int8]:
    """For each number the column it falls into, columns as wide as their weights; one of weight 0 is never chosen."""
    edges = np.cumsum(weights, axis=1)
    scaled = uniform * edges[:, -1:]
    chosen = np.zeros(uniform.shape, np.int8)
    for place in range(weights.shape[1] - 1):
        chosen += scaled >= edges[:, place : place + 1]
    # Rounding can put a number on the upper edge of everything: it belongs to the last column that has a weight.
    last = weights.shape[1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    within: npt.NDArray[np.int8] = np.minimum(chosen, last[:, None]).astype(np.int8)
    return within


def _order(seed: int, purpose: str, size: int) -> IntArray:
    """A shuffled 0 … size-1. From raw bits and a stable sort: NumPy promises the bits, not its own shuffle."""
    raw = np.random.Philox(key=_key(seed, purpose)).random_raw(size)
    return np.argsort(raw, kind="stable").astype(np.int64)


def _key(seed: int, purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(f"curriculum {seed} {purpose}".encode()).digest()[:16], "big")
