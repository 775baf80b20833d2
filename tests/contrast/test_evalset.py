"""A frozen eval set is exactly its file, its tiers and its reference encoder; nothing in it can change unseen."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from crucible.contrast import cache, encode, evalset, freeze, idform, tiers
from crucible.contrast.read import read
from crucible.errors import BadConfig, BadData, IntegrityBroken, Mistake


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return written(tmp_path / "bundles.jsonl", "x", 40)


def written(path: Path, prefix: str, count: int) -> Path:
    rng = np.random.default_rng(len(prefix))
    words = ["river", "bank", "money", "tree", "stone", "light", "dark", "cold"]
    with path.open("w") as stream:
        for i in range(count):
            pick = lambda: " ".join(rng.choice(words, size=4))  # noqa: E731
            row = {"id": f"{prefix}{i}", "anchor": pick(), "positive": pick(), "negatives": [pick() for _ in range(3)]}
            stream.write(json.dumps(row) + "\n")
    return path


def frozen(source: Path, out: Path, **change) -> evalset.Manifest:
    settings = {"name": "demo", "version": "v1", "encoder": encode.by_name("hashing"), "seed": 42, "out": out} | change
    return freeze.freeze(source, **settings)


def test_fingerprint_is_the_files_sha256_seed_and_count(source, tmp_path):
    manifest = frozen(source, tmp_path / "es")
    assert manifest.fingerprint == f"{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}|42|40"


def test_source_is_kept_byte_for_byte_and_the_set_can_be_moved(source, tmp_path):
    frozen(source, tmp_path / "es")
    shutil.move(tmp_path / "es", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere/v1/source-1.jsonl").read_bytes() == source.read_bytes()
    assert list(evalset.load(tmp_path / "elsewhere").items.ids) == [b.id for b in read(source)]
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
        ({"encoder": encode.by_name("hashing:64")}, "reference_encoder"),
    ],
)
def test_every_condition_is_a_fact_of_the_pin(source, tmp_path, change, fact):
    one, other = frozen(source, tmp_path / "a"), frozen(source, tmp_path / "b", **change)
    assert fact in [d.fact for d in one.pin.differences(other.pin)]


def test_the_name_is_only_a_note(source, tmp_path):
    one, other = frozen(source, tmp_path / "a"), frozen(source, tmp_path / "b", name="other")
    assert one.pin.digest == other.pin.digest


@pytest.mark.parametrize("file", ["v1/source-1.jsonl", "v1/items.jsonl", "v1/evalset.json", "changelog.jsonl"])
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


HASHING = encode.by_name("hashing")


def extended(folder: Path, more: Path, version: str = "v2") -> evalset.Manifest:
    return freeze.extend(folder, more, version=version, note="more", encoder=HASHING)


def test_extending_adds_a_version_and_leaves_the_old_one_byte_for_byte(source, tmp_path):
    frozen(source, tmp_path / "es")
    before = {p.name: p.read_bytes() for p in (tmp_path / "es/v1").iterdir()}
    manifest = extended(tmp_path / "es", written(tmp_path / "more.jsonl", "yy", 15))
    assert {p.name: p.read_bytes() for p in (tmp_path / "es/v1").iterdir()} == before
    assert (manifest.item_count, manifest.extends, manifest.version) == (55, "v1", "v2")
    assert [v.version for v in evalset.history(tmp_path / "es")] == ["v1", "v2"]
    assert evalset.history(tmp_path / "es")[1].note == "more"
    assert evalset.load(tmp_path / "es").version == "v2"
    assert len(evalset.load(tmp_path / "es", "v1").items) == 40


def test_hash_of_an_extended_set_is_that_of_its_files_behind_each_other(source, tmp_path):
    frozen(source, tmp_path / "es")
    more = written(tmp_path / "more.jsonl", "yy", 15)
    manifest = extended(tmp_path / "es", more)
    whole = hashlib.sha256(source.read_bytes() + more.read_bytes()).hexdigest()
    assert manifest.fingerprint == f"{whole[:16]}|42|55"


def test_no_item_changes_its_tier_when_the_set_grows(source, tmp_path):
    first = frozen(source, tmp_path / "es")
    second = extended(tmp_path / "es", written(tmp_path / "more.jsonl", "yy", 200))
    assert second.cut_points == first.cut_points
    found = evalset.diff(tmp_path / "es", "v1", tmp_path / "es", "v2")
    assert (found.append_only, found.removed, found.changed, found.retiered) == (True, [], [], [])
    assert len(found.added) == 200
    assert "version" in [difference.fact for difference in found.facts]


@pytest.mark.parametrize("edit", [True, False])
def test_editing_or_repeating_an_item_is_refused_and_leaves_no_trace(source, tmp_path, edit):
    frozen(source, tmp_path / "es")
    row = json.loads(source.read_text().splitlines()[3])
    if edit:
        row["positive"] += " edited"
    (tmp_path / "more.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(Mistake, match="x3") as caught:
        extended(tmp_path / "es", tmp_path / "more.jsonl")
    assert caught.value.facts["edited"] is edit
    assert sorted(p.name for p in (tmp_path / "es").iterdir()) == ["changelog.jsonl", "v1"]


def test_a_version_is_never_made_twice(source, tmp_path):
    frozen(source, tmp_path / "es")
    with pytest.raises(Mistake, match="v1"):
        extended(tmp_path / "es", written(tmp_path / "more.jsonl", "yy", 3), version="v1")


def test_another_reference_encoder_cannot_extend(source, tmp_path):
    frozen(source, tmp_path / "es")
    with pytest.raises(IntegrityBroken, match="hashing:64"):
        freeze.extend(
            tmp_path / "es",
            written(tmp_path / "more.jsonl", "yy", 3),
            version="v2",
            note="",
            encoder=encode.by_name("hashing:64"),
        )


def test_a_crash_between_folder_and_changelog_is_healed_by_the_next_extend(source, tmp_path):
    frozen(source, tmp_path / "es")
    (tmp_path / "es/v2").mkdir()
    (tmp_path / "es/v2/half").write_text("left by a crash")
    assert evalset.load(tmp_path / "es").version == "v1"
    assert extended(tmp_path / "es", written(tmp_path / "more.jsonl", "yy", 3)).item_count == 43


def test_ids_by_position_go_on_counting(tmp_path):
    line = '{"anchor": "a", "positive": "p", "negatives": ["n"]}\n'
    (tmp_path / "one.jsonl").write_text(line * 2)
    (tmp_path / "two.jsonl").write_text(line * 2)
    frozen(tmp_path / "one.jsonl", tmp_path / "es")
    extended(tmp_path / "es", tmp_path / "two.jsonl")
    assert [item.id for item in evalset.items_of(tmp_path / "es", "v2")] == ["b1", "b2", "b3", "b4"]
    assert list(evalset.load(tmp_path / "es").items.ids) == ["b1", "b2", "b3", "b4"]


def test_drawn_negatives_are_fixed_in_number_and_by_seed(source, tmp_path):
    frozen(source, tmp_path / "a", negatives=2)
    frozen(source, tmp_path / "b", negatives=2)
    frozen(source, tmp_path / "c", negatives=2, seed=7)
    kept = [(tmp_path / name / "v1/source-1.jsonl").read_bytes() for name in "abc"]
    assert kept[0] == kept[1] != kept[2]
    assert set(np.diff(evalset.load(tmp_path / "a").items.offsets)) == {2}
    with pytest.raises(BadData, match="asks for 4"):
        frozen(source, tmp_path / "d", negatives=4)


def test_compressed_source_is_kept_as_given(source, tmp_path):
    packed = tmp_path / "bundles.jsonl.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    manifest = frozen(packed, tmp_path / "es")
    assert (tmp_path / "es/v1/source-1.jsonl.gz").read_bytes() == packed.read_bytes()
    assert manifest.source_sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert len(evalset.load(tmp_path / "es").items) == 40


def test_damaged_id_form_is_made_again(source, tmp_path):
    frozen(source, tmp_path / "es")
    first = evalset.load(tmp_path / "es")
    (folder,) = (cache.location() / "textsets").iterdir()
    for file in sorted(folder.iterdir()):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        again = evalset.load(tmp_path / "es")
        assert list(again.items.texts) == list(first.items.texts)
        np.testing.assert_array_equal(again.items.negatives, first.items.negatives)


def test_a_cache_that_cannot_be_written_costs_time_and_not_the_result(source, tmp_path, monkeypatch):
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", "/dev/null/nowhere")
    frozen(source, tmp_path / "es")
    assert len(evalset.load(tmp_path / "es").items) == 40


def test_id_forms_are_counted_and_pruned_by_age(source, tmp_path):
    frozen(source, tmp_path / "es")
    where = cache.location()
    assert idform.stored(where).count == 1
    assert idform.prune(where, older_than_days=1, everything=False, dry_run=False).count == 0
    (folder,) = (where / "textsets").iterdir()
    os.utime(folder / "meta.json", (0, 0))
    assert idform.prune(where, older_than_days=1, everything=False, dry_run=True).count == 1
    assert idform.prune(where, older_than_days=1, everything=False, dry_run=False).count == 1
    assert idform.stored(where).count == 0
    assert len(evalset.load(tmp_path / "es").items) == 40


def test_plain_file_has_the_tiers_its_rows_carry(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"anchor_text": "a", "positive_text": "p", "negative_texts": ["n"]}
    header = {"_header": True, "eval_seed": 9}
    tiered = [row | {"id": i, "tier": tier} for i, tier in enumerate(("tier1_easy", "tier3_adversarial", "tier3"))]
    path.write_text("".join(json.dumps(x) + "\n" for x in [header, *tiered]))
    loaded = evalset.load(path)
    assert loaded.tier.tolist() == [0, 2, 2]
    assert loaded.fingerprint == f"{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}|9|3"
