"""Bundles that a head over `hashing` can learn, and settings for a run on them that takes a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crucible.contrast.config import Config
from crucible.contrast.train.log import LogLine
from crucible.contrast.train.run import train
from crucible.contrast.train.rundir import RunInfo

SIGNAL = ["lake", "coin", "song", "leaf", "bolt", "yarn", "mast", "corn"]
NOISE = [
    "the",
    "old",
    "man",
    "saw",
    "one",
    "far",
    "off",
    "and",
    "then",
    "left",
    "quite",
    "soon",
    "over",
    "there",
    "again",
]


def bundles(count: int = 120, seed: int = 0, *, pools: bool = True, first: int = 0) -> list[dict[str, Any]]:
    """A text is a word that carries the sense among words that do not: the base encoder weighs all of them alike."""
    rng = np.random.default_rng(seed)

    def text(kind: int) -> str:
        words = [*rng.choice(NOISE, 5), f"{SIGNAL[kind]}{rng.integers(3)}"]
        return " ".join(words[i] for i in rng.permutation(len(words)))

    made = []
    for number in range(first, first + count):
        kind = int(rng.integers(len(SIGNAL)))
        others = [k for k in range(len(SIGNAL)) if k != kind]
        metadata: dict[str, Any] = {"tier": 1 + number % 3}
        if pools and number % 6 == 5:
            metadata |= {"source": "tier3_organic_miner", "passes": 5, "lineups_tested": 10}
        made.append(
            {
                "bundle_id": f"n{number}",
                "anchor": {"event_id": f"a{number}", "sense": f"{SIGNAL[kind]}#{number}", "text": text(kind)},
                "positive": {"event_id": f"p{number}", "sense": f"{SIGNAL[kind]}#{number}", "text": text(kind)},
                "negatives": [
                    {"event_id": f"x{number}.{i}", "sense": "other#1", "text": text(int(k)), "source": "cross_lemma"}
                    for i, k in enumerate(rng.choice(others, int(rng.integers(2, 6))))
                ],
                "metadata": metadata,
            }
        )
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def config(folder: Path, **blocks: dict[str, Any]) -> Config:
    """Training bundles and a holdout in `folder`; a block's keys replace the defaults below."""
    train_file, held = folder / "train.jsonl", folder / "held.jsonl"
    if not train_file.exists():
        write(train_file, bundles())
        write(held, bundles(60, seed=1, pools=False, first=1000))
    given: dict[str, Any] = {
        "data": {"bundles": (str(train_file),), "frozen_eval": str(train_file), "organic_eval": str(held)},
        "model": {"encoder": "hashing:64", "max_negatives": 4, "temperature": 0.05},
        "training": {"steps": 60, "batch_size": 8, "warmup_steps": 5, "learning_rate": 0.01},
        "curriculum": {"tier_probabilities": (0.4, 0.3, 0.3)},
        "experiment": {"checkpoint_every": 10, "seeds": (42,)},
    }
    made = {name: given.get(name, {}) | blocks.get(name, {}) for name in {*given, *blocks}}
    return msgspec.convert(made, Config)


def run(folder: Path, name: str = "run", *, seed: int | None = None, **blocks: dict[str, Any]) -> tuple[Path, RunInfo]:
    out = folder / name
    return out, train(config(folder, **blocks), out, seed=seed)


def weights(out: Path) -> bytes:
    return (out / "checkpoint" / "head.npz").read_bytes()


def log(out: Path) -> list[LogLine]:
    return [msgspec.json.decode(line, type=LogLine) for line in (out / "log.jsonl").read_bytes().splitlines()]
