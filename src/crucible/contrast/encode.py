"""Texts -> unit vectors, by a named encoder and through the cache. What an encoder is; the encoders are in `encoders/`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crucible.contrast import cache as stored
from crucible.contrast import segments
from crucible.contrast.encoders import sentence_transformers
from crucible.contrast.encoders.hashing import HashingEncoder
from crucible.contrast.encoders.head import head_encoder
from crucible.contrast.encoders.onnx import OnnxEncoder
from crucible.contrast.encoders.precomputed import PrecomputedEncoder
from crucible.contrast.progress import Progress
from crucible.errors import BadConfig, BadData, MachineryFailed

Vectors = npt.NDArray[np.float32]
_TEXTS_AT_ONCE = 2048
"""What is encoded between two writes to the cache: as much as a killed process loses."""
_ROWS_AT_ONCE = 512


class Encoder(Protocol):
    """`id` is what a person types, `digest` covers weights and settings: equal digests give equal vectors."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def cheap(self) -> bool:
        """Whether encoding again costs no more than reading stored vectors: then nothing is stored."""
        ...

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """[n, d] as the model gives them, not normalised; the array belongs to the caller."""
        ...


@dataclass(frozen=True)
class EncodeReport:
    """What it took. Texts of a cheap encoder are not told apart: there `unique` is their number."""

    unique: int
    cached: int
    encoded: int
    seconds: float
    warnings: tuple[str, ...] = ()
    """What went wrong with the cache and stopped nobody; for people."""


NO_WARNINGS: tuple[str, ...] = ()
KNOWN = ("hashing", "hashing:DIM", "minilm", "st:NAME_OR_PATH", "onnx:PATH", "npy:DIR", "head:CHECKPOINT")


def by_name(name: str, device: str = "auto") -> Encoder:
    """One of KNOWN. Loads no heavy library before the first text is encoded."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", device):
        raise BadConfig(f"unknown device {device!r}", fix="Known devices: auto, cpu, cuda, cuda:N.")
    kind, colon, setting = name.partition(":")
    make = _MAKERS.get(kind)
    if make is None or (kind == "minilm" and colon) or (kind in ("st", "onnx", "npy", "head") and not setting):
        raise BadConfig(f"unknown encoder {name!r}", fix=f"Known encoders: {', '.join(KNOWN)}.")
    return make(setting if colon else str(HashingEncoder.default_dim), device)


def _hashing(dim: str, device: str) -> Encoder:
    if not (dim.isascii() and dim.isdigit() and len(dim) <= 5 and 1 <= int(dim) <= 65536):
        raise BadConfig(f"hashing:{dim}: the dimension is not a number from 1 to 65536", fix="Try hashing:256.")
    return HashingEncoder(int(dim))


_MAKERS: dict[str, Callable[[str, str], Encoder]] = {
    "hashing": _hashing,
    "minilm": lambda _, device: sentence_transformers.minilm(device),
    "st": sentence_transformers.by_path_or_name,
    "onnx": OnnxEncoder,
    "npy": lambda setting, _: PrecomputedEncoder(setting),
    "head": lambda setting, device: head_encoder(setting, device, by_name, vectors_for),
}


def unit_vectors(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """The vectors of all texts at length 1, without the cache."""
    return vectors_for(encoder, texts, cache=False)[0]


def vectors_for(
    encoder: Encoder, texts: Sequence[str], progress: Progress | None = None, *, cache: bool = True
) -> tuple[Vectors, EncodeReport]:
    """The vectors of all texts at length 1, so that a dot product is the cosine; zero vectors stay zero (cosine 0).

    Every distinct text is encoded once, and once ever for one encoder digest where the cache is used.
    """
    began = time.monotonic()
    if encoder.cheap:
        vectors = np.require(encoder.encode(texts, progress), dtype=np.float32, requirements=["C", "W"])
        unique, cached, warnings = len(texts), 0, NO_WARNINGS
    else:
        vectors, unique, cached, warnings = _through_cache(encoder, texts, progress, cache)
    _normalise(encoder, texts, vectors)
    return vectors, EncodeReport(unique, cached, unique - cached, time.monotonic() - began, warnings)


def _through_cache(
    encoder: Encoder, texts: Sequence[str], progress: Progress | None, cache: bool
) -> tuple[Vectors, int, int, tuple[str, ...]]:
    """Raw vectors, how many texts are distinct, how many of them were stored, and warnings."""
    keys = segments.keys_of(texts)
    first = _first_places(keys)
    distinct = np.arange(len(texts)) if first is None else np.flatnonzero(first == np.arange(len(texts)))
    store = stored.Store(encoder.id, encoder.digest) if cache else None
    vectors, missing = None, distinct
    if store and store.dim is not None:
        vectors = np.empty((len(texts), store.dim), dtype=np.float32)
        missing = distinct[~store.load(keys, vectors)[distinct]]
    done = len(distinct) - len(missing)
    if progress:
        progress(done, len(distinct))
    # Similar lengths together, so that the encoder pads little; the longest first, so that the rate only gets better.
    missing = missing[np.argsort([-len(texts[i]) for i in missing.tolist()], kind="stable")]
    for start in range(0, len(missing), _TEXTS_AT_ONCE):
        part = missing[start : start + _TEXTS_AT_ONCE]
        some = [texts[i] for i in part.tolist()]
        made = _encoded(encoder, some, _shifted(progress, done + start, len(distinct)))
        if vectors is None:
            vectors = np.empty((len(texts), made.shape[1]), dtype=np.float32)
        vectors[part] = made
        if store:
            store.put(keys[part], made)
    if vectors is None:
        vectors = encoder.encode([])
    if first is not None:
        again = np.flatnonzero(first != np.arange(len(texts)))
        vectors[again] = vectors[first[again]]
    return vectors, len(distinct), done, tuple(store.warnings) if store else ()


def _encoded(encoder: Encoder, texts: Sequence[str], progress: Progress | None) -> Vectors:
    made = encoder.encode(texts, progress)
    if made.shape[:1] != (len(texts),) or made.ndim != 2:
        raise MachineryFailed(
            f"{encoder.id} gave an array of shape {made.shape} for {len(texts)} texts", fix="Report the encoder's name."
        )
    _refuse_non_finite(encoder, texts, made)  # before it is stored
    return made


def _first_places(keys: segments.Keys) -> npt.NDArray[np.int64] | None:
    """For every text the place of its first occurrence; None where all are distinct."""
    if segments.all_distinct(keys):
        return None
    order = segments.sorted_order(keys)
    same = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    starts = np.maximum.accumulate(np.where(np.concatenate([[True], ~same]), np.arange(len(order)), 0))
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[starts]
    return first


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    return progress and (lambda done, _: progress(before + done, total))


def _normalise(encoder: Encoder, texts: Sequence[str], vectors: Vectors) -> None:
    """In place and in pieces: the matrix is the largest thing in memory and there is one of it."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        part = vectors[start : start + _ROWS_AT_ONCE]
        _refuse_non_finite(encoder, texts[start : start + _ROWS_AT_ONCE], part)
        exact = part.astype(np.float64)
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        part[:] = exact / np.where(lengths == 0.0, 1.0, lengths)


def _refuse_non_finite(encoder: Encoder, texts: Sequence[str], vectors: Vectors) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise BadData(
            f"{encoder.id} gave {bad.size} vectors that are not finite, the first for the text {texts[int(bad[0])][:80]!r}",
            fix="Check the model: a NaN would corrupt every sort and every rank after it.",
        )
