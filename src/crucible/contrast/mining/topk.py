"""Query vectors and a matrix -> the k nearest rows of each query, exactly: same rows, same order, whatever the threads and tiles.

A float32 GEMM, tile by tile, only decides which rows *may* be among the k: its error has a bound that holds for every order of
summation, so whatever is closer to the cut than twice that bound is kept. What was kept is measured again in one fixed order
of float64 sums and ranked by (similarity, larger first; row number, smaller first). The product of two float32 numbers is exact
in float64, so these similarities have the same bits on every machine. Approximate indexes are not covered.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, njit

from crucible.contrast.mining import blas
from crucible.contrast.score_cpu import _LINE, _prefetch

Rows = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
NONE = np.int32(-1)
"""Stands where a query has fewer than k rows."""
_TILE = (1024, 2032)
"""Queries x rows whose products are made at once: 8 MB, which stay in the cache until they are scanned. Not 2,048 rows, because
lines that are a power of two apart fall into the same few places of a cache."""
_FEWEST = 128
"""Queries that are worth a thread of their own."""
_SAMPLE = 1024
_BLOCK, _LANES, _AHEAD = 64, 32, 2
"""Products looked at together; sums side by side; rows fetched before they are needed, because they lie anywhere in memory."""
_LOWEST = np.float32(-3.0e38)
"""Below every similarity, above the minus infinity of an excluded row."""


@dataclass(frozen=True)
class Nearest:
    """`rows[i, :counts[i]]` are the nearest of query i, best first, with their similarities; behind them NONE and NaN."""

    rows: Rows
    similarities: Reals
    counts: Rows


class Index:
    """A matrix that is searched; nothing is approximated or built ahead, so making one costs a pass over the rows."""

    def __init__(self, matrix: Vectors, tile: tuple[int, int] = _TILE) -> None:
        if matrix.dtype != np.float32 or matrix.ndim != 2 or min(tile) < 1:
            raise ValueError(f"float32 rows are needed, got {matrix.dtype} {matrix.shape} in tiles of {tile}")
        self.matrix, self.tile = np.ascontiguousarray(matrix), tile
        self.longest = float(_lengths(self.matrix).max(initial=0.0))
        self.sample = np.ascontiguousarray(self.matrix[:: len(matrix) // _SAMPLE + 1])

    def nearest(self, queries: Vectors, k: int, excluded: tuple[Offsets, Rows] | None = None) -> Nearest:
        """`excluded` are rows that a query must not get: offsets into a list of row numbers, rising for each query."""
        if queries.dtype != np.float32 or queries.shape[1:] != self.matrix.shape[1:] or k < 1:
            raise ValueError(f"the {k} nearest of {queries.dtype} {queries.shape} among {self.matrix.shape}")
        count = len(queries)
        found = Nearest(
            np.full((count, k), NONE, dtype=np.int32), np.full((count, k), np.nan), np.zeros(count, dtype=np.int32)
        )
        if not len(self.matrix):
            return found
        banned = excluded or (np.zeros(count + 1, dtype=np.int64), np.empty(0, dtype=np.int32))
        search = _Search(self, np.ascontiguousarray(queries), min(k, len(self.matrix)), banned, found)
        threads = get_num_threads()
        size = min(self.tile[0], max(_FEWEST, -(-count // threads)))
        parts = [np.arange(start, min(start + size, count)) for start in range(0, count, size)]
        with blas.one_thread(), ThreadPoolExecutor(threads) as pool:
            list(pool.map(search.run, parts))
        return found


class _Search:
    """One call of `nearest`. Each part of the queries goes all the way in one thread, so that its products stay in that core's
    cache. Were BLAS to use threads of its own, those would spin between two products and be in the way of the scan."""

    def __init__(self, index: Index, queries: Vectors, k: int, banned: tuple[Offsets, Rows], found: Nearest) -> None:
        self.index, self.queries, self.k, self.banned, self.found = index, queries, k, banned, found

    def run(self, part: Places) -> None:
        """Fills `found` for some of the queries."""
        # Guessing pays only where a small sample says something about the cut.
        rows = len(self.index.matrix)
        short = part
        if rows >= 4 * _SAMPLE and 16 * self.k <= rows:
            own = self.queries[part]
            short = part[self._searched(part, own, self._guesses(own))]
        if short.size:
            self._searched(short, self.queries[short], np.full(len(short), _LOWEST, dtype=np.float32))

    def _searched(self, part: Places, own: Vectors, guesses: Vectors) -> npt.NDArray[np.bool_]:
        """True where the guess was too high, so that rows may be missing."""
        matrix, width, n, k = self.index.matrix, self.index.tile[1], len(own), self.k
        error = self.error_bounds(own)
        limits = np.asarray(guesses - 2.0 * error, dtype=np.float32)
        held = np.zeros(n, dtype=np.int32)
        rows = np.empty((n, 2 * k + 64), dtype=np.int32)
        values = np.empty(rows.shape, dtype=np.float32)
        space = np.empty(n * min(width, len(matrix)), dtype=np.float32)
        for first in range(0, len(matrix), width):
            products = self.products(own, matrix[first : first + width], space)
            _mask(products, first, part, *self.banned)
            _scan(products, own, matrix, first, k, error, held, limits, rows, values)
        short = np.zeros(n, dtype=np.bool_)
        best = self.found.rows, self.found.similarities, self.found.counts
        _rank(own, matrix, k, error, guesses, held, rows, values, part, *best, short)
        return short

    def products(self, queries: Vectors, rows: Vectors, space: Vectors) -> Vectors:
        return np.dot(queries, rows.T, out=space[: len(queries) * len(rows)].reshape(len(queries), len(rows)))

    def _guesses(self, queries: Vectors) -> Vectors:
        """Where the k-th nearest may lie, from evenly spread rows: about what several times k rows reach. Whoever finds
        that it lies lower begins again without a guess, so a bad one costs time and nothing else."""
        sample = self.index.sample
        expected = self.k * len(sample) / len(self.index.matrix)
        place = math.ceil(expected + 3.0 * math.sqrt(expected) + 3.0)
        found = np.empty(len(queries), dtype=np.float32)
        space = np.empty(len(queries) * len(sample), dtype=np.float32)
        _nth_of_rows(self.products(queries, sample, space), place, found)
        return found

    def error_bounds(self, queries: Vectors) -> Reals:
        """How far a float32 dot product of each query with any row can be from the true one, in whatever order it is summed.

        |error| <= g |x| |y| with g = d u / (1 - d u) and u = 2^-24; the second term covers the rounding of limits to float32.
        """
        steps = (queries.shape[1] + 2) * 2.0**-24
        return np.asarray(self.index.longest * _lengths(queries) * (steps / (1.0 - steps) + 2.0**-23) + 1e-30)


def similarities(vectors: Vectors, owners: Rows, offsets: Offsets, rows: Rows) -> Reals:
    """The similarity of row `owners[i]` to each of `rows[offsets[i]:offsets[i + 1]]`, summed as in `nearest`."""
    found = np.empty(len(rows))
    _measure(vectors, owners, offsets, rows, found)
    return found


def _lengths(rows: Vectors) -> Reals:
    squares = np.empty(len(rows))
    _squares(rows, squares)
    if not np.isfinite(squares).all():
        raise ValueError("the vectors must be finite")
    return np.sqrt(squares)


# --- compiled ----------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, error_model="numpy")
def _squares(rows, squares):  # type: ignore[no-untyped-def]
    sums = np.empty(_LANES)
    for i in range(rows.shape[0]):
        squares[i] = _dot(rows[i], rows[i], sums)


@njit(nogil=True, cache=True, error_model="numpy")
def _dot(x, y, sums):  # type: ignore[no-untyped-def]
    """_LANES float64 sums side by side, then halved until one is left: always this order. No fastmath, the order is the point."""
    sums[:] = 0.0
    whole = x.shape[0] // _LANES * _LANES
    for q in range(0, whole, _LANES):
        a, b = x[q : q + _LANES], y[q : q + _LANES]
        for lane in range(_LANES):
            sums[lane] += np.float64(a[lane]) * np.float64(b[lane])
    for q in range(whole, x.shape[0]):
        sums[q - whole] += np.float64(x[q]) * np.float64(y[q])
    width = _LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            sums[lane] += sums[lane + width]
    return sums[0]


@njit(nogil=True, cache=True, error_model="numpy")
def _measure(vectors, owners, offsets, rows, found):  # type: ignore[no-untyped-def]
    sums = np.empty(_LANES)
    for i in range(owners.shape[0]):
        for j in range(offsets[i], offsets[i + 1]):
            found[j] = _dot(vectors[owners[i]], vectors[rows[j]], sums)


@njit(nogil=True, cache=True, error_model="numpy")
def _nth_of_rows(products, n, found):  # type: ignore[no-untyped-def]
    """The n-th largest value of each row, for a small n."""
    top = np.empty(n, dtype=np.float32)
    for i in range(products.shape[0]):
        top[:] = -np.inf
        for j in range(products.shape[1]):
            value = products[i, j]
            if value > top[n - 1]:
                place = n - 1
                while place > 0 and top[place - 1] < value:
                    top[place] = top[place - 1]
                    place -= 1
                top[place] = value
        found[i] = max(_LOWEST, top[n - 1])


@njit(nogil=True, cache=True, error_model="numpy")
def _kth_largest(values, k):  # type: ignore[no-untyped-def]
    """Quickselect on a copy."""
    work = values.copy()
    low, high, wanted = 0, work.shape[0] - 1, k - 1
    while low < high:
        pivot = work[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while work[i] > pivot:
                i += 1
            while work[j] < pivot:
                j -= 1
            if i <= j:
                work[i], work[j] = work[j], work[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return work[wanted]


@njit(nogil=True, cache=True, error_model="numpy")
def _best_first(query, matrix, rows, count):  # type: ignore[no-untyped-def]
    """Exact similarities of the first `count` rows, and their places by (similarity, larger first; row, smaller first)."""
    exact, sums = np.empty(count), np.empty(_LANES)
    for place in range(count):
        ahead = rows[min(place + _AHEAD, count - 1)]
        for column in range(0, matrix.shape[1], _LINE):
            _prefetch(matrix, ahead, column)
        exact[place] = _dot(query, matrix[rows[place]], sums)
    return exact, np.argsort(-exact, kind="mergesort")  # stable, and rows stand in rising order


@njit(nogil=True, cache=True, error_model="numpy")
def _shrink(query, matrix, k, error, count, rows, values):  # type: ignore[no-untyped-def]
    """Drops what cannot be among the k nearest of all rows seen; returns how many are left and the new limit."""
    limit = np.float32(np.float64(_kth_largest(values[:count], k)) - 2.0 * error)
    left = 0
    for place in range(count):
        if values[place] >= limit:
            rows[left], values[left] = rows[place], values[place]
            left += 1
    if left <= k + (rows.shape[0] - k) // 2:
        return left, limit
    # A crowd at the cut, as equal vectors make it: the exact order decides, and of equals the earlier rows stay.
    exact, order = _best_first(query, matrix, rows, left)
    last = exact[order[k - 1]]
    kept = np.zeros(left, dtype=np.uint8)
    for place in range(k):
        kept[order[place]] = 1
    count, left = left, 0
    for place in range(count):
        if kept[place]:
            rows[left], values[left] = rows[place], values[place]
            left += 1
    return left, max(limit, np.float32(last - error))


@njit(nogil=True, cache=True, error_model="numpy")
def _mask(products, first, part, offsets, banned):  # type: ignore[no-untyped-def]
    width = products.shape[1]
    for i in range(products.shape[0]):
        begin, end = offsets[part[i]], offsets[part[i] + 1]
        for place in range(begin + np.searchsorted(banned[begin:end], first), end):
            if banned[place] >= first + width:
                break
            products[i, banned[place] - first] = -np.inf


@njit(nogil=True, cache=True, error_model="numpy")
def _scan(products, queries, matrix, first, k, error, held, limits, rows, values):  # type: ignore[no-untyped-def]
    """Adds the rows of one tile that may be among the k nearest; tiles come in rising order of rows."""
    width, space = products.shape[1], rows.shape[1]
    whole = width // _BLOCK * _BLOCK
    for i in range(products.shape[0]):
        line, count, limit = products[i], held[i], limits[i]
        for start in range(0, width, _BLOCK):
            if start < whole:
                # A count of fixed length becomes vector instructions, and nearly every block ends here.
                block, above = line[start : start + _BLOCK], np.int32(0)
                for j in range(_BLOCK):
                    above += np.int32(block[j] >= limit)
                if not above:
                    continue
            for j in range(start, min(start + _BLOCK, width)):
                if line[j] >= limit:
                    rows[i, count], values[i, count] = first + j, line[j]
                    count += 1
                    if count == space:
                        count, limit = _shrink(queries[i], matrix, k, error[i], count, rows[i], values[i])
        held[i], limits[i] = count, limit


@njit(nogil=True, cache=True, error_model="numpy")
def _rank(  # type: ignore[no-untyped-def]
    queries, matrix, k, error, guesses, held, rows, values, part, best, similarity, counts, short
):
    for i in range(held.shape[0]):
        count = held[i]
        if count > k:
            count, _ = _shrink(queries[i], matrix, k, error[i], count, rows[i], values[i])
        exact, order = _best_first(queries[i], matrix, rows[i], count)
        counts[part[i]] = min(k, count)
        for place in range(min(k, count)):
            best[part[i], place], similarity[part[i], place] = rows[i, order[place]], exact[order[place]]
        # A row that was never held is below guess - error: no loss, unless the k-th that was found is below that as well.
        short[i] = count < k or exact[order[k - 1]] < guesses[i] - error[i]
