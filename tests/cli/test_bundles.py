"""`crucible bundles` and `crucible corpus` through the real command: counts, places, exit codes, and nothing half-written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

GOOD = {"anchor": "a", "positive": "p", "negatives": ["n"]}
NOUNS = [
    '00000100 17 n 01 bank 1 000 | sloping land; "he sat on the bank of it"; "the bank of the river"',
    '00000200 14 n 01 bank 0 000 | a firm; "the bank holds my mortgage"; "she went to the bank"',
]


def written(path: Path, *lines: object) -> Path:
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


@pytest.fixture
def tiny(tmp_path):
    """A WordNet of two senses."""
    folder = tmp_path / "wn"
    folder.mkdir()
    other = "00000100 00 {} 01 word 0 000 | nothing  \n"
    (folder / "data.noun").write_text("".join(f"{line}  \n" for line in NOUNS))
    for pos, letter in (("verb", "v"), ("adj", "a"), ("adv", "r")):
        (folder / f"data.{pos}").write_text(other.format(letter))
    return folder


# --- check -------------------------------------------------------------------------------------------------------------


def test_clean_file_is_counted_and_ends_well(crucible, tmp_path):
    rows = [GOOD | {"negatives": ["n", "m"]}, GOOD | {"anchor": "b"}]
    done = crucible("bundles", "check", written(tmp_path / "b.jsonl", *rows), "--json")
    assert done.code == 0, done.err
    assert done.json["format"] == "flat" and done.json["compression"] == "none"
    assert (done.json["bundles"], done.json["valid"], done.json["invalid"]) == (2, 2, 0)
    assert done.json["texts"] == 5
    assert done.json["negatives"] == {"min": 1, "mean": 1.5, "max": 2}
    assert done.json["problems"] == [] and done.json["tiers"] is None and done.json["header"] is None


def test_every_bad_line_is_named_with_line_field_and_fix(crucible, tmp_path):
    path = written(
        tmp_path / "b.jsonl", GOOD, b"{", GOOD | {"negatives": []}, GOOD | {"anchor": 3}, GOOD | {"id": "b1"}
    )
    done = crucible("bundles", "check", path, "--json")
    assert done.code == 3
    assert (done.json["valid"], done.json["invalid"], done.json["problems_total"]) == (1, 4, 4)
    assert [(p["line"], p["field"]) for p in done.json["problems"]] == [
        (2, None),
        (3, "negatives"),
        (4, "anchor"),
        (5, "id"),
    ]
    assert all(p["problem"] and p["fix"] for p in done.json["problems"])


def test_a_thousand_bad_lines_are_counted_and_a_hundred_listed(crucible, tmp_path):
    done = crucible("bundles", "check", written(tmp_path / "b.jsonl", GOOD, *[b"no"] * 1000), "--json")
    assert done.code == 3
    assert done.json["problems_total"] == 1000 and len(done.json["problems"]) == 100


def test_doubtful_bundles_are_reported_and_are_no_failure(crucible, tmp_path):
    rows = [
        GOOD | {"id": "one"},
        GOOD | {"id": "again", "anchor": " A "},
        GOOD | {"id": "unpassable", "negatives": ["P", "n"]},
        GOOD | {"id": "twice", "negatives": ["n", "N"]},
        GOOD | {"id": "trivial", "positive": "A"},
        GOOD | {"id": "anchored", "negatives": ["a"]},
    ]
    done = crucible("bundles", "check", written(tmp_path / "b.jsonl", *rows), "--json")
    assert done.code == 0
    assert done.json["duplicates"] == {"count": 1, "groups": [{"ids": ["one", "again"], "lines": [1, 2]}]}
    assert done.json["identical_negatives"] == {"count": 1, "ids": ["unpassable"]}
    assert done.json["duplicate_negatives"] == {"count": 1, "ids": ["twice"]}
    assert done.json["anchor_in_negatives"] == {"count": 1, "ids": ["anchored"]}
    assert done.json["anchor_is_positive"] == 1


def test_header_tiers_and_compression_are_reported(crucible, tmp_path):
    header = {"_header": True, "eval_count": 3, "tier_counts": {"tier1_easy": 1, "tier3_adversarial": 1}}
    row = {"anchor_text": "a", "positive_text": "p", "negative_texts": ["n"]}
    lines = [header, row | {"tier": "tier1"}, row | {"tier": 3, "anchor_text": "b"}]
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    done = crucible("bundles", "check", path, "--json")
    assert done.code == 0
    assert (done.json["format"], done.json["compression"]) == ("rows", "gzip")
    assert done.json["header"]["eval_count"] == 3
    assert done.json["tiers"] == {"tier1_easy": 1, "tier2_robust": 0, "tier3_adversarial": 1}
    (said,) = done.json["header_disagrees"]
    assert "eval_count is 3" in said


def test_damaged_compression_keeps_what_came_before(crucible, tmp_path):
    whole = gzip.compress(b"".join(json.dumps(GOOD | {"anchor": f"{n}"}).encode() + b"\n" for n in range(20_000)))
    (tmp_path / "b.gz").write_bytes(whole[: len(whole) // 2])
    done = crucible("bundles", "check", tmp_path / "b.gz", "--json")
    assert done.code == 3
    assert done.json["valid"] > 1000 and done.json["invalid"] == 1
    assert done.json["problems"][0]["line"] > 1000


def test_file_without_a_bundle_ends_with_3(crucible, tmp_path):
    for content in (b"", b"\n\n", b"hello\n"):
        (tmp_path / "b.jsonl").write_bytes(content)
        assert crucible("bundles", "check", tmp_path / "b.jsonl").code == 3
    missing = crucible("bundles", "check", tmp_path / "missing.jsonl", "--json")
    assert missing.code == 3 and "no such file" in missing.json["error"]["message"]


def test_report_for_people_fits_100_columns_and_obeys_no_escapes(crucible, tmp_path):
    long = "x" * 300
    rows = [GOOD | {"id": f"{long}{n}", "negatives": ["p"]} for n in range(3)]
    path = written(tmp_path / "b.jsonl", *rows, {f"\x1b[31m{long}": long}, {"anchor": long, "positive": [long]})
    done = crucible("bundles", "check", path.relative_to(tmp_path), cwd=tmp_path)
    assert done.code == 3
    assert max(map(len, done.out.splitlines())) <= 100
    assert "\x1b" not in done.out
    assert "3 bundles have a negative equal to the positive" in done.out
    assert "2 bundles repeat an earlier one" in done.out


# --- build -------------------------------------------------------------------------------------------------------------


def test_own_events_become_bundles_that_check_clean(crucible, tmp_path):
    events = [
        {"event_id": f"{sense}{n}", "sense": sense, "text": f"{sense} in sentence {n}"}
        for sense in ("bank#1", "bank#2", "river#1")
        for n in (1, 2)
    ]
    path = written(tmp_path / "events.jsonl", *events)
    done = crucible("bundles", "build", path, "--out", tmp_path / "b.jsonl", "--json")
    assert done.code == 0, done.err
    assert done.json["bundles"] == 4
    assert done.json["negatives_by_source"] == {"within_lemma": 8, "sibling": 0, "cross_lemma": 8}
    assert crucible("bundles", "check", tmp_path / "b.jsonl").code == 0
    for_people = crucible("bundles", "build", path, "--out", tmp_path / "c.jsonl", "--seed", 42)
    assert max(map(len, for_people.out.splitlines())) <= 100
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()


def test_bad_events_leave_the_old_file_alone(crucible, tmp_path):
    out = tmp_path / "b.jsonl"
    out.write_text("old")
    done = crucible("bundles", "build", written(tmp_path / "e.jsonl", {"sense": "a#1"}), "--out", out, "--json")
    assert done.code == 3 and done.json["error"]["line"] == 1
    assert out.read_text() == "old"
    assert crucible("bundles", "build", tmp_path / "e.jsonl", "--out", out, "--style", "poems").code == 2


# --- corpus ------------------------------------------------------------------------------------------------------------


def test_corpus_of_a_given_wordnet_is_whole(crucible, tiny, tmp_path):
    done = crucible("corpus", "wordnet", "--wordnet", tiny, "--out", tmp_path / "c", "--json")
    assert done.code == 0, done.err
    assert done.json == json.loads((tmp_path / "c/stats.json").read_text())
    assert done.json["build"]["bundles"] == 4
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        "NOTICE",
        "bundles.jsonl",
        "events.jsonl",
        "stats.json",
    ]
    assert crucible("bundles", "check", tmp_path / "c/bundles.jsonl").code == 0


def test_glosses_and_limit_are_options(crucible, tiny, tmp_path):
    options = ("--wordnet", tiny, "--style", "glosses", "--limit", 3)
    done = crucible("corpus", "wordnet", *options, "--out", tmp_path / "c", "--json")
    assert (done.json["build"]["bundles"], done.json["build"]["available"], done.json["limit"]) == (3, 4, 3)
    first = json.loads((tmp_path / "c/bundles.jsonl").read_text().splitlines()[0])
    assert {first["positive"]["text"], *(n["text"] for n in first["negatives"])} == {"a firm", "sloping land"}


def test_failures_leave_no_folder(crucible, tiny, tmp_path):
    out = tmp_path / "c"
    assert crucible("corpus", "wordnet", "--out", out, "--wordnet", tmp_path).code == 2
    assert crucible("corpus", "wordnet", "--out", out, "--wordnet", tiny, "--limit", 0).code == 2
    (tiny / "data.adv").write_text("broken\n")
    done = crucible("corpus", "wordnet", "--out", out, "--wordnet", tiny, "--json")
    assert done.code == 3 and done.json["error"]["line"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cwd", "wn"]


def test_folder_with_something_in_it_is_left_alone(crucible, tiny, tmp_path):
    done = crucible("corpus", "wordnet", "--out", tiny, "--wordnet", tiny)
    assert done.code == 1 and "not empty" in done.err
    assert len(list(tiny.iterdir())) == 4
