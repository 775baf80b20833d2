"""`crucible mine` as a person and a program call it: same bytes on any number of threads, one document, told defaults, refusals."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
TOPICS = "river money water branch tree bank deposit loan shore cliff boat sail account teller slope grass fish net"


def events(path: Path, senses: int = 1500, seed: int = 4, shuffle: int | None = None) -> Path:
    """Enough texts that the search guesses, works in tiles and uses its threads."""
    rng, lines = random.Random(seed), []
    words = TOPICS.split()
    for sense in range(senses):
        lemma = f"word{sense // 3}"
        for place in range(3):
            text = f"{lemma} " + " ".join(rng.choice(words) for _ in range(rng.randint(3, 8)))
            name = f"{lemma}#{sense % 3}"
            lines.append(
                {
                    "event_id": f"{name}/e{place}",
                    "sense": name,
                    "text": text,
                    "pos": "noun",
                    "group": [f"g{sense % 40}"],
                }
            )
    if shuffle is not None:
        random.Random(shuffle).shuffle(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_same_seed_same_bytes_on_one_thread_or_two_and_in_any_order_of_events(crucible, tmp_path):
    made = []
    for threads, shuffle in (("1", None), ("2", None), ("2", 8)):
        output = tmp_path / f"o{threads}{shuffle}.jsonl"
        source = events(tmp_path / f"e{shuffle}.jsonl", shuffle=shuffle)
        asked = ("--model", "hashing", "--threshold", "0.2", "--max-candidates", "1500", "--seed", "42")
        ran = crucible(
            "mine", "--events", source, "--output", output, *asked, "--json", env=dict.fromkeys(THREADS, threads)
        )
        assert ran.code == 0, ran.err
        assert ran.json["written"] > 100 and ran.json["quarantined"] > 10
        made.append((output.read_bytes(), output.with_name(f"{output.stem}.quarantine.jsonl").read_bytes()))
    assert made[0] == made[1] == made[2]


def test_the_document_is_the_stats_file_and_the_output_feeds_the_next_run(crucible, tmp_path):
    source, output = events(tmp_path / "e.jsonl", 90), tmp_path / "o.jsonl"
    ran = crucible("mine", "--events", source, "--model", "hashing", "--output", output, "--json")
    assert ran.code == 0 and ran.json == json.loads((tmp_path / "o.stats.json").read_text())
    assert "no threshold was given: 0.0000" in ran.err
    promised = (
        "candidates tested accepted written mining_pass_rate threshold threshold_source lineups min_passes seed pass_distribution "
        "strength effective_lineups rejected quarantined duplicates pools encoder events senses inputs outputs duration_s mined_at"
    )
    assert not set(promised.split()) - set(ran.json)
    checked = crucible("bundles", "check", output, "--json")
    assert checked.code == 0 and checked.json["valid"] == ran.json["written"]
    again = crucible(
        "mine", "--events", source, "--model", "hashing", "--existing-tier3", output, "--output", tmp_path / "p.jsonl",
        "--allow-known-senses", "--calibrate-to", "0.9", "--candidates-per-sense", "6",
    )  # fmt: skip
    assert again.code == 0, again.err
    assert "the 0.9 quantile of" in again.out and "accepted" in again.out and "duplicates: signature" in again.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--model", "nonesuch"), 2, "unknown encoder"),
        (("--model", "hashing", "--threshold", "nan"), 2, "threshold of nan"),
        (("--model", "hashing", "--min-passes", "11"), 2, "at least 11 passes of 10 lineups"),
        (("--model", "hashing", "--calibrate-to", "0.5"), 2, "--existing-tier3"),
        (("--model", "hashing", "--existing-tier3", "none.jsonl"), 3, "no such file"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_exit_code_and_nothing_is_written(
    crucible, tmp_path, options, code, said
):
    source = events(tmp_path / "e.jsonl", 30)
    ran = crucible("mine", "--events", source, "--output", tmp_path / "o.jsonl", *options, "--json")
    assert ran.code == code and said in ran.json["error"]["message"] + ran.json["error"]["fix"], ran.err
    assert "Traceback" not in ran.err
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["e.jsonl"]


def test_compressed_events_give_the_same_bytes_and_damaged_ones_are_named(crucible, tmp_path):
    source = events(tmp_path / "e.jsonl", senses=60)
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(source.read_bytes()))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(source.read_bytes())[:-200])
    asked = ("--model", "hashing", "--threshold", "0.2", "--seed", "42")
    for name in ("e.jsonl", "e.jsonl.gz"):
        assert crucible("mine", "--events", tmp_path / name, "--output", tmp_path / f"{name}.out", *asked).code == 0
    assert (tmp_path / "e.jsonl.out").read_bytes() == (tmp_path / "e.jsonl.gz.out").read_bytes()
    refused = crucible("mine", "--events", tmp_path / "cut.jsonl.gz", "--output", tmp_path / "o", *asked)
    assert refused.code == 3 and "cut.jsonl.gz" in refused.err and "damaged" in refused.err
