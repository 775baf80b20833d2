"""The exact search gives what brute force gives: same rows, same order, whatever the threads, the tiles, the ties and the crowd at the cut."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.mining import blas, topk
from crucible.contrast.mining.topk import Index, Nearest, similarities


def measured(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Every similarity in the documented order: 32 float64 sums side by side, then halved until one is left."""
    products = query.astype(np.float64) * rows.astype(np.float64)
    padded = np.zeros((len(rows), -(-products.shape[1] // 32) * 32))
    padded[:, : products.shape[1]] = products
    sums = np.zeros((len(rows), 32))
    for block in range(0, padded.shape[1], 32):
        sums = sums + padded[:, block : block + 32]
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0]


def brute_force(
    queries: np.ndarray, matrix: np.ndarray, k: int, banned: list[list[int]]
) -> list[list[tuple[int, float]]]:
    found = []
    for query, without in zip(queries, banned, strict=True):
        exact = measured(query, matrix)
        order = sorted(
            (row for row in range(len(matrix)) if row not in set(without)), key=lambda row: (-exact[row], row)
        )
        found.append([(row, float(exact[row])) for row in order[:k]])
    return found


def listed(found: Nearest) -> list[list[tuple[int, float]]]:
    return [
        list(zip(found.rows[i, :count].tolist(), found.similarities[i, :count].tolist(), strict=True))
        for i, count in enumerate(found.counts.tolist())
    ]


def excluded(banned: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in banned])]).astype(np.int64)
    return offsets, np.asarray([row for one in banned for row in sorted(one)], dtype=np.int32)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def crowd(rng: np.random.Generator, kind: str, n: int, dim: int) -> np.ndarray:
    """Rows that make the cut hard: plain, few distinct vectors, one vector, or so close that float32 cannot tell them apart."""
    if kind == "plain":
        return unit(rng.normal(size=(n, dim)))
    if kind == "repeated":
        return unit(rng.normal(size=(3, dim)))[rng.integers(0, 3, n)]
    if kind == "one":
        return np.repeat(unit(rng.normal(size=(1, dim))), n, axis=0)
    return unit(rng.normal(size=(1, dim)) + 1e-6 * rng.normal(size=(n, dim)))


