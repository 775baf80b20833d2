"""The scoring engine agrees with a plain float64 reference on random, tied, duplicated and degenerate data."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.bundle import Bundle
from crucible.contrast.score import score
from crucible.contrast.textset import build


def reference(bundle: Bundle, vector_of: dict[str, np.ndarray]) -> tuple[float, int, int]:
    """The formulas of the metrics reference, one bundle at a time."""
    anchor = vector_of[bundle.anchor]
    positive = float(np.dot(anchor, vector_of[bundle.positive]))
    negatives = [float(np.dot(anchor, vector_of[text])) for text in bundle.negatives]
    rank = 1 + sum(s > positive + 1e-12 for s in negatives)
    ties = sum(abs(s - positive) <= 1e-12 for s in negatives)
    return max(negatives) - positive, rank, ties


def scored(bundles: list[Bundle], dim: int, seed: int):
    items = build(bundles)
    vectors = np.random.default_rng(seed).normal(size=(len(items.texts), dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    single = vectors.astype(np.float32)
    exact = dict(zip(items.texts, single.astype(np.float64), strict=True))
    return score(items, single), exact


words = st.sampled_from([f"text {i}" for i in range(12)])
bundle_lists = st.lists(st.tuples(words, words, st.lists(words, min_size=1, max_size=9)), min_size=1, max_size=20)


@given(bundle_lists, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_danger_rank_and_ties_agree_with_the_reference(rows, dim, seed):
    bundles = [Bundle(str(i), a, p, tuple(n)) for i, (a, p, n) in enumerate(rows)]
    scores, exact = scored(bundles, dim, seed)
    for i, bundle in enumerate(bundles):
        danger, rank, ties = reference(bundle, exact)
        assert abs(scores.danger[i] - danger) < 1e-9
        assert (scores.rank[i], scores.ties[i]) == (rank, ties)


def test_margin_is_minus_danger_and_a_tie_is_plain_zero():
    bundles = [Bundle("same", "a", "p", ("p",)), Bundle("other", "a", "p", ("q", "r"))]
    scores, _ = scored(bundles, 8, 1)
    assert scores.margin[0] == 0.0
    assert not np.signbit(scores.margin[0])
    assert scores.margin[1] == -scores.danger[1]


def test_negative_identical_to_the_positive_is_a_tie_with_rank_one():
    scores, _ = scored([Bundle("x", "a", "p", ("p", "p"))], 384, 7)
    assert (scores.rank[0], scores.ties[0], scores.danger[0]) == (1, 2, 0.0)


def test_collapsed_encoder_fails_everything_but_has_rank_one():
    items = build([Bundle("x", "a", "p", ("n", "m"))])
    scores = score(items, np.ones((4, 3), dtype=np.float32))
    assert scores.danger[0] == 0.0
    assert (scores.rank[0], scores.ties[0]) == (1, 2)


def test_many_ragged_bundles_cross_the_chunk_boundary():
    rng = np.random.default_rng(3)
    texts = [f"t{i}" for i in range(500)]
    bundles = [
        Bundle(str(i), texts[i % 500], texts[(i * 7) % 500], tuple(rng.choice(texts, size=rng.integers(1, 60))))
        for i in range(3000)
    ]
    scores, exact = scored(bundles, 16, 5)
    for i in range(0, 3000, 97):
        assert abs(scores.danger[i] - reference(bundles[i], exact)[0]) < 1e-9
