"""The scoring engine agrees with a plain float64 reference on random, tied, duplicated, degenerate and large data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.bundle import Bundle
from crucible.contrast.score import Scores, score
from crucible.contrast.textset import TextSet, build

AGREE = 1e-5
"""What the engine promises; it does far better."""


def reference(items: TextSet, vectors: np.ndarray) -> Scores:
    """The formulas of the metrics reference, one bundle at a time, in float64."""
    exact = vectors.astype(np.float64)
    rows = []
    for i in range(len(items)):
        anchor = exact[items.anchors[i]]
        positive = float(np.sum(anchor * exact[items.positives[i]]))
        negatives = [float(np.sum(anchor * exact[j])) for j in items.negatives[items.offsets[i] : items.offsets[i + 1]]]
        rows.append((max(negatives) - positive, 1 + sum(s > positive for s in negatives), negatives.count(positive)))
    danger, rank, ties = zip(*rows, strict=True)
    return Scores(np.asarray(danger), np.asarray(rank), np.asarray(ties))


def one(own: str, anchor: str, positive: str, *negatives: str) -> Bundle:
    return Bundle(id=own, anchor=anchor, positive=positive, negatives=negatives)


def unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)


def assert_agree(items: TextSet, vectors: np.ndarray) -> None:
    got, expected = score(items, vectors), reference(items, vectors)
    np.testing.assert_allclose(got.danger, expected.danger, atol=AGREE, rtol=0)
    # Every rank must be the same unless a negative is within 1e-5 of a tie that is not exact.
    np.testing.assert_array_equal(got.rank, expected.rank)
    np.testing.assert_array_equal(got.ties, expected.ties)


words = st.sampled_from([f"text {i}" for i in range(12)])
bundle_lists = st.lists(st.tuples(words, words, st.lists(words, min_size=1, max_size=9)), min_size=1, max_size=20)


@given(bundle_lists, st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_danger_rank_and_ties_agree_with_the_reference(rows, dim, seed):
    items = build(one(str(i), a, p, *n) for i, (a, p, n) in enumerate(rows))
    assert_agree(items, unit(np.random.default_rng(seed).normal(size=(len(items.texts), dim))))


@given(bundle_lists, st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_few_distinct_vectors_tie_exactly_whatever_their_place(rows, dim, seed):
    """Different texts with one vector (a collapsed or quantised encoder): a tie must not depend on which loop met it."""
    rng = np.random.default_rng(seed)
    items = build(one(str(i), a, p, *n) for i, (a, p, n) in enumerate(rows))
    palette = unit(rng.normal(size=(2, dim)))
    vectors = palette[rng.integers(0, 2, size=len(items.texts))]
    got = score(items, vectors)
    for i in range(len(items)):
        negatives = items.negatives[items.offsets[i] : items.offsets[i + 1]]
        same = (vectors[negatives] == vectors[items.positives[i]]).all(axis=1)
        assert got.ties[i] >= np.count_nonzero(same)
        if same.all():
            assert (got.danger[i], got.rank[i]) == (0.0, 1)


def test_margin_is_minus_danger_and_a_tie_is_plain_zero():
    items = build([one("same", "a", "p", "p"), one("other", "a", "p", "q", "r")])
    scores = score(items, unit(np.random.default_rng(1).normal(size=(4, 8))))
    assert scores.margin[0] == 0.0
    assert not np.signbit(scores.margin[0])
    assert scores.margin[1] == -scores.danger[1]


@pytest.mark.parametrize("copies", [1, 2, 3, 4, 5, 9, 10])
def test_negative_identical_to_the_positive_is_a_tie_with_rank_one(copies):
    items = build([one("x", "a", "p", *["p"] * copies)])
    scores = score(items, unit(np.random.default_rng(7).normal(size=(2, 384))))
    assert (scores.rank[0], scores.ties[0], scores.danger[0]) == (1, copies, 0.0)


def test_collapsed_encoder_fails_everything_but_has_rank_one():
    items = build([one("x", "a", "p", "n", "m", "o", "q", "r")])
    scores = score(items, unit(np.tile(np.random.default_rng(2).normal(size=(1, 384)), (7, 1))))
    assert scores.danger[0] == 0.0
    assert (scores.rank[0], scores.ties[0]) == (1, 5)


def test_zero_vectors_have_similarity_zero():
    items = build([one("x", "a", "p", "n"), one("y", "p", "a", "n")])
    vectors = np.zeros((3, 16), dtype=np.float32)
    assert_agree(items, vectors)
    assert score(items, vectors).ties.tolist() == [1, 1]


def test_ten_thousand_negatives_in_one_bundle_and_one_in_the_next():
    rng = np.random.default_rng(3)
    texts = [f"t{i}" for i in range(3000)]
    bundles = [one("big", "a", "p", *rng.choice(texts, size=10_000)), one("small", "a", "p", "t1")]
    items = build(bundles)
    assert_agree(items, unit(rng.normal(size=(len(items.texts), 33))))


def test_many_ragged_bundles_in_several_parts(monkeypatch):
    monkeypatch.setattr("crucible.contrast.score._BUNDLES_AT_ONCE", 256)
    rng = np.random.default_rng(4)
    texts = [f"t{i}" for i in range(400)]
    items = build(
        one(str(i), texts[i % 400], texts[(i * 7) % 400], *rng.choice(texts, size=rng.integers(1, 40)))
        for i in range(1500)
    )
    seen: list[tuple[int, int]] = []
    vectors = unit(rng.normal(size=(len(items.texts), 16)))
    assert_agree(items, vectors)
    score(items, vectors, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (1500, 1500)
    assert len(seen) == 6


def test_wrong_matrix_is_refused_before_the_kernel_sees_it():
    items = build([one("x", "a", "p", "n")])
    for wrong in (np.zeros((2, 4), np.float32), np.zeros((3, 4)), np.zeros(3, np.float32)):
        with pytest.raises(ValueError, match="float32 matrix"):
            score(items, wrong)
