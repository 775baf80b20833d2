"""The readers take what they should, in every format, and refuse everything else with file, line and field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible.contrast import read
from crucible.errors import BadData

GOOD = {"anchor": "a", "positive": "p", "negatives": ["n"]}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "bundles.jsonl"
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


def refusal(path: Path) -> BadData:
    with pytest.raises(BadData) as caught:
        list(read.read(path))
    assert str(path) in caught.value.message
    return caught.value


def test_ids_are_the_files_own_or_the_position(tmp_path):
    path = written(tmp_path, GOOD, GOOD | {"id": "mine"}, b"", GOOD | {"bundle_id": 7}, GOOD)
    assert [b.id for b in read.read(path)] == ["b1", "mine", "7", "b4"]


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n" + json.dumps(GOOD).encode())
    assert len(list(read.read(path))) == 2


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({"anchor": "a", "positive": "p"}, "negatives"),
        (GOOD | {"negatives": []}, "negatives"),
        (GOOD | {"negatives": ["n", 3]}, "negatives[1]"),
        (GOOD | {"negatives": ["n", "  "]}, "negatives[1]"),
        (GOOD | {"anchor": ""}, "anchor"),
        (GOOD | {"positive": None}, "positive"),
        (GOOD | {"id": ""}, "id"),
        ([1, 2], None),
        (b"not json", None),
        (b"\x00\xff\xfe\x80", None),
        (b'{"anchor": "\xff"}', None),
        (b"[" * 100_000, None),
        (b'{"anchor": "a", "positive": "p", "negatives": ["n"]', None),
    ],
    ids=str,
)
def test_bad_line_is_refused_with_its_number_and_field(tmp_path, line, field):
    error = refusal(written(tmp_path, GOOD, line, GOOD))
    assert error.facts["line"] == 2
    assert error.facts["field"] == field


def test_duplicate_id_names_both_lines(tmp_path):
    error = refusal(written(tmp_path, GOOD | {"id": "x"}, GOOD, GOOD | {"id": "x"}))
    assert error.facts["line"] == 3
    assert "line 1" in error.message


def test_position_id_cannot_hide_behind_a_given_one(tmp_path):
    assert refusal(written(tmp_path, GOOD | {"id": "b2"}, GOOD)).facts["field"] == "id"


def test_line_of_a_hundred_megabytes_is_refused_without_reading_it_all(tmp_path):
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as stream:
        stream.write(json.dumps(GOOD).encode() + b"\n")
        stream.truncate(100 << 20)
    assert refusal(path).facts["line"] == 2


def test_empty_missing_and_folder_are_three_clear_errors(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "no bundle" in refusal(empty).message
    assert "no such file" in refusal(tmp_path / "missing.jsonl").message
    assert "folder" in refusal(tmp_path).message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "id", "x"]), inner, max_size=4),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()), min_size=1, max_size=6))
def test_any_bytes_give_bundles_or_one_clear_refusal(tmp_path, lines):
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        for item in read.read(path):
            assert item.id.strip()
            assert item.negatives
            assert all(text.strip() for text in (item.anchor, item.positive, *item.negatives))
    except BadData as error:
        assert str(path) in error.message
        assert error.fix


texts = st.text(min_size=1, max_size=30).filter(lambda t: bool(t.strip()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts, st.lists(texts, min_size=1, max_size=4)), min_size=1, max_size=5))
def test_every_good_bundle_is_read_back_exactly(tmp_path, rows):
    path = written(tmp_path, *({"anchor": a, "positive": p, "negatives": n} for a, p, n in rows))
    assert [(b.anchor, b.positive, list(b.negatives)) for b in read.read(path)] == rows
