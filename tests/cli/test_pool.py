"""The pool commands from end to end: contracts, notes on stderr, one JSON document, and no traceback for any mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "src" / "crucible" / "contrast" / "sample" / "bundles.jsonl"


@pytest.fixture
def pool(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"".join(SAMPLE.open("rb").readlines()[:200]))
    return path


def test_the_contract_of_split(crucible, pool, tmp_path):
    a, b = tmp_path / "A.jsonl", tmp_path / "B.jsonl"
    arguments = ("pool", "split", "--input", pool, "--holdout-fraction", "0.2", "--seed", "42")
    ran = crucible(*arguments, "--output-train", a, "--output-holdout", b, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["counts"]["train"] == 160 and ran.json["counts"]["holdout"] == 40
    assert ran.json["leaks"]["shared_senses"] == ran.json["leaks"]["shared_texts"] == 0
    assert ran.json == json.loads(Path(f"{a}.manifest.json").read_text())
    assert sorted(a.read_bytes().splitlines() + b.read_bytes().splitlines()) == sorted(pool.read_bytes().splitlines())
    people = crucible(*arguments, "--output-train", a, "--output-holdout", b)
    assert (
        people.code == 0
        and "80.0%" in people.out
        and "leak check: 0 shared senses, 0 shared anchors or positives" in people.out
    )


def test_a_split_is_the_same_in_every_process(crucible, tmp_path):
    """Python shuffles its sets anew in every process; here senses are joined, and a component must not be named by chance."""
    source = tmp_path / "p.jsonl"
    lines = [
        {"id": f"i{i}", "anchor": f"a {i // 3}", "positive": f"p {i}", "negatives": ["n"], "sense": f"s{i}#1"}
        for i in range(90)
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = set()
    for seed in ("1", "2", "3"):
        holdout = tmp_path / f"{seed}.jsonl"
        ran = crucible(
            "pool", "split", "--input", source, "--output-train", tmp_path / "t.jsonl", "--output-holdout", holdout,
            env={"PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert ran.code == 0, ran.err
        made.add(holdout.read_bytes())
    assert len(made) == 1


def test_merge_filter_and_stats_work_together(crucible, pool, tmp_path):
    mined = tmp_path / "mined.jsonl"
    lines = [json.loads(line) for line in SAMPLE.open()][200:220]
    for place, line in enumerate(lines):
        line["metadata"] |= {"source": "tier3_organic_miner", "passes": place % 11, "lineups_tested": 10}
    mined.write_text("".join(json.dumps(line) + "\n" for line in lines) + pool.read_text().splitlines()[0] + "\n")
    merged, strong = tmp_path / "m.jsonl", tmp_path / "s.jsonl"
    ran = crucible("pool", "merge", pool, mined, "--output", merged, "--as", f"legacy={pool}")
    assert ran.code == 0 and "pools: legacy 200, organic 20, expanded 0" in ran.out
    assert "1 bundles repeat an earlier one" in ran.err
    ran = crucible("pool", "filter", "--input", merged, "--where", "passes >= 8", "--output", strong)
    assert ran.code == 0 and "200 of 220 bundles have no passes" in ran.err
    assert {json.loads(line)["metadata"]["passes"] for line in strong.open()} == {8, 9, 10}
    ran = crucible("pool", "stats", merged)
    assert ran.code == 0 and "organic" in ran.out and "passes: 0 2, 1 2" in ran.out
    ran = crucible("pool", "stats", merged, "--json")
    assert ran.json["pools"] == {"legacy": 200, "organic": 20, "expanded": 0}


def test_skipped_lines_are_kept_beside_the_output(crucible, pool, tmp_path):
    pool.write_bytes(b'{"anchor": {"text": 3}}\n'.join(pool.read_bytes().splitlines(keepends=True)[:4]))
    ran = crucible("pool", "filter", "--input", pool, "--where", "negatives > 0", "--output", tmp_path / "o.jsonl")
    assert ran.code == 3 and "p.jsonl:2" in ran.err and not (tmp_path / "o.jsonl").exists()
    ran = crucible(
        "pool", "split", "--input", pool, "--holdout-fraction", "0.5", "--skip-invalid",
        "--output-train", tmp_path / "a.jsonl", "--output-holdout", tmp_path / "b.jsonl",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "3 bad lines were left out" in ran.err
    assert len((tmp_path / "a.jsonl.quarantine.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["split", "--input", "P", "--holdout-fraction", "1.5", "--output-train", "a", "--output-holdout", "b"],
            2,
            "1.5",
        ),
        (["split", "--input", "P", "--output-train", "P", "--output-holdout", "b"], 2, "would overwrite the input"),
        (["split", "--input", "gone", "--output-train", "a", "--output-holdout", "b"], 3, "no such file"),
        (["split", "--input", "P", "--output-train", "no/a", "--output-holdout", "b"], 1, "there is no folder"),
        (["filter", "--input", "P", "--output", "o"], 2, "nothing to filter by"),
        (["filter", "--input", "P", "--where", "lema == 'able'", "--output", "o"], 2, "Did you mean lemma?"),
        (["filter", "--input", "P", "--where", "negatives ==", "--output", "o"], 2, "column 13"),
        (["filter", "--input", "P", "--where", "negatives == 'x'", "--output", "o"], 3, "(number)"),
        (["merge", "P", "--as", "organic", "--output", "o"], 2, "is not POOL=FILE"),
        (["merge", "P", "--as", "wild=P", "--output", "o"], 2, "no pool is called 'wild'"),
        (["merge", "P", "P", "--output", "o"], 2, "given twice"),
        (["stats", "gone"], 3, "no such file"),
        (["stats", "/dev/null"], 3, "is a pipe or a device"),
    ],
)
def test_a_mistake_ends_with_its_code_a_sentence_and_no_file(crucible, pool, tmp_path, arguments, code, said):
    folder = tmp_path / "here"
    folder.mkdir()
    given = [str(pool) if a == "P" else a.replace("=P", f"={pool}") for a in arguments]
    ran = crucible("pool", *given, cwd=folder)
    assert (ran.code, list(folder.iterdir())) == (code, [])
    assert said in ran.err and "fix:" in ran.err and "Traceback" not in ran.err and "bug" not in ran.err


def test_a_full_disk_leaves_neither_half_a_split_nor_a_manifest(crucible, pool, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    ran = crucible(
        "pool", "split", "--input", pool, "--output-train", "a.jsonl", "--output-holdout", "b.jsonl",
        cwd=folder, file_limit=60_000,
    )  # fmt: skip
    assert ran.code == 1 and "cannot be written" in ran.err
    assert list(folder.iterdir()) == []
