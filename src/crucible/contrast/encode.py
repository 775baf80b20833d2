"""Texts -> normalised vectors, by a named encoder. What an encoder is; the encoders themselves are in `encoders/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crucible.contrast.encoders.hashing import HashingEncoder
from crucible.errors import BadConfig, BadData

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """`id` is what a person types, `digest` covers weights and settings: equal digests give equal vectors."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> str: ...
    def encode(self, texts: Sequence[str]) -> Vectors: ...


def by_name(name: str) -> Encoder:
    """`hashing` or `hashing:DIM`."""
    kind, colon, setting = name.partition(":")
    if kind != "hashing":
        raise BadConfig(f"unknown encoder {name!r}", fix="Known encoders: hashing, hashing:DIM.")
    if colon and not (setting.isascii() and setting.isdigit() and 1 <= int(setting) <= 65536):
        raise BadConfig(f"hashing:{setting}: the dimension is not a number from 1 to 65536", fix="Try hashing:256.")
    return HashingEncoder(int(setting or HashingEncoder.default_dim))


def unit_vectors(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """The vectors of all texts at length 1, so that a dot product is the cosine; zero vectors stay zero (cosine 0)."""
    raw = np.asarray(encoder.encode(texts), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(raw).all(axis=1))
    if bad.size:
        raise BadData(
            f"{encoder.id} gave {bad.size} vectors that are not finite, the first for the text {texts[int(bad[0])][:80]!r}",
            fix="Check the model: a NaN would corrupt every sort and every rank after it.",
        )
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    return (raw / np.where(lengths == 0.0, 1.0, lengths)).astype(np.float32)
