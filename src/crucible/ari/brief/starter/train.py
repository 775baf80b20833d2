"""Text -> a bundle: counts which bytes follow which, on a random nine tenths of the lines. Plain, correct, beatable.

runner run starter/train.py --text text.txt --out model --seed 1
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil

ORDERS = 5
KEEP = 4

HERE = os.path.dirname(os.path.abspath(__file__))


def count(lines: list[bytes]) -> list[dict[str, list[list[int]]]]:
    """For each length of context, the most frequent next bytes with their counts."""
    orders = []
    text = b"".join(lines)
    for order in range(ORDERS):
        following: dict[bytes, collections.Counter[int]] = collections.defaultdict(collections.Counter)
        for at in range(order, len(text)):
            following[text[at - order : at]][text[at]] += 1
        table = {
            context.hex(): [[byte, n] for byte, n in counts.most_common(KEEP)]
            for context, counts in sorted(following.items())
        }
        orders.append(table)
        print(f"order {order}: {len(table)} contexts", flush=True)
    return orders


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with open(options.text, "rb") as stream:
        lines = stream.readlines()
    rng = random.Random(options.seed)
    kept = [line for line in lines if rng.random() < 0.9]
    print(f"{len(kept)} of {len(lines)} lines, seed {options.seed}", flush=True)
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "weights.json"), "w", encoding="utf-8") as stream:
        json.dump({"orders": count(kept)}, stream, sort_keys=True)
    for name in ("model.py", "manifest.json"):
        shutil.copyfile(os.path.join(HERE, name), os.path.join(options.out, name))
    print(f"wrote {options.out}: submit it with `runner submit {options.out}`", flush=True)


if __name__ == "__main__":
    main()
