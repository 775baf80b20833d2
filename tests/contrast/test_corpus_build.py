"""Bundles are built by the rule, from any events, always the same; and the real WordNet gives what is said of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible.contrast import read
from crucible.contrast.bundle import normalised, signature
from crucible.contrast.corpus import events as event_files
from crucible.contrast.corpus import publish, senses, stats, wordnet
from crucible.contrast.corpus.build import Plan, build
from crucible.contrast.corpus.events import Event
from crucible.errors import BadConfig, BadData, Mistake

SAMPLE = Path(publish.__file__).parents[1] / "sample" / "bundles.jsonl"


@contextlib.contextmanager
def unwatched(what):
    yield lambda done, total: None


def lines(built):
    return [draft.line() for draft in built.drafts]


def written(folder: Path, *rows: object) -> Path:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in rows))
    return path


# --- any events --------------------------------------------------------------------------------------------------------

# Few lemmas, senses and texts, so that every kind of clash happens: equal texts across senses, one sense of one text, ...
texts = st.sampled_from(["a river", "A  River", "money", "the money", "slope", "run home", "ＲＵＮ home", "x y z"])
event_parts = st.fixed_dictionaries(
    {
        "sense": st.sampled_from(["bank#1", "bank#2", "bank#3", "run#1", "run#2", "lone", "walk#1"]),
        "text": texts,
        "kind": st.sampled_from([None, "example", "gloss"]),
        "group": st.sampled_from([(), "g", ("g", "h"), ("h",)]),
        "siblings": st.sampled_from([(), ("run#1",), ("run#1", "nowhere#9")]),
        "synset": st.sampled_from([None, None, "s1", "s2"]),
    }
)
event_lists = st.lists(event_parts, max_size=25).map(
    lambda all_parts: [Event(event_id=f"id{place}", **parts) for place, parts in enumerate(all_parts)]
)
plans = st.builds(
    Plan,
    style=st.sampled_from(["examples", "glosses"]),
    within=st.integers(0, 3),
    sibling=st.integers(0, 3),
    cross_lemma=st.integers(1, 3),
    seed=st.integers(0, 3),
)


@given(event_lists, plans)
def test_every_bundle_obeys_the_rule(events, plan):
    built = build(events, plan)
    same_meaning = defaultdict(set)
    for event in events:
        same_meaning[event.meaning].add(normalised(event.text))
    answer = "example" if plan.style == "examples" else "gloss"
    for anchor, positive, negatives in built.drafts:
        assert anchor.shape == "example" and positive.shape == answer and positive.sense == anchor.sense
        assert normalised(positive.text) != normalised(anchor.text)
        reads = [normalised(event.text) for event, _ in negatives]
        assert len(set(reads)) == len(reads) > 0
        assert not {normalised(anchor.text), normalised(positive.text)} & set(reads)
        assert not same_meaning[anchor.meaning] & set(reads)
        for event, source in negatives:
            assert event.shape == answer and event.sense != anchor.sense
            assert event.meaning not in (anchor.meaning, positive.meaning)
            assert (event.word == anchor.word) == (source == "within_lemma")
            related = set(event.groups) & set(anchor.groups) or event.sense in anchor.siblings
            assert related or source != "sibling"
        sources = [source for _, source in negatives]
        assert sources.count("sibling") <= plan.sibling and sources.count("cross_lemma") <= plan.cross_lemma
        assert (1 if plan.within else 0) <= sources.count("within_lemma") <= plan.within


@given(event_lists, plans, st.randoms())
def test_order_of_the_events_does_not_matter(events, plan, rng):
    shuffled = list(events)
    rng.shuffle(shuffled)
    assert lines(build(events, plan)) == lines(build(shuffled, plan))


@given(event_lists, plans, st.integers(1, 6))
def test_limit_is_a_subset_of_the_whole_and_of_that_size(events, plan, limit):
    whole, some = lines(build(events, plan)), lines(build(events, plan, limit=limit))
    assert len(some) == min(limit, len(whole))
    assert [line for line in whole if line in set(some)] == some


@given(event_lists, plans)
def test_every_example_is_an_anchor_or_left_out_for_a_reason(events, plan):
    built = build(events, plan)
    assert len(built.drafts) + sum(built.left_out.values()) == sum(event.shape == "example" for event in events)
    made = stats.of_build(events, plan, built)
    assert sum(made.bundles_by_pos.values()) == made.bundles == made.available


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event_lists, plans)
def test_bundles_are_read_back_as_they_were_built(tmp_path, events, plan):
    built = build(events, plan)
    path = tmp_path / "bundles.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines(built)))
    found = list(read.read(path)) if built.drafts else []
    assert [(b.anchor, b.positive, b.negatives, b.sources, b.sense) for b in found] == [
        (a.text, p.text, tuple(e.text for e, _ in n), tuple(s for _, s in n), a.sense) for a, p, n in built.drafts
    ]
    assert all(b.metadata["source"] == "bundle_generator" for b in found)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event_lists)
def test_events_are_read_back_as_they_were_written(tmp_path, events):
    with (tmp_path / "e.jsonl").open("wb") as stream:
        event_files.write(stream, events)
    if events:
        assert event_files.read(tmp_path / "e.jsonl") == events


def test_another_seed_draws_other_negatives():
    events = [Event(event_id=f"{s}.{n}", sense=f"w#{s}", text=f"{s} {n}") for s in range(4) for n in range(9)]
    assert lines(build(events, Plan(seed=1))) != lines(build(events, Plan(seed=2)))
    assert lines(build(events, Plan(seed=1), limit=5)) != lines(build(events, Plan(seed=2), limit=5))


def test_hash_randomisation_does_not_change_a_byte(tmp_path):
    rng = random.Random(7)
    path = written(
        tmp_path,
        *(
            {"event_id": n, "sense": f"w{rng.randrange(4)}#{rng.randrange(3)}", "text": f"t {n}", "group": ["g", f"h{n % 3}"]}
            for n in range(80)
        ),
    )  # fmt: skip
    program = (
        "import sys; from pathlib import Path; from crucible.contrast.corpus import build, events\n"
        "built = build.build(events.read(Path(sys.argv[1])), build.Plan())\n"
        "sys.stdout.buffer.write(b''.join(draft.line() for draft in built.drafts))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, path],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1 and len(outputs.pop()) > 1000


def test_a_lemma_with_one_sense_gives_bundles_only_without_the_need_for_within_lemma():
    events = [Event(event_id=f"{w}{n}", sense=f"{w}#1", text=f"{w} {n}") for w in "ab" for n in range(2)]
    assert build(events, Plan()).left_out == {"no_within_lemma_negative": 4}
    assert len(build(events, Plan(within=0)).drafts) == 4


@pytest.mark.parametrize("wrong", [{"style": "pairs"}, {"within": -1}, {"within": 0, "sibling": 0, "cross_lemma": 0}])
def test_impossible_plan_is_refused(wrong):
    with pytest.raises(BadConfig):
        Plan(**wrong)
    with pytest.raises(BadConfig):
        build([], Plan(), limit=0)


EVENT = {"event_id": "e", "sense": "bank#1", "text": "a river"}


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ({"sense": "bank#1", "text": "t"}, "event_id"),
        (EVENT | {"event_id": ""}, "event_id"),
        (EVENT | {"sense": " "}, "sense"),
        (EVENT | {"text": None}, "text"),
        (EVENT | {"event_id": "first"}, "event_id"),
        (EVENT | {"kind": "poem"}, "kind"),
        (EVENT | {"group": [1]}, "group[0]"),
        (EVENT | {"siblings": "bank#2"}, "siblings"),
        ([1], None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
    ids=str,
)
def test_bad_event_is_refused_with_line_and_field(tmp_path, line, field):
    path = written(tmp_path, EVENT | {"event_id": "first", "embedding": [0.5]}, b"", line)
    with pytest.raises(BadData) as caught:
        event_files.read(path)
    assert caught.value.facts["line"] == 3
    assert caught.value.facts["field"] == field


def test_no_event_and_no_bundle_are_clear_errors_and_leave_no_file(tmp_path):
    out = tmp_path / "out.jsonl"
    for rows, said in (([], "holds no event"), ([EVENT], "no_positive 1")):
        with pytest.raises(BadData, match=said):
            publish.own_bundles(written(tmp_path, *rows), out, Plan(), unwatched, limit=None)
    assert not out.exists()
    with pytest.raises(BadConfig):
        publish.own_bundles(written(tmp_path, EVENT), tmp_path / "events.jsonl", Plan(), unwatched, limit=None)


# --- the real WordNet --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The folder and stats of `crucible corpus wordnet --out DIR`."""
    out = tmp_path_factory.mktemp("wordnet") / "corpus"
    return out, publish.wordnet_corpus(out, Plan(), unwatched, folder=None, limit=None)


