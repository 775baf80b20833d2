"""Splits leak nothing and do not depend on the order of the file; merges and filters keep whatever a bundle carries."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.bundle import Bundle, normalised
from crucible.contrast.pooling import pool_merge, pool_split
from crucible.contrast.pooling.pool_filter import keep
from crucible.contrast.pooling.pool_split import Request, nearest_sum
from crucible.contrast.pooling.pool_stats import stats
from crucible.contrast.pooling.poolfile import line_of
from crucible.contrast.pooling.pools import POOLS, lemma_of, pool_of, tier_of
from crucible.contrast.read import read
from crucible.errors import BadConfig, BadData, MachineryFailed
from crucible.kernel import digest


def bundle(name="b", anchor="an anchor", positive="a positive", negatives=("a negative",), **more) -> Bundle:
    return Bundle(id=name, anchor=anchor, positive=positive, negatives=tuple(negatives), **more)


def many(count: int, per_sense: int = 3, **more) -> list[Bundle]:
    return [
        bundle(
            f"i{i}",
            f"anchor {i}",
            f"positive {i}",
            [f"negative {i}", f"other {i}"],
            sense=f"w{i // per_sense}#1",
            **more,
        )
        for i in range(count)
    ]


def write(path: Path, bundles, *, nested=False) -> Path:
    path.write_bytes(b"".join(line_of(found, nested=nested) for found in bundles))
    return path


def sides(folder: Path) -> tuple[list[Bundle], list[Bundle]]:
    return list(read(folder / "a.jsonl")), list(read(folder / "b.jsonl"))


def split(source: Path, folder: Path, fraction=0.25, seed=42, **more):
    return pool_split.split(source, folder / "a.jsonl", folder / "b.jsonl", Request(fraction, seed, **more))


def texts(bundles) -> set[str]:
    return {normalised(text) for found in bundles for text in (found.anchor, found.positive)}


# --- which pool --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "pool"),
    [
        ({}, "legacy"),
        ({"source": "bundle_generator"}, "legacy"),
        ({"source": "manual_curation"}, "legacy"),
        ({"source": "tier3_organic_miner"}, "organic"),
        ({"source": "tier3_expansion"}, "expanded"),
        ({"expansion": {"of": "b1"}}, "expanded"),
        ({"expansion": False}, "legacy"),
        ({"source": "tier3_organic_miner", "pool": "legacy"}, "legacy"),
        ({"source": "tier3_organic_miner", "pool": None}, "organic"),
    ],
)
def test_the_pool_is_what_the_metadata_say(metadata, pool):
    assert pool_of(bundle(metadata=metadata)) == pool


def test_an_unknown_pool_is_refused_with_the_bundle():
    with pytest.raises(
        BadData, match=r"bundle b: metadata.pool is 'organc', which is none of legacy, organic, expanded"
    ):
        pool_of(bundle(metadata={"pool": "organc"}))


def test_what_was_mined_or_expanded_is_tier_3_even_where_no_tier_is_recorded():
    assert tier_of(bundle(metadata={"source": "tier3_organic_miner"})) == "tier3_adversarial"
    assert tier_of(bundle(metadata={"expansion": True})) == "tier3_adversarial"
    assert tier_of(bundle(tier="tier1_easy", metadata={"pool": "organic"})) == "tier1_easy"
    assert tier_of(bundle()) is None


def test_the_lemma_is_recorded_or_the_part_before_the_sense_number():
    assert lemma_of(bundle(metadata={"lemma": "run"}, sense="bank#1")) == "run"
    assert lemma_of(bundle(sense="bank#1")) == "bank"
    assert lemma_of(bundle(sense="bank")) is None


# --- split -------------------------------------------------------------------------------------------------------------

WORDS = ["x", "y", "X ", "z z", "Z  z", "q", "r", "s", "t", "u", "v", "w"]


@st.composite
def pools(draw):
    """Small pools in which senses, anchors and positives meet often, also in another spelling."""
    count = draw(st.integers(4, 24))
    found = []
    for i in range(count):
        shared = draw(st.integers(0, 5)) == 0
        found.append(
            bundle(
                f"i{i}",
                draw(st.sampled_from(WORDS)) if shared else f"anchor {i}",
                f"positive {i}" if draw(st.booleans()) else f" Positive  {i} ",
                [draw(st.sampled_from([f"n {i}", "anchor 0", "POSITIVE 1"]))],
                sense=draw(st.sampled_from([None, "a#1", "b#1", "c#1", "d#1", "e#1"])),
            )
        )
    return found


@given(pools(), st.floats(0.1, 0.9), st.integers(0, 5), st.sampled_from(["sense", "lemma"]))
def test_no_sense_and_no_text_is_on_both_sides(tmp_path_factory, found, fraction, seed, by):
    folder = tmp_path_factory.mktemp("split")
    source = write(folder / "p.jsonl", found)
    try:
        made = split(source, folder, fraction, seed, by=by)
    except BadData as error:
        assert "after joining shared texts" in error.message and not (folder / "a.jsonl").exists()
        return
    train, holdout = sides(folder)
    assert not texts(train) & texts(holdout)
    for key in (lambda b: b.sense, lemma_of):
        if key is lemma_of and by == "sense":
            continue
        assert not ({key(b) for b in train} & {key(b) for b in holdout}) - {None}
    assert made.leaks["shared_texts"] == made.leaks["shared_senses"] == 0
    assert train and holdout and 0.5 <= len(holdout) / (fraction * len(found)) <= 2
    crossing = sum(normalised(text) in texts(holdout) for b in train for text in b.negatives)
    assert made.leaks["train_negatives_in_holdout"]["negatives"] == crossing
    lines = source.read_bytes().splitlines()
    for side in ("a.jsonl", "b.jsonl"):
        kept = (folder / side).read_bytes().splitlines()
        assert kept == [line for line in lines if line in set(kept)]
    assert sorted(lines) == sorted(
        (folder / "a.jsonl").read_bytes().splitlines() + (folder / "b.jsonl").read_bytes().splitlines()
    )


@given(pools(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_the_order_of_the_file_does_not_change_the_split(tmp_path_factory, found, rng, seed):
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    shuffled = rng.sample(found, len(found))
    try:
        split(write(one / "p.jsonl", found), one, 0.4, seed)
    except BadData:
        with pytest.raises(BadData):
            split(write(other / "p.jsonl", shuffled), other, 0.4, seed)
        return
    split(write(other / "p.jsonl", shuffled), other, 0.4, seed)
    assert {b.id for b in sides(one)[1]} == {b.id for b in sides(other)[1]}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_split(tmp_path):
    source = write(tmp_path / "p.jsonl", many(60))
    split(source, tmp_path, seed=1)
    first = (tmp_path / "b.jsonl").read_bytes()
    split(source, tmp_path, seed=1)
    assert (tmp_path / "b.jsonl").read_bytes() == first
    split(source, tmp_path, seed=2)
    assert (tmp_path / "b.jsonl").read_bytes() != first


@given(st.lists(st.integers(1, 9), min_size=2, max_size=9), st.floats(0.01, 0.99))
def test_the_holdout_is_as_near_to_the_fraction_as_whole_groups_allow(sizes, fraction):
    target = fraction * sum(sizes)
    reached, places = nearest_sum(sizes, target)
    assert reached == sum(sizes[place] for place in places) and len(set(places)) == len(places)
    every = range(1, len(sizes))
    possible = {sum(chosen) for count in every for chosen in itertools.combinations(sizes, count)}
    assert abs(reached - target) == min(abs(total - target) for total in possible)


def test_large_groups_have_their_chance_in_the_holdout():
    """One group of 20 among 80 single ones: a draw that only ever takes small groups would never hold it out."""
    rng = random.Random(0)
    sizes = [20] + [1] * 80
    orders = [rng.sample(sizes, len(sizes)) for _ in range(400)]
    held = sum(20 in [order[place] for place in nearest_sum(order, 25)[1]] for order in orders)
    assert 50 <= held <= 150  # a quarter of the bundles is held out, so about a quarter of the draws should hold it


def test_a_text_shared_by_two_senses_keeps_them_together(tmp_path):
    found = [*many(12), bundle("bridge", "ANCHOR  0", "positive 11", sense="w9#1")]
    split(write(tmp_path / "p.jsonl", found), tmp_path, 0.4)
    (side,) = [side for side in sides(tmp_path) if any(b.id == "bridge" for b in side)]
    assert {"i0", "i11", "bridge"} <= {b.id for b in side}


def test_one_giant_component_is_refused_with_its_size(tmp_path):
    found = [bundle(f"i{i}", "the same anchor", f"p {i}", sense=f"s{i}#1") for i in range(30)]
    found += [bundle("alone", "another", "positive", sense="z#1")]
    with pytest.raises(BadData, match=r"whole groups allow 1 of 31 .*the largest holds 30") as caught:
        split(write(tmp_path / "p.jsonl", found), tmp_path, 0.3)
    assert "--holdout-fraction 0.032" in caught.value.fix
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.jsonl"]


def test_a_single_group_cannot_be_split(tmp_path):
    with pytest.raises(BadData, match="3 bundles in 1 groups by sense, 1 after joining"):
        split(write(tmp_path / "p.jsonl", many(3)), tmp_path)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_a_fraction_outside_0_and_1_is_refused(fraction):
    with pytest.raises(BadConfig, match="holdout fraction"):
        Request(fraction, 1)


@pytest.mark.parametrize(
    "names", [("a", "a"), ("p.jsonl", "b"), ("a", "p.jsonl"), ("a", "a.manifest.json"), ("./a", "a")]
)
def test_no_output_overwrites_an_input_or_another_output(tmp_path, names):
    source = write(tmp_path / "p.jsonl", many(12))
    before = source.read_bytes()
    train, holdout = (tmp_path / name for name in names)
    with pytest.raises(BadConfig, match="would overwrite"):
        pool_split.split(source, train, holdout, Request(0.3, 1))
    assert source.read_bytes() == before


def test_bundles_without_a_sense_are_groups_by_their_anchor_and_it_is_said(tmp_path):
    found = [bundle(f"i{i}", f"anchor {i // 2}", f"positive {i}") for i in range(20)]
    made = split(write(tmp_path / "p.jsonl", found), tmp_path)
    assert made.counts["components"] == 10
    assert any("20 bundles have no sense" in note for note in made.notes)


def test_shared_senses_are_allowed_only_when_asked_and_texts_are_still_kept_apart(tmp_path):
    found = [bundle(f"i{i}", f"anchor {i // 2}", f"positive {i}", sense="one#1") for i in range(20)]
    source = write(tmp_path / "p.jsonl", found)
    with pytest.raises(BadData):
        split(source, tmp_path)
    made = split(source, tmp_path, allow_shared_senses=True)
    assert made.leaks["shared_senses"] == 1 and made.leaks["shared_texts"] == 0


@pytest.mark.parametrize("packed", ["none", "gzip", "zstd"])
def test_lines_are_copied_byte_for_byte_from_every_kind_of_file(tmp_path, packed):
    """Odd spacing, unknown keys, escapes and event ids survive; blank lines, the BOM and a missing line end do not."""
    lines = [
        b'{ "bundle_id":"i%d","anchor":{"event_id":%d,"text":"a \\u00e9 %d","sense":"s%d"} ,"positive":{"text":"p%d"},'
        b'"negatives":[{"text":"n"}], "extra": 1.0 }' % ((i,) * 5)
        for i in range(8)
    ]
    data = b"\xef\xbb\xbf" + b"\r\n\n".join(lines)
    pack = {"none": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[packed]
    source = tmp_path / "p.jsonl"
    source.write_bytes(pack(data))
    split(source, tmp_path)
    out = (tmp_path / "a.jsonl").read_bytes() + (tmp_path / "b.jsonl").read_bytes()
    assert sorted(line.rstrip(b"\r") for line in out.splitlines()) == sorted(lines)
    assert out.count(b"\n") == 8


def test_bundles_from_columns_are_written_as_flat_strings(tmp_path):
    import pyarrow as arrow
    from pyarrow import parquet

    table = arrow.table(
        {
            "anchor": [f"a{i}" for i in range(8)],
            "positive": [f"p{i}" for i in range(8)],
            "negative": ["n"] * 8,
            "sense": [f"s{i}#1" for i in range(8)],
        }
    )
    parquet.write_table(table, tmp_path / "p.parquet")
    split(tmp_path / "p.parquet", tmp_path)
    train, holdout = sides(tmp_path)
    assert len(train) == 6 and len(holdout) == 2
    assert sorted(b.id for b in train + holdout) == [f"b{i}" for i in range(1, 9)]
    assert {b.sense for b in train + holdout} == {f"s{i}#1" for i in range(8)}


def test_it_is_said_that_bundles_without_ids_are_numbered_anew(tmp_path):
    source = tmp_path / "p.jsonl"
    source.write_text("".join(f'{{"anchor": "a{i}", "positive": "p{i}", "negatives": ["n"]}}\n' for i in range(8)))
    made = split(source, tmp_path)
    assert any("8 bundles have no id of their own" in note for note in made.notes)


# --- manifest and writing ----------------------------------------------------------------------------------------------


def test_the_manifest_beside_each_output_has_the_digests_of_what_was_read_and_written(tmp_path):
    source = write(tmp_path / "p.jsonl", many(30))
    made = split(source, tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        manifest = json.loads((tmp_path / f"{name}.manifest.json").read_text())
        assert manifest["command"] == "pool split" and manifest["seed"] == 42
        assert manifest["inputs"] == [
            {"file": str(source), "sha256": digest.of_file(source), "bundles": 30, "format": "flat"}
        ]
        for written in manifest["outputs"]:
            assert written["sha256"] == digest.of_file(Path(written["file"]))
            assert written["bundles"] == len(Path(written["file"]).read_bytes().splitlines())
    assert made.counts["train"] + made.counts["holdout"] == 30


@pytest.mark.parametrize("works", range(4))
def test_a_fault_while_writing_any_of_the_files_leaves_what_was_there_and_no_draft(tmp_path, monkeypatch, works):
    """Two outputs and two manifests: whichever meets the full disk, no other has its name already."""
    source = write(tmp_path / "p.jsonl", many(30))
    (tmp_path / "a.jsonl").write_text("old")
    (tmp_path / "a.jsonl.manifest.json").write_text("old manifest")
    left, real = [works], os.fsync

    def full(fd):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(fd)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MachineryFailed, match="No space left"):
        split(source, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.manifest.json", "p.jsonl"]
    assert (tmp_path / "a.jsonl").read_text() == "old"
    assert (tmp_path / "a.jsonl.manifest.json").read_text() == "old manifest"


def test_a_bad_line_in_the_middle_leaves_nothing(tmp_path):
    source = tmp_path / "p.jsonl"
    good = write(tmp_path / "good.jsonl", many(9)).read_bytes()
    source.write_bytes(good + b'{"anchor": 3}\n')
    with pytest.raises(BadData, match=r"p.jsonl:10"):
        keep(source, tmp_path / "o.jsonl", where="negatives > 0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.jsonl", "p.jsonl"]


def test_a_packed_name_for_a_plain_output_is_refused(tmp_path):
    source = write(tmp_path / "p.jsonl", many(9))
    with pytest.raises(BadConfig, match=r"plain JSON lines, not as .gz"):
        keep(source, tmp_path / "o.jsonl.gz", where="negatives > 0")


# --- merge -------------------------------------------------------------------------------------------------------------

RICH = [
    bundle(
        "r1", "rich anchor", "rich positive", ["n one", "n two"], sense="w#1", tier="tier3_adversarial", danger=0.25,
        metadata={"passes": 9, "lineups_tested": 10, "strength": "ultra", "source": "tier3_organic_miner", "deep": {"a": [1]}},
    ),
    bundle("r2", "plain anchor", "plain positive"),
]  # fmt: skip


def described(found: Bundle) -> tuple:
    """Everything a bundle carries, but what merging adds."""
    metadata = {k: v for k, v in found.metadata.items() if k not in ("pool", "provenance", "tier", "danger")}
    return found.anchor, found.positive, found.negatives, found.sense, found.tier, found.danger, metadata


@given(
    st.lists(
        st.builds(
            bundle,
            st.integers(0, 4).map(lambda i: f"i{i}"),
            st.sampled_from(["a", "b", "A "]),
            st.sampled_from(["p", "q"]),
            st.lists(st.sampled_from(["n", "m", "o"]), min_size=1, max_size=3),
            sense=st.none() | st.sampled_from(["w#1", "w#2"]),
            tier=st.none() | st.sampled_from(["tier1_easy", "tier3_adversarial"]),
            danger=st.none() | st.floats(-1, 1),
            metadata=st.dictionaries(
                st.sampled_from(["passes", "note", "tier_x"]), st.integers() | st.text(max_size=3)
            ),
        ),
        min_size=2,
        max_size=12,
        unique_by=lambda found: found.id,
    ),
    st.booleans(),
    st.integers(1, 11),
)
def test_a_merge_keeps_every_question_once_and_everything_that_belongs_to_it(tmp_path_factory, found, nested, cut):
    folder = tmp_path_factory.mktemp("merge")
    parts = [part for part in (found[:cut], found[cut:]) if part]
    files = [write(folder / f"{i}.jsonl", part, nested=nested) for i, part in enumerate(parts)]
    made = pool_merge.merge(files, folder / "m.jsonl")
    out = list(read(folder / "m.jsonl"))
    first = {}
    for i, part in enumerate(parts):
        for line, one in enumerate(part, 1):
            key = (normalised(one.anchor), one.positive, tuple(sorted(one.negatives)), one.sense)
            first.setdefault(key, (one, files[i], line))
    assert [described(b) for b in out] == [described(b) for b, _, _ in first.values()]
    for merged, (one, file, line) in zip(out, first.values(), strict=True):
        assert merged.metadata["pool"] == "legacy"
        assert merged.metadata["provenance"] == {
            "file": file.name, "sha256": digest.of_file(file), "line": line, "id": one.id,
        }  # fmt: skip
    assert made.duplicates["signature"] == len(found) - len(out) == len(made.duplicates["left_out"])
    assert made.counts["written"] == len(out)


@pytest.mark.parametrize("formats", [("flat", "events"), ("events", "flat"), ("flat", "rows"), ("rows", "events")])
def test_files_of_different_formats_become_one_that_reads_back_whole(tmp_path, formats):
    rows = {
        "id": "r1", "anchor_text": "row anchor", "positive_text": "row positive", "negative_texts": ["x"], "tier": 3,
        "danger": 0.5, "lemma": "run", "pos": "v", "sense_id": "run#2",
    }  # fmt: skip
    files = []
    for kind in formats:
        path = tmp_path / f"{kind}.jsonl"
        if kind == "rows":
            path.write_text('{"_header": true, "eval_count": 1}\n' + json.dumps(rows) + "\n")
        else:
            write(path, [bundle(f"{kind}-{b.id}", f"{kind} {b.anchor}", *list(described(b))[1:3]) for b in RICH])
            write(path, [replaced(b, kind) for b in RICH], nested=kind == "events")
        files.append(path)
    before = [described(b) for path in files for b in read(path)]
    made = pool_merge.merge(files, tmp_path / "m.jsonl")
    after = list(read(tmp_path / "m.jsonl"))
    assert [described(b) for b in after] == before
    assert made.settings["format"] == ("events" if "events" in formats else "flat")


def replaced(found: Bundle, kind: str) -> Bundle:
    sources = ("within_lemma", "cross_lemma") if kind == "events" and len(found.negatives) == 2 else None
    return Bundle(**{
        **{name: getattr(found, name) for name in Bundle.__struct_fields__},
        "id": f"{kind}-{found.id}", "anchor": f"{kind} {found.anchor}", "sources": sources,
    })  # fmt: skip


def test_sources_and_event_ids_survive_a_merge(tmp_path):
    source = Path(pool_merge.__file__).parents[1] / "sample" / "bundles.jsonl"
    some = tmp_path / "some.jsonl"
    some.write_bytes(b"".join(source.open("rb").readlines()[:50]))
    pool_merge.merge([some], tmp_path / "m.jsonl")
    assert [b.sources for b in read(tmp_path / "m.jsonl")] == [b.sources for b in read(some)]
    for old, new in zip(some.open(), (tmp_path / "m.jsonl").open(), strict=True):
        old, new = json.loads(old), json.loads(new)
        assert new["metadata"].pop("pool") == "legacy" and new["metadata"].pop("provenance")
        assert old == new


def test_an_id_that_is_taken_by_another_question_gets_a_new_ending_and_it_is_said(tmp_path):
    one = write(tmp_path / "1.jsonl", [bundle("x", "a"), bundle("x~2", "b")])
    two = write(tmp_path / "2.jsonl", [bundle("x", "c")])
    made = pool_merge.merge([one, two], tmp_path / "m.jsonl")
    assert [b.id for b in read(tmp_path / "m.jsonl")] == ["x", "x~2", "x~3"]
    assert made.duplicates["renamed"] == [{"file": "2.jsonl", "line": 1, "id": "x", "new_id": "x~3"}]
    assert any("got a new one" in note for note in made.notes)


def test_bundles_without_ids_in_two_files_do_not_clash(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(
            "".join(f'{{"anchor": "{name}{i}", "positive": "p", "negatives": ["n"]}}\n' for i in range(3))
        )
    made = pool_merge.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m.jsonl")
    assert [b.id for b in read(tmp_path / "m.jsonl")] == [f"b{i}" for i in range(1, 7)]
    assert made.duplicates["new_ids"] == 0


def test_the_pool_of_a_whole_file_can_be_given(tmp_path):
    one, two = write(tmp_path / "1.jsonl", RICH[:1]), write(tmp_path / "2.jsonl", RICH[1:])
    made = pool_merge.merge([one, two], tmp_path / "m.jsonl", {one: "legacy", two: "expanded"})
    assert [pool_of(b) for b in read(tmp_path / "m.jsonl")] == ["legacy", "expanded"]
    assert {pool: made.counts[pool] for pool in POOLS} == {"legacy": 1, "organic": 0, "expanded": 1}


def test_provenance_of_a_merge_of_merges_goes_back_to_the_first_file(tmp_path):
    one = write(tmp_path / "1.jsonl", RICH)
    pool_merge.merge([one], tmp_path / "m.jsonl")
    pool_merge.merge([tmp_path / "m.jsonl"], tmp_path / "n.jsonl")
    about = next(iter(read(tmp_path / "n.jsonl"))).metadata["provenance"]
    assert about["file"] == "m.jsonl" and about["from"]["file"] == "1.jsonl"


@pytest.mark.parametrize(
    ("pools", "said"), [({"1.jsonl": "organc"}, "no pool is called 'organc'"), ({"9": "legacy"}, "none of the files")]
)
def test_a_wrong_assignment_is_refused(tmp_path, pools, said):
    one = write(tmp_path / "1.jsonl", RICH)
    with pytest.raises(BadConfig, match=said):
        pool_merge.merge([one], tmp_path / "m.jsonl", {tmp_path / name: pool for name, pool in pools.items()})


def test_a_file_twice_is_refused(tmp_path):
    one = write(tmp_path / "1.jsonl", RICH)
    with pytest.raises(BadConfig, match="given twice"):
        pool_merge.merge([one, tmp_path / "." / "1.jsonl"], tmp_path / "m.jsonl")


# --- filter ------------------------------------------------------------------------------------------------------------

POOL = [
    bundle("a", "1", sense="run#1", tier="tier1_easy", danger=-0.5),
    bundle("b", "2", sense="run#2", metadata={"source": "tier3_organic_miner", "passes": 9, "strength": "ultra"}),
    bundle("c", "3", sense="sit#1", metadata={"source": "tier3_organic_miner", "passes": 3, "strength": "low"}),
    bundle("d", "4", negatives=["x", "y"], metadata={"expansion": {"of": {"id": "b"}}, "odd key": 1, "tags": ["t"]}),
]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("passes >= 8", "b"),
        ("passes >= 3 and strength == 'low'", "c"),
        ("not passes >= 8", "acd"),
        ("tier == 'tier3'", "bcd"),
        ("tier in [1, 'tier2']", "a"),
        ("tier != 'tier3_adversarial'", "a"),
        ("pool == 'organic' or pool == 'expanded'", "bcd"),
        ("pool not in ['organic']", "ad"),
        ("lemma == 'run'", "ab"),
        ("sense contains '#1'", "ac"),
        ("sense == null", "d"),
        ("danger < 0", "a"),
        ("negatives > 1", "d"),
        ("anchor in ['1', '4'] and id != 'a'", "d"),
        ("source == 'tier3_organic_miner'", "bc"),
        ("expansion.of.id == 'b'", "d"),
        ("metadata.passes == 3", "c"),
        ("`odd key` == 1", "d"),
        ("tags contains 't'", "d"),
    ],
)
def test_fields_mean_what_the_pools_say(tmp_path, where, ids):
    source = write(tmp_path / "p.jsonl", POOL)
    made = keep(source, tmp_path / "o.jsonl", where=where)
    assert "".join(b.id for b in read(tmp_path / "o.jsonl")) == ids
    assert made.counts == {"bundles": 4, "kept": len(ids)} | (
        {"dropped_by_where": 4 - len(ids)} if len(ids) < 4 else {}
    )
    lines = source.read_bytes().splitlines()
    assert (tmp_path / "o.jsonl").read_bytes().splitlines() == [lines["abcd".index(name)] for name in ids]


def test_how_many_bundles_lack_a_field_is_said(tmp_path):
    made = keep(write(tmp_path / "p.jsonl", POOL), tmp_path / "o.jsonl", where="passes >= 8 or danger < 0")
    assert "2 of 4 bundles have no passes: comparing it is false for them" in made.notes
    assert "3 of 4 bundles have no danger: comparing it is false for them" in made.notes


@pytest.mark.parametrize(
    ("where", "error", "said", "fix"),
    [
        ("pases >= 8", BadConfig, "no bundle has a field 'pases'", "Did you mean passes?"),
        ("expansion.off == 1", BadConfig, "no bundle has a field 'expansion.off'", "Did you mean expansion.of?"),
        ("passes >= 'many'", BadData, "bundle b: in `passes >= 'many'` passes is 9 (number) and 'many' (text)", ""),
        ("tier == 'tier4'", BadConfig, "no tier is called 'tier4'", "tier1_easy, tier2_robust, tier3_adversarial"),
        ("pool in ['organc']", BadConfig, "no pool is called 'organc'", "legacy, organic, expanded"),
        ("danger > 5", BadData, "no bundle of 4 is left: 4 by where", "crucible pool stats"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused_and_nothing_is_written(tmp_path, where, error, said, fix):
    source = write(tmp_path / "p.jsonl", POOL)
    with pytest.raises(error) as caught:
        keep(source, tmp_path / "o.jsonl", where=where)
    assert said in caught.value.message and fix in caught.value.fix
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.jsonl"]


@given(pools(), pools())
def test_without_the_senses_of_another_file_nothing_is_shared_with_it(tmp_path_factory, found, other):
    folder = tmp_path_factory.mktemp("without")
    source, against = write(folder / "p.jsonl", found), write(folder / "q.jsonl", other)
    senses = {b.sense for b in other} - {None}
    expected = [
        b.id for b in found
        if b.sense not in senses and not {normalised(b.anchor), normalised(b.positive)} & texts(other)
    ]  # fmt: skip
    if not expected:
        with pytest.raises(BadData, match="is left"):
            keep(source, folder / "o.jsonl", without_senses_of=against)
        return
    made = keep(source, folder / "o.jsonl", without_senses_of=against)
    assert [b.id for b in read(folder / "o.jsonl")] == expected
    assert made.counts["bundles"] - made.counts["kept"] == sum(n for k, n in made.counts.items() if "dropped" in k)


def test_a_filter_without_a_condition_is_refused(tmp_path):
    with pytest.raises(BadConfig, match="nothing to filter by"):
        keep(write(tmp_path / "p.jsonl", POOL), tmp_path / "o.jsonl")


# --- stats -------------------------------------------------------------------------------------------------------------


def test_stats_count_what_is_there(tmp_path):
    found = [*POOL, bundle("e", "1", sense="run#1", tier="tier1_easy", danger=-0.5)]
    made = stats(write(tmp_path / "p.jsonl", found))
    assert made.bundles == 5 and made.pools == {"legacy": 2, "organic": 2, "expanded": 1}
    assert made.tiers == {"tier1_easy": 2, "tier2_robust": 0, "tier3_adversarial": 3}
    assert made.pools_by_tier["organic"]["tier3_adversarial"] == 2
    assert made.strength == {"ultra": 1, "mid": 0, "low": 1, "none": 0, "unrecorded": 3}
    assert made.passes == {"3": 1, "9": 1}
    assert (made.senses, made.without_sense, made.lemmas, made.without_lemma) == (3, 1, 2, 1)
    assert made.duplicates.bundles == 1 and made.duplicates.ids == ["e"]
    assert (made.negatives.min, made.negatives.mean, made.negatives.max) == (1, 1.2, 2)
    assert made.danger.recorded == 2 and made.danger.quantiles["q50"] == -0.5
