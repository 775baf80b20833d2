"""A frozen eval set is exactly its file, its tiers and its reference encoder; nothing in it can change unseen."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crucible.contrast import encode, evalset, tiers
from crucible.contrast.bundle import read
from crucible.errors import BadConfig, BadData, IntegrityBroken, Mistake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "bundles.jsonl"
    rng = np.random.default_rng(0)
    words = ["river", "bank", "money", "tree", "stone", "light", "dark", "cold"]
    with path.open("w") as stream:
        for i in range(40):
            pick = lambda: " ".join(rng.choice(words, size=4))  # noqa: E731
            row = {"id": f"x{i}", "anchor": pick(), "positive": pick(), "negatives": [pick() for _ in range(3)]}
            stream.write(json.dumps(row) + "\n")
    return path


def frozen(source: Path, out: Path, **change) -> evalset.Manifest:
    settings = {"name": "demo", "version": "v1", "encoder": encode.by_name("hashing"), "seed": 42, "out": out} | change
    return evalset.freeze(source, **settings)


def test_fingerprint_is_the_files_sha256_seed_and_count(source, tmp_path):
    manifest = frozen(source, tmp_path / "es")
    assert manifest.fingerprint == f"{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}|42|40"


def test_source_is_kept_byte_for_byte_and_the_set_can_be_moved(source, tmp_path):
    frozen(source, tmp_path / "es")
    shutil.move(tmp_path / "es", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere/v1/source.jsonl").read_bytes() == source.read_bytes()
    assert evalset.load(tmp_path / "elsewhere").items.ids == [b.id for b in read(source)]
    everything = b"".join(p.read_bytes() for p in (tmp_path / "elsewhere").rglob("*") if p.is_file())
    assert str(tmp_path).encode() not in everything


def test_tiers_are_those_of_the_reference_encoder_and_stay(source, tmp_path):
    manifest = frozen(source, tmp_path / "es")
    items = [json.loads(line) for line in (tmp_path / "es/v1/items.jsonl").open()]
    dangers = np.asarray([item["danger"] for item in items])
    again = tiers.assign(dangers, tiers.cut_points(dangers))
    assert [tiers.TIERS[i] for i in again] == [item["tier"] for item in items]
    assert tiers.counts(again) == manifest.tier_distribution
    assert evalset.load(tmp_path / "es").tier.tolist() == again.tolist()


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"seed": 7}, "eval_seed"),
        ({"version": "v2"}, "version"),
        ({"encoder": encode.by_name("hashing:64")}, "reference_encoder.id"),
    ],
)
def test_every_condition_is_a_fact_of_the_pin(source, tmp_path, change, fact):
    one, other = frozen(source, tmp_path / "a"), frozen(source, tmp_path / "b", **change)
    assert fact in [d.fact for d in one.pin.differences(other.pin)]


def test_the_name_is_only_a_note(source, tmp_path):
    one, other = frozen(source, tmp_path / "a"), frozen(source, tmp_path / "b", name="other")
    assert one.pin.digest == other.pin.digest


@pytest.mark.parametrize("file", ["v1/source.jsonl", "v1/items.jsonl", "v1/evalset.json", "changelog.jsonl"])
def test_any_changed_byte_is_noticed_at_loading(source, tmp_path, file):
    frozen(source, tmp_path / "es")
    path = tmp_path / "es" / file
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), max(1, len(data) // 23)):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(IntegrityBroken):
            evalset.load(tmp_path / "es")


def test_freezing_over_an_eval_set_is_refused_and_changes_nothing(source, tmp_path):
    frozen(source, tmp_path / "es")
    before = {p: p.read_bytes() for p in (tmp_path / "es").rglob("*") if p.is_file()}
    with pytest.raises(Mistake, match="not empty"):
        frozen(source, tmp_path / "es", seed=1)
    assert {p: p.read_bytes() for p in (tmp_path / "es").rglob("*") if p.is_file()} == before


def test_bad_bundles_leave_nothing_and_name_the_users_file(source, tmp_path):
    source.write_text(source.read_text() + '{"anchor": 1}\n')
    with pytest.raises(BadData) as caught:
        frozen(source, tmp_path / "es")
    assert f"{source}:41" in caught.value.message
    assert caught.value.facts["file"] == str(source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundles.jsonl"]


@pytest.mark.parametrize("version", ["", "../x", "a/b", ".hidden", "x" * 65, "v 1", "v1\n"])
def test_versions_that_are_no_file_names_are_refused(source, tmp_path, version):
    with pytest.raises(BadConfig):
        frozen(source, tmp_path / "es", version=version)


def test_small_tiers_and_identical_negatives_are_said(source, tmp_path):
    source.write_text('{"id": "same", "anchor": "a", "positive": "p", "negatives": ["p"]}\n')
    warnings = " ".join(frozen(source, tmp_path / "es").warnings)
    assert "tier3 holds 0 items" in warnings
    assert "'same'" in warnings


def test_a_folder_that_is_no_eval_set_says_how_to_make_one(tmp_path):
    with pytest.raises(BadData) as caught:
        evalset.load(tmp_path)
    assert "evalset freeze" in caught.value.fix