@given(st.data())
def test_the_nearest_are_those_of_brute_force_whatever_the_tiles_ties_and_exclusions(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kind = data.draw(st.sampled_from(["plain", "repeated", "one", "close"]))
    n, q, dim, k = (data.draw(st.integers(1, most)) for most in (700, 5, 70, 40))
    matrix = crowd(rng, kind, n, dim)
    queries = matrix[rng.integers(0, n, q)] if data.draw(st.booleans()) else unit(rng.normal(size=(q, dim)))
    banned = [rng.choice(n, size=rng.integers(0, n + 1), replace=False).tolist() for _ in range(q)]
    tile = data.draw(st.sampled_from([(2048, 2048), (1, 1), (2, 7), (3, 64), (4, 129)]))
    got = Index(matrix, tile).nearest(queries, k, excluded(banned))
    assert listed(got) == brute_force(queries, matrix, k, banned)


@pytest.mark.parametrize("kind", ["plain", "repeated", "one", "close"])
def test_a_large_matrix_that_is_guessed_at_first_gives_the_same(kind):
    rng = np.random.default_rng(7)
    matrix = crowd(rng, kind, 9000, 96)
    queries = matrix[::450]
    banned = [rng.choice(9000, size=300, replace=False).tolist() for _ in queries]
    expected = brute_force(queries, matrix, 50, banned)
    for tile in ((2048, 2048), (7, 512)):
        assert listed(Index(matrix, tile).nearest(queries, 50, excluded(banned))) == expected


@pytest.mark.parametrize("kind", ["plain", "close", "band"])
def test_a_gemm_that_is_as_wrong_as_its_bound_allows_changes_nothing(kind, monkeypatch):
    """Real BLAS is far better than the bound, so the margin at the cut and at the guess is tried with products spoilt on purpose."""
    rng, k, n = np.random.default_rng(17), 100, 20_000
    step = n // 1024 + 1
    matrix = crowd(rng, "close" if kind == "close" else "plain", n, 48)
    query = matrix[1:2].copy()
    bound = float(topk._Search(Index(matrix), query, 1, None, None).error_bounds(query)[0])
    if kind == "band":  # the guess sees 15 rows near the query; what decides lies in a band just below them
        matrix -= (matrix @ query.T) * query  # at right angles to the query
        near, below = np.arange(15) * step, np.setdiff1d(np.arange(n), np.arange(0, n, step))[:400]
        matrix[near] = 0.5 * query
        matrix[below] = (0.5 - bound * rng.uniform(1.5, 6.5, size=(400, 1))) * query
    plain = topk._Search.products

    def spoilt(self, queries, rows, space):
        products = plain(self, queries, rows, space)
        products += rng.uniform(-0.9 * bound, 0.9 * bound, size=products.shape).astype(np.float32)
        return products

    monkeypatch.setattr(topk._Search, "products", spoilt)
    expected = brute_force(query, matrix, k, [[]])
    for _ in range(5):
        assert listed(Index(matrix, (4, 777)).nearest(query, k)) == expected


def test_a_guess_that_was_too_high_is_made_good():
    """The evenly spread rows, from which the first limit is guessed, are just the ones that lie close: fewer than k in all."""
    rng = np.random.default_rng(3)
    matrix = unit(rng.normal(size=(20_000, 24)))
    query = unit(rng.normal(size=(1, 24)))
    step = 20_000 // 1024 + 1
    matrix[::step] = unit(query + 0.05 * rng.normal(size=(len(matrix[::step]), 24)))
    got = Index(matrix).nearest(query, 1200)
    assert listed(got) == brute_force(query, matrix, 1200, [[]])
    banned = [list(range(0, 20_000, step))]
    assert listed(Index(matrix).nearest(query, 100, excluded(banned))) == brute_force(query, matrix, 100, banned)


def test_threads_and_tiles_change_no_bit():
    rng = np.random.default_rng(11)
    matrix, before = crowd(rng, "close", 6000, 384), numba.get_num_threads()
    found = []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            found += [Index(matrix, tile).nearest(matrix[:40], 100) for tile in ((2048, 2048), (16, 333))]
    finally:
        numba.set_num_threads(before)
    for other in found[1:]:
        assert found[0].rows.tobytes() == other.rows.tobytes()
        assert found[0].similarities.tobytes() == other.similarities.tobytes()


def test_blas_gets_its_threads_back_even_after_a_failure():
    before = blas.threads()
    Index(np.eye(8, dtype=np.float32)).nearest(np.eye(8, dtype=np.float32), 3)
    with pytest.raises(RuntimeError), blas.one_thread():
        assert blas.threads() in (1, None)
        raise RuntimeError
    assert blas.threads() == before


def test_similarities_are_true_to_the_last_digits_and_the_same_as_in_the_search():
    rng = np.random.default_rng(5)
    for dim in (1, 31, 32, 33, 384):
        matrix = unit(rng.normal(size=(20, dim)))
        found = similarities(
            matrix, np.asarray([3], dtype=np.int32), np.asarray([0, 20]), np.arange(20, dtype=np.int32)
        )
        exact = [math.fsum(float(a) * float(b) for a, b in zip(matrix[3], row, strict=True)) for row in matrix]
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-15)
        searched = Index(matrix).nearest(matrix[3:4], 20)
        assert sorted(searched.similarities[0].tolist()) == sorted(found.tolist())


def test_the_error_bound_holds_for_what_blas_really_does():
    """The margin at the cut is only worth something if no float32 product is further off than it says."""
    rng = np.random.default_rng(13)
    matrix = unit(rng.normal(size=(3000, 384)) + 2.0)
    index = Index(matrix)
    bounds = topk._Search(index, matrix, 1, None, None).error_bounds(matrix[:50])
    exact = matrix[:50].astype(np.float64) @ matrix.astype(np.float64).T
    off = np.abs(np.dot(matrix[:50], matrix.T) - exact).max(axis=1)
    assert (off < bounds).all() and (bounds < 1e-4).all()


def test_vectors_that_are_not_finite_or_do_not_fit_are_refused():
    rows = np.ones((4, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="finite"):
        Index(np.full((2, 3), np.nan, dtype=np.float32))
    with pytest.raises(ValueError, match="finite"):
        Index(rows).nearest(np.full((1, 3), np.inf, dtype=np.float32), 1)
    with pytest.raises(ValueError, match="nearest"):
        Index(rows).nearest(np.ones((1, 2), dtype=np.float32), 1)
    with pytest.raises(ValueError, match="float32"):
        Index(np.ones((4, 3)))
    nothing = Index(np.empty((0, 3), dtype=np.float32)).nearest(rows, 2)
    assert nothing.counts.tolist() == [0] * 4 and (nothing.rows == -1).all()
