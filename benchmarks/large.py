"""Five million bundles on precomputed vectors through the real command: does it finish, how long, how much memory?"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=5_000_000)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--folder", type=Path, help="where the data goes; a temporary folder if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), options.bundles, options.texts, options.dim)


def measure(folder: Path, bundles: int, texts: int, dim: int) -> None:
    rng = np.random.default_rng(0)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=(texts, dim))
    for start in range(0, texts, 100_000):
        vectors[start : start + 100_000] = rng.standard_normal((min(100_000, texts - start), dim), dtype=np.float32)
    vectors.flush()
    with (folder / "texts.jsonl").open("w") as stream:
        stream.writelines(json.dumps(f"text number {i}") + "\n" for i in range(texts))
    with (folder / "bundles.jsonl").open("w") as stream:
        for start in range(0, bundles, 100_000):
            for row in rng.integers(0, texts, size=(min(100_000, bundles - start), 12)).tolist():
                a, p, *n = (f'"text number {i}"' for i in row)
                stream.write(f'{{"anchor": {a}, "positive": {p}, "negatives": [{", ".join(n)}]}}\n')
    command = [
        sys.executable,
        "-m",
        "crucible",
        "eval",
        "--model",
        f"npy:{folder}",
        "--eval-set",
        str(folder / "bundles.jsonl"),
    ]
    command += ["--output", str(folder / "board.json"), "--items", str(folder / "items.jsonl")]
    for what in ("first", "again, from the id form"):
        begin = time.perf_counter()
        subprocess.run(command, check=True, env=os.environ | {"CRUCIBLE_CACHE_DIR": str(folder / "cache")})
        print(f"{bundles:,} bundles over {texts:,} texts, {what}: {time.perf_counter() - begin:.0f} s")
    print(f"peak memory of the command: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
