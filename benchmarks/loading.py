"""A file of a million bundles -> arrays: page-cache read, sha256, msgspec's plain decode, ours cold, ours from the id form."""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import tempfile
import time
from pathlib import Path

import msgspec

from crucible.contrast import idform, textset
from crucible.kernel import digest


class Plain(msgspec.Struct):
    anchor: str
    positive: str
    negatives: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=1_000_000)
    parser.add_argument("--texts", type=int, default=159_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundles.jsonl"
        write(path, options.bundles, options.texts)
        measure(path, Path(folder) / "cache")


def measure(path: Path, cache: Path) -> None:
    rows = [("page-cache read", timed(path.read_bytes)), ("sha256", timed(lambda: digest.of_file(path)))]
    plain = timed(lambda: plain_decode(path))
    rows.append(("msgspec, plain decode by line", plain))
    gc.collect()
    begin = time.perf_counter()
    items = textset.from_files([path])
    rows.append(("crucible, validated and interned", time.perf_counter() - begin))
    begin = time.perf_counter()
    idform.save(idform.folder_for(cache, "0" * 64), items)
    rows.append(("crucible, writing the id form (once)", time.perf_counter() - begin))
    rows.append(("crucible, from the id form", timed(lambda: idform.load(idform.folder_for(cache, "0" * 64)))))
    print(f"\n{len(items):,} bundles, {path.stat().st_size / 1e6:.0f} MB, {len(items.texts):,} unique texts")
    print(f"{'':40}{'seconds':>10}{'x msgspec':>12}")
    for name, seconds in rows:
        print(f"{name:40}{seconds:>10.3f}{seconds / plain:>12.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def plain_decode(path: Path) -> int:
    decode = msgspec.json.Decoder(Plain).decode
    with path.open("rb") as stream:
        return len([decode(line) for line in stream])


def write(path: Path, bundles: int, texts: int) -> None:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(5000)]
    pool = [" ".join(rng.choices(words, k=8)) for _ in range(texts)]
    with path.open("w") as stream:
        for _ in range(bundles):
            row = {"anchor": rng.choice(pool), "positive": rng.choice(pool), "negatives": rng.choices(pool, k=10)}
            stream.write(json.dumps(row) + "\n")


def timed(work) -> float:
    found = []
    for _ in range(2):
        gc.collect()
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


if __name__ == "__main__":
    main()
