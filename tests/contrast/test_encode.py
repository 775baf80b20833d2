"""A name becomes the encoder it says, and vectors leave with length one, in order, without a second matrix."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from crucible.contrast import encode
from crucible.errors import BadConfig, MachineryFailed


class Given:
    """An encoder that gives the rows it was made with."""

    id, digest, cheap = "given", "e" * 64, True

    def __init__(self, rows: object) -> None:
        self.rows = rows

    def encode(self, texts, progress=None):
        return np.array(self.rows, dtype=np.float32)


@pytest.mark.parametrize("name", ["", "bert", "minilm:x", "st:", "st", "onnx", "npy:", "Hashing", "npy"])
def test_unknown_name_is_refused_with_every_known_one(name: str) -> None:
    with pytest.raises(BadConfig) as caught:
        encode.by_name(name)
    assert all(known in caught.value.fix for known in encode.KNOWN)


def test_choosing_an_encoder_loads_no_heavy_library() -> None:
    program = (
        "import sys\nfrom crucible.contrast import encode\n"
        "for name in ('hashing', 'minilm'): encode.by_name(name).digest\n"
        "print({'torch', 'transformers', 'sentence_transformers', 'onnxruntime', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_zero_stays_zero_and_tiny_vectors_keep_their_direction() -> None:
    vectors = encode.unit_vectors(Given([[0, 0], [3e-38, 4e-38], [3e38, -3e38], [-2, 0]]), list("abcd"))
    assert vectors.dtype == np.float32
    assert np.abs(vectors - [[0, 0], [0.6, 0.8], [0.5**0.5, -(0.5**0.5)], [-1, 0]]).max() < 1e-6


def test_no_texts_are_no_vectors() -> None:
    vectors, report = encode.vectors_for(encode.by_name("hashing:16"), [])
    assert vectors.shape == (0, 16) and report.unique == 0


def test_encoder_that_returns_the_wrong_number_of_rows_is_stopped(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path))
    encoder = Given([[1, 2]])
    encoder.cheap = False
    with pytest.raises(MachineryFailed, match="shape"):
        encode.vectors_for(encoder, ["a", "b"])


def test_precomputed_vectors_take_one_matrix_of_memory(tmp_path: Path) -> None:
    """Twice the matrix would not fit where once does."""
    count, dim = 60_000, 128
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32))
    (tmp_path / "texts.jsonl").write_text("".join(f'"text {i}"\n' for i in range(count)))
    texts = [f"text {i}" for i in range(count)][::-1]
    encoder = encode.by_name(f"npy:{tmp_path}")
    tracemalloc.start()
    vectors, _ = encode.vectors_for(encoder, texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.7 * vectors.nbytes  # the matrix, 48 bytes a text for the index, pieces of a few thousand rows
