"""The hashing encoder gives the same bits everywhere and is a sensible lexical baseline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast import encode
from crucible.contrast.encoders.hashing import HashingEncoder
from crucible.errors import BadConfig
from crucible.kernel import digest


def test_vectors_never_change_without_a_new_revision():
    """A changed vector under an unchanged digest would make old and new scoreboards look comparable."""
    raw = HashingEncoder(64).encode(
        ["The bank of the river", "naïve café ﬁ", "!?", "日本語"]
    )  # multiples of 0.5: exact
    expected = "e81f11381b0856245b1eafd67941c7c0ba866a010159bb3a2b9e4539b2008ed0"
    assert digest.of_bytes(raw.astype("<f4").tobytes()) == expected


def test_shared_words_are_closer_than_unrelated_ones():
    a, near, far = encode.unit_vectors(
        encode.by_name("hashing"), ["a fast red car", "the car was fast", "boil two eggs"]
    )
    assert a @ near > a @ far


def test_digest_and_id_follow_the_dimension():
    assert (
        encode.by_name("hashing").digest == encode.by_name("hashing:256").digest != encode.by_name("hashing:64").digest
    )


@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=5))
def test_vectors_are_finite_and_of_length_one_or_zero(texts):
    lengths = np.linalg.norm(encode.unit_vectors(HashingEncoder(32), texts).astype(np.float64), axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-6) | (lengths == 0))


@pytest.mark.parametrize(
    "name", ["", "bert", "hashing:", "hashing:0", "hashing:x", "hashing:99999999999", "hashing:-1"]
)
def test_unknown_encoders_are_refused_with_the_known_ones(name):
    with pytest.raises(BadConfig) as caught:
        encode.by_name(name)
    assert "hashing" in caught.value.fix


class _Broken:
    id, digest, cheap = "broken", "0", True

    def encode(self, texts, progress=None):
        return np.full((len(texts), 3), np.nan, dtype=np.float32)


def test_non_finite_vectors_are_refused_with_the_text():
    with pytest.raises(encode.BadData, match="hello"):
        encode.unit_vectors(_Broken(), ["hello"])
