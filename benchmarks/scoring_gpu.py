"""The CUDA kernel on a machine with a GPU: agreement with float64, ties, and time against the floor and torch.

Needs torch, Triton and NumPy only: run it from a source tree with PYTHONPATH=src.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import torch

from crucible.contrast import score_cuda

DIM, NEGATIVES = 384, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--bundles", type=int, default=1_000_000)
    parser.add_argument("--tiles", action="store_true", help="try many tile shapes")
    options = parser.parse_args()
    agreement()
    speed(options.bundles, options.texts, options.tiles)


def agreement() -> None:
    """Ragged counts, odd dimensions, duplicate vectors and zero vectors against a plain float64 loop."""
    rng = np.random.default_rng(0)
    for dim in (1, 7, 33, 128, 384, 400, 1024):
        vectors = rng.standard_normal((300, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[100:200] = vectors[:100]  # texts that share a vector: exact ties
        vectors[299] = 0.0
        counts = rng.integers(1, 70, 500)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        anchors, positives = (rng.integers(0, 300, 500).astype(np.int32) for _ in range(2))
        negatives = rng.integers(0, 300, offsets[-1]).astype(np.int32)
        danger, rank, ties = score_cuda.score_all(vectors, anchors, positives, negatives, offsets)
        exact = vectors.astype(np.float64)
        for i in range(500):
            own = negatives[offsets[i] : offsets[i + 1]]
            target, others = exact[positives[i]] @ exact[anchors[i]], exact[own] @ exact[anchors[i]]
            same = (vectors[own] == vectors[positives[i]]).all(axis=1)
            assert abs(danger[i] - (others.max() - target)) < 1e-5
            assert ties[i] >= same.sum(), (dim, i)
            near = np.abs(others - target) < 1e-12
            assert rank[i] == 1 + np.count_nonzero((others > target) & ~near), (dim, i)
    print("agreement: danger to 1e-5, every rank, every exact tie, at seven dimensions")


def speed(bundles: int, texts: int, tiles: bool) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(texts, DIM, device="cuda", generator=generator))
    pick = lambda n: torch.randint(0, texts, (n,), device="cuda", dtype=torch.int32, generator=generator)  # noqa: E731
    anchors, positives, negatives = pick(bundles), pick(bundles), pick(bundles * NEGATIVES)
    offsets = torch.arange(0, bundles * NEGATIVES + 1, NEGATIVES, device="cuda")
    bandwidth = vectors.nbytes / timed(vectors.sum)
    floor = bundles * (NEGATIVES + 2) * DIM * 4 / bandwidth
    rows = [("stream floor", floor)]
    ours = lambda: score_cuda.score_tensors(vectors, anchors, positives, negatives, offsets)  # noqa: E731
    if tiles:
        for score_cuda.ROWS, score_cuda.COLUMNS, score_cuda.WARPS in itertools.product(
            (2, 4, 8, 16), (32, 64, 128), (1, 2, 4)
        ):
            shape = f"{score_cuda.ROWS} x {score_cuda.COLUMNS}, {score_cuda.WARPS} warps"
            rows.append((f"crucible, tile {shape}", timed(ours)))
    else:
        rows.append(("crucible", timed(ours)))
    rows.append(("torch gather + bmm", timed(lambda: with_torch(vectors, anchors, positives, negatives))))
    name = torch.cuda.get_device_name()
    print(
        f"\n{bundles:,} bundles x {NEGATIVES} over {texts:,} texts, d = {DIM}, float32, {name}, {bandwidth / 1e12:.2f} TB/s"
    )
    print(f"{'':40}{'ms':>10}{'x floor':>10}")
    for what, seconds in rows:
        print(f"{what:40}{seconds * 1e3:>10.2f}{seconds / floor:>10.2f}")


def with_torch(vectors, anchors, positives, negatives):
    for part in range(0, len(anchors), 100_000):
        chosen = slice(part, part + 100_000)
        anchor = vectors[anchors[chosen].long()]
        positive = (anchor * vectors[positives[chosen].long()]).sum(1)
        mine = negatives[part * NEGATIVES : (part + 100_000) * NEGATIVES].long()
        others = torch.bmm(vectors[mine].view(-1, NEGATIVES, DIM), anchor[:, :, None])[:, :, 0]
        result = others.max(1).values - positive, 1 + (others > positive[:, None]).sum(1)
    return result


def timed(work) -> float:
    work()
    found = []
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return min(found)


if __name__ == "__main__":
    main()
