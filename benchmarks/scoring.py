"""Danger, margin and rank of every bundle: this engine against the stream floor, NumPy, torch and TripletEvaluator.

The stream floor is the time to read every gathered vector once at the bandwidth measured in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numba import njit, prange

from crucible.contrast.score import score
from crucible.contrast.textset import NO_TIER, TextSet

DIM, NEGATIVES = 384, 10


@njit(parallel=True, fastmath=True)
def stream(vectors):
    total = 0.0
    for i in prange(vectors.shape[0]):
        row, part = vectors[i], np.float32(0.0)
        for q in range(vectors.shape[1]):
            part += row[q]
        total += part
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--bundles", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--peers-up-to", type=int, default=100_000, help="largest size the slow peers are run at")
    options = parser.parse_args()
    vectors = random_unit_vectors(options.texts)
    score(problem(1000, options.texts), vectors)  # compile
    stream(vectors[:10])
    for count in options.bundles:
        compare(problem(count, options.texts), vectors, with_peers=count <= options.peers_up_to)


def compare(items: TextSet, vectors: np.ndarray, *, with_peers: bool) -> None:
    ours, bandwidth = float("inf"), 0.0
    for _ in range(4):  # in turns, because the bandwidth moves while others use the machine
        bandwidth = max(bandwidth, vectors.nbytes / best(lambda: stream(vectors), 3))
        ours = min(ours, best(lambda: score(items, vectors), 2))
    floor = len(items) * (NEGATIVES + 2) * DIM * 4 / bandwidth
    rows = [("stream floor", floor), ("crucible", ours), *(peers(items, vectors) if with_peers else ())]
    size = f"{len(items):,} bundles x {NEGATIVES} negatives over {len(items.texts):,} texts"
    print(f"\n{size}, d = {DIM}, {bandwidth / 1e9:.1f} GB/s")
    print(f"{'':44}{'seconds':>10}{'x floor':>10}{'x crucible':>12}")
    for name, seconds in rows:
        print(f"{name:44}{seconds:>10.3f}{seconds / floor:>10.2f}{seconds / ours:>12.2f}", flush=True)


def random_unit_vectors(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    vectors = np.empty((count, DIM), dtype=np.float32)
    for start in range(0, count, 100_000):
        part = rng.standard_normal((min(100_000, count - start), DIM), dtype=np.float32)
        vectors[start : start + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def problem(count: int, texts: int) -> TextSet:
    rng = np.random.default_rng(1)
    pick = lambda n: rng.integers(0, texts, n, dtype=np.int32)  # noqa: E731
    return TextSet(
        ids=range(count),
        texts=range(texts),
        anchors=pick(count),
        positives=pick(count),
        negatives=pick(count * NEGATIVES),
        offsets=np.arange(0, count * NEGATIVES + 1, NEGATIVES, dtype=np.int64),
        tier=np.full(count, NO_TIER, dtype=np.int8),
        danger=np.full(count, np.nan),
    )


def peers(items: TextSet, vectors: np.ndarray) -> list[tuple[str, float]]:
    negatives = items.negatives.reshape(len(items), NEGATIVES)
    rows = [("numpy take + einsum, in parts", best(lambda: with_numpy(items, negatives, vectors), 2))]
    import torch

    tensor = torch.from_numpy(vectors)
    rows.append(("torch index + bmm, in parts", best(lambda: with_torch(items, negatives, tensor), 2)))
    rows.append(("sentence-transformers TripletEvaluator", best(lambda: with_triplets(items, negatives, vectors), 1)))
    return rows


def with_numpy(items: TextSet, negatives: np.ndarray, vectors: np.ndarray) -> float:
    total = 0.0
    for start in range(0, len(items), 4096):
        part = slice(start, start + 4096)
        anchor = vectors[items.anchors[part]]
        positive = np.einsum("nd,nd->n", anchor, vectors[items.positives[part]])
        others = np.einsum("nd,nkd->nk", anchor, vectors[negatives[part]])
        rank = 1 + (others > positive[:, None]).sum(axis=1)
        total += float((others.max(axis=1) - positive).sum()) + float(rank.sum())
    return total


def with_torch(items: TextSet, negatives: np.ndarray, vectors) -> float:
    import torch

    total = 0.0
    for start in range(0, len(items), 4096):
        part = slice(start, start + 4096)
        anchor = vectors[torch.from_numpy(items.anchors[part]).long()]
        positive = (anchor * vectors[torch.from_numpy(items.positives[part]).long()]).sum(1)
        others = torch.bmm(vectors[torch.from_numpy(negatives[part]).long()], anchor[:, :, None])[:, :, 0]
        rank = 1 + (others > positive[:, None]).sum(1)
        total += float((others.max(1).values - positive).sum()) + float(rank.sum())
    return total


def with_triplets(items: TextSet, negatives: np.ndarray, vectors: np.ndarray) -> float:
    """n x K triplets, the only way it takes several negatives; the model is a table, so only the evaluator is timed."""
    from sentence_transformers import SimilarityFunction
    from sentence_transformers.evaluation import TripletEvaluator

    class Table:
        similarity_fn_name = SimilarityFunction.COSINE
        model_card_data = type("Card", (), {"set_evaluation_metrics": staticmethod(lambda *args, **more: None)})()

        def encode(self, texts, **more):
            return vectors[np.asarray(texts, dtype=np.int64)]

    anchors = np.repeat(items.anchors, NEGATIVES).tolist()
    positives = np.repeat(items.positives, NEGATIVES).tolist()
    evaluator = TripletEvaluator(
        anchors, positives, negatives.reshape(-1).tolist(), main_similarity_function="cosine", write_csv=False
    )
    model = Table()
    evaluator.embed_inputs = lambda model, sentences, **more: model.encode(sentences)
    return float(next(iter(evaluator(model).values())))


def best(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


if __name__ == "__main__":
    main()
