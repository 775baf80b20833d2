"""A corpus so small that a run takes a moment: three pools of bundles to train on, a frozen eval set, an organic holdout."""

from __future__ import annotations

import json
import random
from pathlib import Path

from crucible.contrast import encode, freeze
from crucible.contrast.config import Config
from crucible.contrast.settings import load

SENSES = [
    [f"{word}{i}" for i in range(4)] for word in ("river", "money", "tree", "stone", "light", "cold", "sail", "crown")
]
NOISE = [f"the{i}" for i in range(6)]
CONFIG = """
data: {bundles: [bundles.jsonl], frozen_eval: evalset, organic_eval: organic.jsonl}
model: {encoder: "hashing:64"}
training: {steps: 20, batch_size: 8, learning_rate: 0.002, warmup_steps: 2}
curriculum: {tier_probabilities: [0.4, 0.3, 0.3]}
experiment: {checkpoint_every: 5, seeds: [1, 2, 3]}
device: {type: cpu}
"""


def corpus(folder: Path) -> Path:
    """Writes everything and returns the path of the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    frozen = folder / "frozen.jsonl"
    _write(frozen, [_bundle(rng, f"f{i}") for i in range(150)])
    encoder = encode.by_name("hashing")
    freeze.freeze(frozen, name="tiny", version="v1", encoder=encoder, seed=42, out=folder / "evalset")
    rows = [_bundle(rng, f"t{i}", tier) for i, tier in enumerate(["tier1_easy"] * 20 + ["tier2_robust"] * 20)]
    rows += [_bundle(rng, f"l{i}", "tier3_adversarial") for i in range(12)]
    rows += [_bundle(rng, f"o{i}", None, source="tier3_organic_miner", passes=5, lineups_tested=10) for i in range(8)]
    rows += [_bundle(rng, f"e{i}", None, source="tier3_expansion") for i in range(6)]
    _write(folder / "bundles.jsonl", rows)
    _write(folder / "organic.jsonl", [_bundle(rng, f"h{i}", None, source="tier3_organic_miner") for i in range(80)])
    path = folder / "crucible.yaml"
    path.write_text(CONFIG)
    return path


def config(folder: Path, **overrides: str) -> Config:
    return load(corpus(folder), {key.replace("__", "."): value for key, value in overrides.items()})


def _bundle(rng: random.Random, own: str, tier: str | None = None, **metadata: object) -> dict[str, object]:
    """Words of the sense agree between anchor and positive; words that mean nothing agree between anchor and negatives."""
    senses = rng.sample(range(len(SENSES)), 4)
    noise = rng.sample(NOISE, 2)

    def event(name: str, sense: int, more: list[str]) -> dict[str, str]:
        words = [*rng.sample(SENSES[sense], 2), *more, *more]
        rng.shuffle(words)
        return {"event_id": f"{own}-{name}", "sense": f"s{sense}#1", "text": " ".join([*words, f"{own}{name}"])}

    return {
        "bundle_id": own,
        "anchor": event("a", senses[0], noise),
        "positive": event("p", senses[0], rng.sample(NOISE, 2)),
        "negatives": [event(f"n{i}", sense, noise) for i, sense in enumerate(senses[1:])],
        "metadata": ({"tier": tier} if tier else {}) | metadata,
    }


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
