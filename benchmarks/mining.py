"""The nearest 100 of 100,000 for thousands of queries, exactly: this search against a plain GEMM and torch, in one run.

The floor is one float32 GEMM of all queries with all rows, which finds nothing yet. Rows are clustered unit vectors, as
embeddings are, and queries are some of the rows. Every method must find the same neighbours; the share it finds is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from crucible.contrast.mining.topk import Index

DIM, NEAREST = 384, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3, help="every method runs this often; the best counts")
    options = parser.parse_args()
    rows = clustered_unit_vectors(options.rows)
    Index(rows[:20_000]).nearest(rows[:10], NEAREST)  # compile
    for count in options.queries:
        queries = rows[np.random.default_rng(1).choice(len(rows), count, replace=count > len(rows))]
        compare(queries, rows, options.rounds)


def compare(queries: np.ndarray, rows: np.ndarray, rounds: int) -> None:
    product = np.zeros(
        (len(queries), len(rows)), dtype=np.float32
    )  # written to, so that no page is missing when it counts
    methods: dict[str, Callable[[], np.ndarray | None]] = {
        "GEMM alone (NumPy, all products kept)": lambda: gemm(queries, rows, product),
        "crucible, exact": lambda: Index(rows).nearest(queries, NEAREST).rows,
        **torch_methods(queries, rows, product),
    }
    seconds = dict.fromkeys(methods, float("inf"))
    found: dict[str, np.ndarray | None] = {}
    for _ in range(rounds):  # in turns, because the machine is not the same from one second to the next
        for name, work in methods.items():
            began = time.perf_counter()
            found[name] = work()
            seconds[name] = min(seconds[name], time.perf_counter() - began)
    floor, ours = (seconds[name] for name in list(methods)[:2])
    truth = found["crucible, exact"]
    print(f"\ntop {NEAREST} of {len(rows):,} rows for {len(queries):,} queries, d = {DIM}")
    print(f"{'':44}{'seconds':>10}{'x GEMM':>10}{'x crucible':>12}{'recall':>9}")
    for name, took in seconds.items():
        share = "" if found[name] is None else f"{recall(found[name], truth):.4f}"
        print(f"{name:44}{took:>10.3f}{took / floor:>10.2f}{took / ours:>12.2f}{share:>9}", flush=True)


def gemm(queries: np.ndarray, rows: np.ndarray, product: np.ndarray) -> None:
    np.dot(queries, rows.T, out=product)


def torch_methods(
    queries: np.ndarray, rows: np.ndarray, product: np.ndarray
) -> dict[str, Callable[[], np.ndarray | None]]:
    try:
        import torch
    except ImportError:
        return {}
    a, b, out = (torch.from_numpy(array) for array in (queries, rows, product))

    def in_place() -> np.ndarray:
        torch.mm(a, b.T, out=out)
        return torch.topk(out, NEAREST, dim=1).indices.numpy()

    def in_parts() -> np.ndarray:
        return np.concatenate([torch.topk(part @ b.T, NEAREST, dim=1).indices.numpy() for part in a.split(1024)])

    def alone() -> None:
        torch.mm(a, b.T, out=out)

    return {
        "GEMM alone (torch)": alone,
        "torch mm(out=) + topk": in_place,
        "torch matmul + topk, 1,024 queries at a time": in_parts,
    }


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    """Equal similarities may stand in another order in float32, so places are compared as sets."""
    shared = [len(np.intersect1d(ours, theirs)) for ours, theirs in zip(truth, found, strict=True)]
    return sum(shared) / truth.size


def clustered_unit_vectors(count: int) -> np.ndarray:
    """About 50 rows around each of many centres: most neighbours are of the own cluster, the cut lies among the others."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((max(1, count // 50), DIM), dtype=np.float32)
    rows = np.empty((count, DIM), dtype=np.float32)
    for start in range(0, count, 50_000):
        part = slice(start, min(start + 50_000, count))
        own = centres[rng.integers(0, len(centres), part.stop - start)]
        rows[part] = own + 1.2 * rng.standard_normal(own.shape, dtype=np.float32)
        rows[part] /= np.linalg.norm(rows[part], axis=1, keepdims=True)
    return rows


if __name__ == "__main__":
    main()
