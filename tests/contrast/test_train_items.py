"""From the data block to training items: tiers, pools, what is left out, what leaks, each counted and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_fixtures import bundles, write

from crucible.contrast import encode, textset
from crucible.contrast.bundle import item_digest
from crucible.contrast.config import Data
from crucible.contrast.freeze import freeze
from crucible.contrast.read import read as read_file
from crucible.contrast.score import score
from crucible.contrast.tiers import TIERS, assign, cut_points
from crucible.contrast.train import items as training
from crucible.contrast.train import sources
from crucible.errors import BadData, IntegrityBroken


def flat(name: str, anchor: str, positive: str, *negatives: str, **metadata: Any) -> dict[str, Any]:
    def event(text: str, sense: str) -> dict[str, str]:
        return {"event_id": text, "sense": sense, "text": text}

    sense = metadata.pop("sense", f"{name}#1")
    return {
        "bundle_id": name, "anchor": event(anchor, sense), "positive": event(positive, sense),
        "negatives": [event(text, "other#1") for text in negatives], "metadata": metadata,
    }  # fmt: skip


def load(tmp_path: Path, *files: list[dict[str, Any]], **more: str) -> training.Items:
    names = tuple(str(write(tmp_path / f"{number}.jsonl", rows)) for number, rows in enumerate(files))
    return training.read(Data(bundles=names, **more))


def test_tier_and_pool_come_from_the_rows(tmp_path: Path) -> None:
    rows = [
        flat("a", "1", "2", "3", tier=1),
        flat("b", "4", "5", "6", tier=2),
        flat("c", "7", "8", "9", tier=3),
        flat("d", "10", "11", "12", source="tier3_organic_miner", passes=3, lineups_tested=10),
        flat("e", "13", "14", "15", source="tier3_expansion"),
        flat("f", "16", "17", "18", source="tier3_organic_miner", tier=3),
    ]
    found = load(tmp_path, rows)
    assert [TIERS[t] for t in found.tier] == [*TIERS, TIERS[2], TIERS[2], TIERS[2]]
    assert found.pool == ["legacy", "legacy", "legacy", "organic", "expanded", "organic"]
    assert found.sizes() == {"tier1_easy": 1, "tier2_robust": 1, "legacy": 1, "organic": 2, "expanded": 1}
    assert found.without_metadata == 1 and found.duplicates == []
    lines = list(found.lines())
    assert [line.index for line in lines] == list(range(6)) and lines[3].pool == "organic"
    assert [line.digest for line in lines] == [item_digest(b) for b in read_file(tmp_path / "0.jsonl")]


def test_what_has_no_tier_is_tiered_by_the_base_encoder_and_that_is_said(tmp_path: Path) -> None:
    rows = bundles(40, pools=False)
    for row in rows[:30]:
        del row["metadata"]["tier"]
    found = load(tmp_path, rows)
    assert found.untiered == 30
    encoder = encode.by_name("hashing:64")
    vectors = encode.unit_vectors(encoder, found.set.texts)
    made = training.tiered(found, vectors, encoder.id)
    alone = textset.build(list(read_file(tmp_path / "0.jsonl"))[:30])
    dangers = score(alone, encode.unit_vectors(encoder, alone.texts)).danger
    assert made.tier[:30].tolist() == assign(dangers, cut_points(dangers)).tolist()
    assert made.tier[30:].tolist() == found.tier[30:].tolist()
    assert "30 of 40 bundles carry no tier: hashing:64 tiered them" in made.notes[-1]


def test_frozen_tiers_win_over_those_of_the_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "b.jsonl", bundles(60, pools=False))
    freeze(file, out=tmp_path / "es", name="s", version="v1", encoder=encode.by_name("hashing:64"), seed=1)
    found = training.read(Data(bundles=(str(tmp_path / "es"),)))
    lines = [json.loads(line) for line in (tmp_path / "es" / "v1" / "items.jsonl").read_text().splitlines()]
    assert [TIERS[t] for t in found.tier] == [line["tier"] for line in lines]
    assert found.digests == [line["digest"] for line in lines]
    source = next((tmp_path / "es" / "v1").glob("source-1*"))
    before = sources.digests(Data(bundles=(str(tmp_path / "es"),)))
    source.write_text(source.read_text() + "\n")
    assert sources.digests(Data(bundles=(str(tmp_path / "es"),))) == before
    with pytest.raises(IntegrityBroken, match="source-1"):
        training.read(Data(bundles=(str(tmp_path / "es"),)))


def test_false_negatives_of_a_bundle_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        flat("a", "The Cat", "a dog", "the  cat", "A DOG", "a bird", tier=1),
        flat("b", "one", "two", "ONE", "Two ", tier=1),
        flat("c", "x", "y", "z", tier=1),
    ]
    found = load(tmp_path, rows)
    assert list(found.set.ids) == ["a", "c"]
    assert [found.set.texts[i] for i in found.set.negatives] == ["a bird", "z"]
    assert "4 negatives are left out" in found.notes[0]
    assert "1 bundles have no other negative and are left out, the first is 'b'" in found.notes[1]


def test_bundle_in_two_files_of_one_pool_is_one_item_and_in_two_pools_a_duplicate(tmp_path: Path) -> None:
    twice = flat("a", "1", "2", "3", tier=3)
    mined = flat("a", "1", "2", "3", source="tier3_organic_miner", passes=3, lineups_tested=10)
    found = load(tmp_path, [twice, flat("b", "4", "5", "6", tier=1)], [twice], [mined])
    assert list(found.set.ids) == ["a", "b", "a"] and found.duplicates == ["a"]
    assert any("1 bundles repeat another one" in note for note in found.notes)


def test_ids_by_position_go_on_counting_over_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        row = {"anchor": f"{name} a", "positive": f"{name} p", "negatives": [f"{name} n"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    found = training.read(Data(bundles=(str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl"))))
    assert list(found.set.ids) == ["b1", "b2"]
    assert any("no bundle names its sense" in note for note in found.notes)


def test_leak_into_the_holdout_is_loud_and_has_numbers(tmp_path: Path) -> None:
    rows = [flat("a", "river bank", "steep bank", "n", sense="bank#1", tier=1)]
    clean = write(tmp_path / "clean.jsonl", [flat("h", "money", "coin", "n", sense="bank#2")])
    leaky = [
        flat("s", "new words", "other words", "n", sense="bank#1"),
        flat("t", "RIVER  bank", "third", "n", sense="bank#3"),
        flat("u", "fourth", "fifth", "steep bank", sense="bank#4"),
    ]
    assert not any("LEAK" in note for note in load(tmp_path, rows, organic_eval=str(clean)).notes)
    (note,) = load(tmp_path, rows, organic_eval=str(write(tmp_path / "leaky.jsonl", leaky))).notes
    assert note.startswith("LEAK: of 3 items of organic_eval, 1 share a sense and 1 an anchor or positive")


def test_share_of_the_frozen_set_that_is_trained_on_is_said(tmp_path: Path) -> None:
    rows = [flat("a", "A one", "two", "n", tier=1), flat("b", "three", "four", "n", tier=1)]
    frozen = write(tmp_path / "frozen.jsonl", [flat("q", "a  ONE", "Two", "m"), flat("r", "five", "six", "m")])
    (note,) = load(tmp_path, rows, frozen_eval=str(frozen)).notes
    assert note == "1 of 2 items of frozen_eval (50.0%) are trained on: frozen measures retention"


def test_unknown_pool_and_nothing_to_train_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"metadata\.pool is 'lost'"):
        load(tmp_path, [flat("a", "1", "2", "3", tier=1, pool="lost")])
    with pytest.raises(BadData, match="no bundle to train on"):
        load(tmp_path, [flat("a", "1", "2", "1", tier=1)])
    with pytest.raises(BadData, match="no such file"):
        sources.digests(Data(bundles=(str(tmp_path / "gone"),)))


def test_every_item_is_in_exactly_one_group(tmp_path: Path) -> None:
    groups = load(tmp_path, bundles(90)).groups.named()
    together = np.concatenate(list(groups.values()))
    assert sorted(together.tolist()) == list(range(90))
