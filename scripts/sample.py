"""The shipped sample bundles and an installed WordNet -> the data of `crucible init --sample-data`, made by our own commands.

    python scripts/sample.py        writes src/crucible/contrast/sample/{frozen/, events, organic, organic-holdout}.jsonl.gz

Needs MiniLM and a minute. The same WordNet and the same weights give the same files.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parent.parent / "src/crucible/contrast/sample"
LEMMAS = 600
TIER3 = "tier3_adversarial"


def crucible(work: Path, *args: str) -> None:
    print("$ crucible", *args, flush=True)
    subprocess.run([sys.executable, "-m", "crucible", *args], cwd=work, check=True)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def packed(target: Path, data: bytes) -> None:
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(gzip.compress(data, 9, mtime=0))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        crucible(work, "corpus", "wordnet", "--out", "corpus")
        named = ("--name", "wordnet-sample", "--version", "v1", "--encoder", "minilm", "--seed", "42")
        crucible(work, "evalset", "freeze", str(SAMPLE / "bundles.jsonl"), *named, "--out", "frozen")
        hard = sorted(item["danger"] for item in lines(work / "frozen/v1/items.jsonl") if item["tier"] == TIER3)
        threshold = f"{hard[len(hard) // 2]:.4f}"
        # Every sense of the sample counts as known: what is mined from the others was never trained on by anybody.
        known = ("--existing-tier3", str(SAMPLE / "bundles.jsonl"), "--threshold", threshold)
        mine = ("mine", "--events", "corpus/events.jsonl", "--model", "minilm", *known, "--seed", "42")
        crucible(work, *mine, "--output", "mined.jsonl")
        clean = ("--without-senses-of", str(SAMPLE / "bundles.jsonl"), "--output", "clean.jsonl")
        crucible(work, "pool", "filter", "--input", "mined.jsonl", *clean)
        halves = ("--output-train", "organic.jsonl", "--output-holdout", "organic-holdout.jsonl")
        crucible(work, "pool", "split", "--input", "clean.jsonl", "--holdout-fraction", "0.4", "--seed", "42", *halves)
        for name in ("organic", "organic-holdout"):
            packed(SAMPLE / f"{name}.jsonl.gz", (work / f"{name}.jsonl").read_bytes())
        (SAMPLE / "frozen").mkdir(exist_ok=True)
        (SAMPLE / "frozen/changelog.jsonl").write_bytes((work / "frozen/changelog.jsonl").read_bytes())
        (SAMPLE / "frozen/evalset.json").write_bytes((work / "frozen/v1/evalset.json").read_bytes())
        packed(SAMPLE / "frozen/items.jsonl.gz", (work / "frozen/v1/items.jsonl").read_bytes())
        packed(SAMPLE / "events.jsonl.gz", some_events(work / "corpus/events.jsonl"))


def some_events(path: Path) -> bytes:
    """Every event of some words that have several senses: enough to mine from in seconds."""
    raw = path.read_text().splitlines(keepends=True)
    senses, events = defaultdict(set), defaultdict(list)
    for line in raw:
        event = json.loads(line)
        senses[event["lemma"], event["pos"]].add(event["sense"])
        events[event["lemma"], event["pos"]].append(line)
    words = sorted(word for word, found in senses.items() if len(found) > 1 and len(events[word]) > len(found))
    chosen = sorted(random.Random(42).sample(words, LEMMAS))
    return "".join(line for word in chosen for line in events[word]).encode()


if __name__ == "__main__":
    main()
