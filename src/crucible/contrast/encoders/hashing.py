"""Texts -> vectors by feature hashing: words and character trigrams, no weights, no training; the same bits everywhere.

It is the deterministic double that lets every walk run without a model, and an honest lexical baseline to beat.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crucible.contrast.progress import Progress
from crucible.kernel import digest

_WORD = re.compile(r"\w+")
_REVISION = 1
"""Raise it when a vector changes: the digest must change with it."""
_REPORT_EVERY = 1024


@dataclass(frozen=True)
class HashingEncoder:
    dim: int
    default_dim: ClassVar[int] = 256
    cheap: ClassVar[bool] = True

    @property
    def id(self) -> str:
        return f"hashing:{self.dim}"

    @property
    def digest(self) -> str:
        return digest.of_json({"encoder": "hashing", "revision": _REVISION, "dim": self.dim})

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        for place, text in enumerate(texts):
            hashes, weights = _features(text)
            # The top bit is the sign, so that collisions cancel on average instead of piling up.
            signs = np.where(hashes >> 31, -1.0, 1.0)
            rows[place] = np.bincount(hashes % self.dim, weights=weights * signs, minlength=self.dim)
            if progress and (place + 1) % _REPORT_EVERY == 0:
                progress(place + 1, len(texts))
        if progress:
            progress(len(texts), len(texts))
        return rows


def _features(text: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = _WORD.findall(folded)
    padded = f" {' '.join(folded.split())} "
    grams = [padded[i : i + 3] for i in range(len(padded) - 2)]
    hashes = [zlib.crc32(b"w" + word.encode()) for word in words] + [zlib.crc32(b"c" + gram.encode()) for gram in grams]
    return np.asarray(hashes, dtype=np.int64), np.asarray([1.0] * len(words) + [0.5] * len(grams))
