"""Pools of negatives with their similarities -> N seeded lineups of every candidate -> how many of them are dangerous.

    danger of a lineup = max(similarity of its negatives) - similarity of the positive        a pass: danger >= threshold

A lineup draws without replacement from each pool, with a generator keyed by (seed, candidate, number of the lineup): nothing else
moves it. Lineups that hold the same negatives count once. Compiled by numba, all candidates in one pass over integers; encodes
and searches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from crucible.contrast.mining.topk import Offsets, Reals, Rows

ULTRA, MID, LOW = 0.8, 0.5, 0.2
STRENGTHS = ("ultra", "mid", "low", "none")
SOURCES = 3
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32, _ONE = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32), np.uint64(1)


@dataclass(frozen=True)
class Outcome:
    """One value a candidate. `negatives` are places in the pools of the hardest lineup, rising, then -1."""

    passes: Rows
    tested: Rows
    """Distinct lineups; zero where the pools are empty."""
    danger: Reals
    """Of the hardest lineup; NaN where there is none."""
    negatives: Rows


def strength(passes: int, tested: int) -> str:
    """By the share of the lineups, so that the words mean the same for any number of them."""
    share = passes / tested if tested else 0.0
    return "ultra" if share >= ULTRA else "mid" if share >= MID else "low" if share >= LOW else "none"


def line_up(
    keys: npt.NDArray[np.uint64],
    positives: Reals,
    owners: Rows,
    pools: Offsets,
    similarities: Reals,
    asked: tuple[int, int, int],
    lineups: int,
    threshold: float,
) -> Outcome:
    """`pools[3 * owner + s]` is where pool s of an owner begins in `similarities`; candidates may share an owner."""
    n = len(keys)
    found = Outcome(
        np.zeros(n, dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        np.full(n, np.nan),
        np.full((n, sum(asked)), -1, dtype=np.int32),
    )
    counts = np.asarray(asked, dtype=np.int64)
    results = found.passes, found.tested, found.danger, found.negatives
    _line_up_all(keys, positives, owners, pools, similarities, counts, lineups, threshold, *results)
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _mixed(x):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@njit(nogil=True, cache=True, error_model="numpy")
def _draw(state, begin, end, count, places, chosen, filled):  # type: ignore[no-untyped-def]
    """Adds `count` of the places begin..end to a lineup, in rising order: the first steps of a shuffle. Returns the state."""
    size = end - begin
    for place in range(size):
        places[place] = begin + place
    for step in range(count):
        state += _GOLDEN
        other = step + np.int64(((_mixed(state) >> _S32) * np.uint64(size - step)) >> _S32)
        places[step], places[other] = places[other], places[step]
        own, at = places[step], filled + step
        while at > filled and chosen[at - 1] > own:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = own
    return state


@njit(nogil=True, cache=True, error_model="numpy")
def _is_new(drawn, tested, width):  # type: ignore[no-untyped-def]
    for earlier in range(tested):
        same = True
        for place in range(width):
            if drawn[earlier, place] != drawn[tested, place]:
                same = False
                break
        if same:
            return False
    return True


@njit(nogil=True, cache=True, error_model="numpy")
def _line_up_all(  # type: ignore[no-untyped-def]
    keys, positives, owners, pools, similarities, asked, lineups, threshold, passes, tested, danger, negatives
):
    drawn = np.empty((lineups, negatives.shape[1]), dtype=np.int32)
    places = np.empty(max(1, np.max(pools[1:] - pools[:-1])), dtype=np.int32)
    for i in range(keys.shape[0]):
        first = SOURCES * owners[i]
        for number in range(lineups):
            state = _mixed(keys[i] ^ _mixed(np.uint64(number) + _ONE))
            chosen, width = drawn[tested[i]], 0
            for source in range(SOURCES):
                begin, end = pools[first + source], pools[first + source + 1]
                count = min(asked[source], end - begin)
                state = _draw(state, begin, end, count, places, chosen, width)
                width += count
            if width == 0 or not _is_new(drawn, tested[i], width):
                continue
            hardest = -np.inf
            for place in range(width):
                hardest = max(hardest, similarities[chosen[place]])
            found = hardest - positives[i]
            passes[i] += found >= threshold
            if tested[i] == 0 or found > danger[i]:
                danger[i] = found
                negatives[i, :width] = chosen[:width]
            tested[i] += 1
