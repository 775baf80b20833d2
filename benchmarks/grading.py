"""How long the judgement of a 16M-parameter model takes in the jail: 100 questions of about 6 bytes, in two orders.

    python benchmarks/grading.py [--questions 100] [--cached]

The model is a plain byte-level GPT with random int8 weights, which fits the artefact limit; without --cached it computes the
whole prefix anew for every byte, as the simplest submission does. One line for each part; the goal is two orders in under
three minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from crucible.ari.artefact import pack
from crucible.ari.boxes.bwrap import BwrapBox
from crucible.ari.exam.questions import Question
from crucible.ari.judge import judge
from crucible.ari.sitting import cores
from crucible.ari.submit import artefact_limits
from crucible.ari.track import load

GOAL_S = 180.0
WIDTH, LAYERS, HEADS, CONTEXT = 384, 9, 6, 1024

MODEL = f"""
import json, math, torch
import torch.nn.functional as F
WIDTH, LAYERS, HEADS, CONTEXT = {WIDTH}, {LAYERS}, {HEADS}, {CONTEXT}
CACHED = __CACHED__

class Model:
    def __init__(self, directory):
        with open(directory + "/weights.bin", "rb") as stream:
            whole = torch.frombuffer(bytearray(stream.read()), dtype=torch.int8)
        self.w, at = {{}}, 0
        for name, shape in json.load(open(directory + "/shapes.json")):
            count = math.prod(shape)
            self.w[name] = whole[at : at + count].view(shape).float().mul_(0.02 / 40)
            at += count
        self.done, self.keys = b"", [None] * LAYERS

    @torch.inference_mode()
    def next_byte_logits(self, prefix):
        start = 0
        if CACHED and self.done and prefix.startswith(self.done):
            start = len(self.done)
        else:
            self.keys = [None] * LAYERS
        tokens = torch.frombuffer(bytearray(prefix[start:]), dtype=torch.uint8).long()
        w = self.w
        x = w["embed"][tokens] + w["place"][start : start + len(tokens)]
        for layer in range(LAYERS):
            q, k, v = F.linear(F.layer_norm(x, (WIDTH,)), w[f"in{{layer}}"]).view(len(tokens), 3, HEADS, -1).permute(1, 2, 0, 3)
            if CACHED:
                if self.keys[layer] is not None:
                    k, v = torch.cat((self.keys[layer][0], k), 1), torch.cat((self.keys[layer][1], v), 1)
                self.keys[layer] = (k, v)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=start == 0)
            x = x + F.linear(seen.transpose(0, 1).reshape(len(tokens), WIDTH), w[f"out{{layer}}"])
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (WIDTH,)), w[f"up{{layer}}"])), w[f"down{{layer}}"])
        self.done = prefix
        return F.linear(F.layer_norm(x[-1], (WIDTH,)), w["embed"])
"""


def shapes() -> list[tuple[str, list[int]]]:
    found = [("embed", [256, WIDTH]), ("place", [CONTEXT, WIDTH])]
    for layer in range(LAYERS):
        found += [(f"in{layer}", [3 * WIDTH, WIDTH]), (f"out{layer}", [WIDTH, WIDTH])]
        found += [(f"up{layer}", [4 * WIDTH, WIDTH]), (f"down{layer}", [WIDTH, 4 * WIDTH])]
    return found


def write_bundle(folder: Path, cached: bool) -> int:
    """Random weights; returns how many."""
    count = sum(a * b for _, (a, b) in shapes())
    dice = random.Random(1)
    # A sum of two uniform bytes, folded to int8: gzip can do little with it, as with trained weights.
    one, two = dice.randbytes(count), dice.randbytes(count)
    (folder / "weights.bin").write_bytes(bytes(((a & 63) + (b & 63) - 63) & 255 for a, b in zip(one, two, strict=True)))
    (folder / "shapes.json").write_text(json.dumps(shapes()))
    (folder / "model.py").write_text(MODEL.replace("__CACHED__", str(cached)))
    manifest = {"schema": 1, "entry": "model:Model", "weights": ["weights.bin"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return count


def questions(count: int) -> list[Question]:
    dice = random.Random(2)
    letters = b"abcdefghijklmnopqrstuvwxyz ,.\n"
    return [
        Question(
            f"q{n}",
            f"c{n % 8}",
            "f",
            bytes(dice.choices(letters, k=dice.randint(100, 700))),
            bytes(dice.choices(letters, k=dice.randint(3, 9))),
        )
        for n in range(count)
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--questions", type=int, default=100)
    options.add_argument("--cached", action="store_true", help="a model that keeps keys and values within a question")
    given = options.parse_args()
    track = load("official-1h")
    with tempfile.TemporaryDirectory() as place:
        folder, archive = Path(place, "source"), Path(place, "bundle.tar.gz")
        folder.mkdir()
        parameters = write_bundle(folder, given.cached)
        with archive.open("wb") as stream:
            packed = pack(folder, stream, artefact_limits(track))
        print(
            f"{parameters:,} parameters, {packed.bytes:,} bytes packed, {cores()} cores, load {os.getloadavg()[0]:.1f}"
        )
        began = time.monotonic()
        judged = judge(BwrapBox(), archive, questions(given.questions), track)
    t = judged.timing
    both = t["exact_s"] + t["second_order_s"]
    asked = given.questions + judged.order.asked
    print(
        f"two orders      {both:7.1f} s   {asked} questions; goal {GOAL_S:g} s: {'met' if both < GOAL_S else 'MISSED'}"
    )
    print(f"  exact match   {t['exact_s']:7.1f} s   one at a time")
    print(f"  second order  {t['second_order_s']:7.1f} s   {cores()} at once")
    print(f"  start         {t['start_s']:7.1f} s   of the zygotes, summed")
    print(f"  load          {t['load_s']:7.1f} s   {1000 * t['load_s'] / asked:.0f} ms a question")
    print(f"  stepping      {t['step_s']:7.1f} s   {1000 * t['step_s'] / asked:.0f} ms a question")
    print(f"bits per byte   {t['bits_s']:7.1f} s   {judged.bpb:.3f} bits")
    print(
        f"all             {time.monotonic() - began:7.1f} s   restarts {judged.restarts}, flags {judged.flags or 'none'}"
    )
    if judged.failures:
        print(f"failures: {judged.failures}")
    return 0 if not judged.failures and both < GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
