"""Every accepted format gives the same bundles, is detected by content, and is never half-read when damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible.contrast import read, textset
from crucible.contrast.bundle import item_digest, signature
from crucible.contrast.read import BundleFile
from crucible.errors import BadData

ROWS = [
    ("a one", "p one", ["n one", "m one"]),
    ("a two", "p two", ["n two"]),
    ("ä three", "p 三", ["n three", "x", "y"]),
]


def flat(a, p, n, i):
    return {"id": f"q{i}", "anchor": a, "positive": p, "negatives": n}


def events(a, p, n, i):
    event = lambda text: {"event_id": f"e{text}", "sense": f"w#{i}", "text": text, "lemma": "w", "embedding": [0.1]}  # noqa: E731
    negatives = [event(text) | {"source": "within_lemma"} for text in n]
    return {
        "bundle_id": f"q{i}",
        "anchor": event(a),
        "positive": event(p),
        "negatives": negatives,
        "metadata": {"tier": "tier2_robust"},
    }


def rows(a, p, n, i):
    texts = {"anchor_text": a, "positive_text": p, "negative_texts": n}
    return {
        "id": f"q{i}",
        "tier": "tier1_easy",
        "lemma": "w",
        "pos": "n",
        "danger": -0.25 * i,
        **texts,
        "sense_id": f"w#{i}",
    }


def lines(shape, *first) -> bytes:
    made = [shape(a, p, n, i) for i, (a, p, n) in enumerate(ROWS)]
    return b"".join(json.dumps(x, ensure_ascii=False).encode() + b"\n" for x in [*first, *made])


def texts_of(path: Path):
    return [(b.anchor, b.positive, list(b.negatives)) for b in read.read(path)]


@pytest.mark.parametrize("shape", [flat, events, rows])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_every_line_format_and_compression_gives_the_same_bundles(tmp_path, shape, pack):
    path = tmp_path / "any.name"  # detected by content, not by name
    path.write_bytes(pack(lines(shape)))
    source = BundleFile(path)
    bundles = list(source)
    assert [(b.anchor, b.positive, list(b.negatives)) for b in bundles] == ROWS
    assert [b.id for b in bundles] == ["q0", "q1", "q2"]
    assert source.format == shape.__name__
    assert source.compression == {bytes: "none", gzip.compress: "gzip", zstandard.compress: "zstd"}[pack]


def test_rows_carry_tier_danger_sense_and_an_optional_header(tmp_path):
    path = tmp_path / "rows.jsonl"
    header = {
        "_header": True,
        "source_sha256": "ab",
        "eval_seed": 7,
        "eval_count": 3,
        "tier_counts": {"tier1": 3},
        "content_hash": "x",
    }
    path.write_bytes(lines(rows, header))
    source = BundleFile(path)
    bundles = list(source)
    assert (source.header.eval_seed, source.header.eval_count) == (7, 3)
    assert [b.tier for b in bundles] == ["tier1_easy"] * 3
    assert [b.danger for b in bundles] == [0.0, -0.25, -0.5]
    assert bundles[1].sense == "w#1"
    items = textset.from_files([path])
    assert items.header.eval_seed == 7
    assert items.danger.tolist() == [0.0, -0.25, -0.5]


def test_events_carry_the_source_of_each_negative(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(lines(events))
    first = next(iter(read.read(path)))
    assert first.sources == ("within_lemma", "within_lemma")
    assert first.tier == "tier2_robust"


@pytest.mark.parametrize("columns", ["negative", "negative_n", "negatives"])
@pytest.mark.parametrize("kind", ["parquet", "folder of parquet", "datasets"])
def test_columns_give_the_same_bundles(tmp_path, columns, kind):
    table = {"anchor": [a for a, _, _ in ROWS], "positive": [p for _, p, _ in ROWS]}
    if columns == "negative":
        expected = [(a, p, n[:1]) for a, p, n in ROWS]
        table["negative"] = [n[0] for _, _, n in ROWS]
    elif columns == "negatives":
        expected, table["negatives"] = ROWS, [n for _, _, n in ROWS]
    else:
        expected = ROWS
        for place in range(3):
            table[f"negative_{place + 1}"] = [n[place] if place < len(n) else None for _, _, n in ROWS]
    made = pa.table(table)
    if kind == "parquet":
        path = tmp_path / "t.parquet"
        pq.write_table(made, path)
    else:
        path = tmp_path / "folder"
        path.mkdir()
        if kind == "datasets":
            with (
                pa.OSFile(str(path / "data-00000-of-00001.arrow"), "wb") as sink,
                pa.ipc.new_stream(sink, made.schema) as out,
            ):
                out.write_table(made)
            (path / "state.json").write_text("{}")
        else:
            pq.write_table(made.slice(0, 2), path / "part-0.parquet")
            pq.write_table(made.slice(2), path / "part-1.parquet")
    assert texts_of(path) == expected
    assert len(textset.from_files([path])) == 3


def test_ten_negative_columns_keep_their_numeric_order(tmp_path):
    table = {"anchor": ["a"], "positive": ["p"]} | {f"negative_{i}": [f"n{i}"] for i in (10, 2, 1)}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    assert texts_of(tmp_path / "t.parquet") == [("a", "p", ["n1", "n2", "n10"])]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"anchor": ["a"], "positive": ["p"]}, "negative"),
        ({"query": ["a"], "positive": ["p"], "negative": ["n"]}, "anchor"),
        ({"anchor": ["a"], "positive": [None], "negative": ["n"]}, "positive"),
        ({"anchor": ["a"], "positive": [3], "negative": ["n"]}, "positive"),
    ],
)
def test_bad_columns_are_refused_by_name(tmp_path, table, said):
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    with pytest.raises(BadData) as caught:
        list(read.read(tmp_path / "t.parquet"))
    assert caught.value.facts["field"] == said


def test_several_splits_ask_for_one(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(BadData, match="several splits") as caught:
        list(read.read(tmp_path))
    assert "train" in caught.value.fix


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_damaged_compression_is_refused_wherever_it_breaks(tmp_path, pack):
    path = tmp_path / "x"
    whole = pack(lines(flat) * 1)
    for cut in range(5, len(whole) - 1, 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(BadData):
            list(read.read(path))
        with pytest.raises(BadData):
            textset.from_files([path])
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BadData):
        list(read.read(path))


def test_a_file_that_changes_its_format_is_refused_at_that_line(tmp_path):
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(lines(flat) + lines(rows))
    with pytest.raises(BadData) as caught:
        list(read.read(path))
    assert caught.value.facts["line"] == 4


def test_unknown_keys_are_named_with_what_is_known(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"query": "a", "docs": []}\n')
    with pytest.raises(BadData, match=r"docs.*query"):
        list(read.read(path))


def test_unknown_tier_is_a_fault_of_its_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(rows("a", "p", ["n"], 0) | {"tier": "hard"}) + "\n")
    with pytest.raises(BadData) as caught:
        list(read.read(path))
    assert caught.value.facts["field"] == "tier"


def test_problems_are_collected_and_every_good_line_survives(tmp_path):
    path = tmp_path / "x.jsonl"
    good = lines(flat).splitlines()
    path.write_bytes(b"\n".join([good[0], b"junk", good[1], good[1], b'{"anchor": 3}', b"x" * (17 << 20), good[2]]))
    found = []
    bundles = list(read.read(path, on_problem=lambda problem, raw: found.append((problem.line, problem.field))))
    assert [b.id for b in bundles] == ["q0", "q1", "q2"]
    assert found == [(2, None), (4, "id"), (5, "anchor"), (6, None)]


texts = st.sampled_from(["a", "b", " ", "", "c d", "日本"]) | st.text(max_size=6)
some_lines = st.one_of(
    st.builds(
        lambda a, p, n: json.dumps({"anchor": a, "positive": p, "negatives": n}),
        texts,
        texts,
        st.lists(texts, max_size=3),
    ),
    st.builds(
        lambda i: json.dumps({"id": i, "anchor": "a", "positive": "p", "negatives": ["n"]}),
        st.sampled_from(["x", "y", 1, "b1"]),
    ),
    st.sampled_from(["", "  ", "{}", "[]", "nope", '{"anchor": 1}', '{"_header": true}']),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(some_lines, max_size=6))
def test_fast_path_and_careful_reader_obey_the_same_rules(tmp_path, found):
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(found))
    try:
        careful = textset.build(read.read(path))
    except BadData as error:
        with pytest.raises(BadData) as caught:
            textset.from_files([path])
        assert caught.value.message == error.message
        return
    fast = textset.from_files([path])
    assert list(fast.ids) == list(careful.ids)
    for name in ("anchors", "positives", "negatives"):
        left, right = getattr(fast, name), getattr(careful, name)
        assert [fast.texts[i] for i in left] == [careful.texts[i] for i in right]
    np.testing.assert_array_equal(fast.offsets, careful.offsets)


def test_identity_is_id_and_texts_and_a_question_is_its_normalised_texts(tmp_path):
    path = tmp_path / "x.jsonl"
    two = [
        {"id": "1", "anchor": "Bank  A", "positive": "p", "negatives": ["x", "y"]},
        {"id": "2", "anchor": "bank a", "positive": "P", "negatives": ["Y", "x"]},
    ]
    path.write_text("".join(json.dumps(x) + "\n" for x in two))
    one, other = read.read(path)
    assert signature(one) == signature(other)
    assert item_digest(one) != item_digest(other)