@pytest.fixture(scope="module")
def events(corpus):
    return event_files.read(corpus[0] / "events.jsonl")


def test_wordnet_3_0_gives_the_known_counts(corpus):
    """crucible.md names 117,659 synsets, 42,586 examples (of three words and more) and 8,106 bundles."""
    made = corpus[1]
    assert made.version == "3.0"
    assert sum(made.synsets.values()) == 117_659
    assert made.examples - made.examples_left_out["too_short"] == pytest.approx(42_586, abs=10)
    assert made.build.bundles == made.build.available == 8_017
    assert made.build.negatives_per_bundle.min >= 4


def test_corpus_bundles_are_read_unique_and_never_ask_twice(corpus):
    found = list(read.read(corpus[0] / "bundles.jsonl"))
    assert len(found) == 8_017
    assert len({signature(bundle) for bundle in found}) == len(found)
    assert all("within_lemma" in bundle.sources for bundle in found)


def test_corpus_says_what_it_was_made_of(corpus):
    out, made = corpus
    assert sorted(path.name for path in out.iterdir()) == ["NOTICE", "bundles.jsonl", "events.jsonl", "stats.json"]
    assert json.loads((out / "stats.json").read_text())["inputs"] == made.inputs
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in (out / "NOTICE").read_text()


def test_bundles_of_the_event_file_are_those_of_the_corpus(corpus, tmp_path):
    publish.own_bundles(corpus[0] / "events.jsonl", tmp_path / "b.jsonl", Plan(), unwatched, limit=None)
    assert (tmp_path / "b.jsonl").read_bytes() == (corpus[0] / "bundles.jsonl").read_bytes()


def test_shipped_sample_is_what_its_command_makes(events):
    built = build(events, Plan(within=4, sibling=0, cross_lemma=0), limit=2000)
    assert b"".join(line + b"\n" for line in lines(built)) == SAMPLE.read_bytes()
    assert len(built.drafts) == 2000


def test_a_folder_that_is_not_empty_is_refused_before_anything_is_read(corpus):
    with pytest.raises(Mistake, match="not empty"):
        publish.wordnet_corpus(corpus[0], Plan(), unwatched, folder=None, limit=None)


@pytest.mark.slow
def test_wordnet_3_0_gives_the_known_count_of_gloss_bundles():
    """crucible.md names 30,697."""
    found = senses.harvest(wordnet.read(wordnet.locate(None)), glosses=True).events
    ids = {event.event_id for event in found}
    assert len(ids) == len(found)
    assert len({(event.sense, event.synset) for event in found}) == len({event.sense for event in found})
    built = build(found, Plan(style="glosses", sibling=0, cross_lemma=0))
    assert len(built.drafts) == 30_701
    assert {event.kind for draft in built.drafts for event, _ in draft.negatives} == {"gloss"}
