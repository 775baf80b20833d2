"""Mining: what may be a negative, what a pass is, and that neither threads, order, chunks nor a kill change a byte of it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.contrast import encode, read, textset
from crucible.contrast.bundle import normalised, signature
from crucible.contrast.corpus import events as event_files
from crucible.contrast.corpus.events import Event
from crucible.contrast.mining import lineups, mine
from crucible.contrast.mining.candidates import Catalogue, Known, choose, text_rows
from crucible.contrast.mining.mined import MiningStats, Settings, targets
from crucible.contrast.score import score
from crucible.errors import BadConfig, BadData, Mistake

ENCODER = encode.by_name("hashing:64")
TOPICS = "river money water branch tree bank deposit loan shore cliff boat sail account teller slope grass fish net"
WORDS = TOPICS.split()


def world(senses: int = 60, examples: int = 4, seed: int = 1, glosses: bool = False) -> list[Event]:
    """Words with two to four senses, each with several examples and a group; as like each other as real ones are."""
    rng = random.Random(seed)
    made = []
    for sense in range(senses):
        lemma, pos = f"word{sense // 3}", ("noun", "verb")[sense // 3 % 2]
        name = f"{lemma}#{sense % 3}"
        about = {
            "sense": name,
            "lemma": lemma,
            "pos": pos,
            "synset": f"s{sense // 2 if sense % 7 == 0 else sense + 1000}",
        }
        topic = rng.sample(WORDS, 5)
        for place in range(examples):
            text = f"{lemma} " + " ".join(rng.choice(topic) for _ in range(rng.randint(3, 7)))
            made.append(Event(event_id=f"{name}/e{place}", text=text, group=(f"g{sense % 9}",), **about))
        if glosses:
            gloss = "the " + " ".join(topic)
            made.append(Event(event_id=f"{name}/g", text=gloss, kind="gloss", group=(f"g{sense % 9}",), **about))
    return made


@contextlib.contextmanager
def quiet(_: str) -> Iterator[Any]:
    yield lambda done, total: None


def write_events(path: Path, events: list[Event]) -> Path:
    with path.open("wb") as stream:
        event_files.write(stream, events)
    return path


def run(
    folder: Path, events: list[Event], existing: Path | None = None, at_once: int = 50, **options: Any
) -> MiningStats:
    folder.mkdir(exist_ok=True, parents=True)
    source = write_events(folder / "events.jsonl", events)
    asked = Settings(**{"threshold": 0.0, **options} if "calibrate_to" not in options and existing is None else options)
    return mine.mine(source, ENCODER, asked, targets(folder / "o.jsonl"), quiet, existing=existing, at_once=at_once)


def lines(folder: Path, name: str = "o.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def both(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "o.jsonl").read_bytes(), (folder / "o.quarantine.jsonl").read_bytes()


# --- the recount: everything once more, in plain Python and NumPy, from the definitions ---------------------------------


def measured(query: np.ndarray, row: np.ndarray) -> float:
    """In the order of sums that topk.py documents, because the hashing encoder makes ties."""
    products = np.zeros(-(-len(query) // 32) * 32)
    products[: len(query)] = query.astype(np.float64) * row.astype(np.float64)
    sums = np.zeros(32)
    for block in range(0, len(products), 32):
        sums = sums + products[block : block + 32]
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return float(sums[0])


def forbidden(anchor: Event, events: list[Event]) -> set[str]:
    """Normalised texts that mean the same as the anchor: its sense, and every synset that its sense names."""
    names = {anchor.sense} | {event.meaning for event in events if event.sense == anchor.sense}
    return {normalised(event.text) for event in events if {event.meaning, event.sense} & names}


def naive_pools(anchor: Event, events: list[Event], answer: str, asked: Settings) -> list[list[tuple[float, Event]]]:
    vector = dict(
        zip((e.event_id for e in events), encode.unit_vectors(ENCODER, [e.text for e in events]), strict=True)
    )
    ordered = sorted((e for e in events if e.shape == answer), key=lambda e: e.event_id)
    without = forbidden(anchor, events)
    own = {normalised(e.text) for e in ordered if e.word == anchor.word}

    def nearest(found: list[Event], banned: set[str], k: int) -> list[tuple[float, Event]]:
        first: dict[str, Event] = {}
        for event in found:
            if normalised(event.text) not in banned:
                first.setdefault(normalised(event.text), event)
        ranked = [(measured(vector[anchor.event_id], vector[e.event_id]), e) for e in first.values()]
        return sorted(ranked, key=lambda pair: (-pair[0], pair[1].event_id))[:k]

    related = [e for e in ordered if set(e.groups) & set(anchor.groups) or e.sense in anchor.siblings]
    within = nearest([e for e in ordered if e.word == anchor.word], without, asked.top_k_within) if asked.within else []
    sibling = nearest(related, without | own, asked.top_k_sibling) if asked.sibling else []
    used = without | own | {normalised(e.text) for _, e in sibling}
    same_pos = [e for e in ordered if e.pos == anchor.pos]
    return [within, sibling, nearest(same_pos, used, asked.top_k_cross) if asked.cross_lemma else []]


MASK = (1 << 64) - 1


def mixed(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def naive_lineups(own: str, sizes: list[int], asked: Settings) -> list[list[tuple[int, ...]]]:
    """For every lineup the places drawn from each pool: splitmix64, keyed by seed, candidate and number."""
    key = int.from_bytes(hashlib.sha256(f"lineups {asked.seed} {own}".encode()).digest()[:8], "little")
    drawn = []
    for number in range(asked.lineups):
        state = mixed(key ^ mixed(number + 1))
        lineup = []
        for size, count in zip(sizes, asked.asked, strict=True):
            places = list(range(size))
            for step in range(min(size, count)):
                state = state + 0x9E3779B97F4A7C15 & MASK
                other = step + ((mixed(state) >> 32) * (size - step) >> 32)
                places[step], places[other] = places[other], places[step]
            lineup.append(tuple(sorted(places[: min(size, count)])))
        drawn.append(lineup)
    return drawn


def recount(own: str, anchor: Event, positive: Event, events: list[Event], asked: Settings) -> dict[str, Any]:
    pools = naive_pools(anchor, events, positive.shape, asked)
    a, p = encode.unit_vectors(ENCODER, [anchor.text, positive.text])
    target = measured(a, p)
    different: dict[tuple[tuple[int, ...], ...], float] = {}
    for lineup in naive_lineups(own, [len(pool) for pool in pools], asked):
        found = [pool[place][0] for pool, places in zip(pools, lineup, strict=True) for place in places]
        different.setdefault(tuple(lineup), max(found) - target)
    hardest = max(different, key=lambda lineup: different[lineup])
    negatives = [pool[place][1].event_id for pool, places in zip(pools, hardest, strict=True) for place in places]
    passes = sum(danger >= asked.threshold for danger in different.values())
    return {"passes": passes, "tested": len(different), "danger": different[hardest], "negatives": negatives}


@pytest.mark.parametrize("glosses", [False, True])
def test_every_pass_count_danger_and_negative_comes_out_again_from_the_definitions(tmp_path, glosses):
    events = world(36, glosses=glosses)
    asked = Settings(
        threshold=0.12, top_k_cross=12, cross_lemma=2, sibling=2, within=2, style="glosses" if glosses else None
    )
    stats = run(tmp_path, events, **{name: getattr(asked, name) for name in asked.__struct_fields__})
    by_id = {event.event_id: event for event in events}
    spread = dict.fromkeys(range(asked.lineups + 1), 0)
    chosen = choose(Catalogue(events, asked.style), Known(()), per_sense=4, seed=42).candidates
    ordered = sorted(events, key=lambda event: event.event_id)
    expected = {c.id: recount(c.id, ordered[c.anchor], ordered[c.positive], events, asked) for c in chosen}
    for found in expected.values():
        spread[found["passes"]] += 1
    assert stats.tested == len(chosen) and stats.pass_distribution == {str(k): v for k, v in spread.items()}
    written = lines(tmp_path) + lines(tmp_path, "o.quarantine.jsonl")
    assert {1, 2} & set(spread) and sum(0 < n < 10 for n in (e["passes"] for e in expected.values())) > 5
    assert len(written) + stats.duplicates["within_output"] == sum(e["passes"] > 0 for e in expected.values())
    for line in written:
        about, again = line["metadata"], expected[line["bundle_id"]]
        assert (about["passes"], about["lineups_tested"]) == (again["passes"], again["tested"])
        assert about["danger"] == pytest.approx(again["danger"], abs=1e-12)
        assert [one["event_id"] for one in line["negatives"]] == again["negatives"]
        assert about["lineup_passes"] == about["passes"] and about["strength"] == lineups.strength(
            about["passes"], again["tested"]
        )
        assert by_id[line["anchor"]["event_id"]].text == line["anchor"]["text"]


# --- what is never a negative -------------------------------------------------------------------------------------------

texts = st.sampled_from(
    ["the bank", "The  Bank", "a loan", "a LOAN", "the shore", "deep water", "a fish net", "green grass"]
)
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 2),
        texts,
        st.sampled_from([None, "s1", "s2", "s3"]),
        st.sampled_from([(), ("g",), ("g", "h")]),
        st.sampled_from([(), ("a#0",), ("b#1", "c#2")]),
        st.sampled_from([None, "noun"]),
        st.sampled_from(["example", "example", "gloss"]),
    ),
    min_size=3,
    max_size=24,
)


@given(rows, st.sampled_from(["examples", "glosses"]), st.integers(1, 4))
def test_pools_hold_the_nearest_that_may_be_negatives_and_nothing_else(made, style, k):
    events = [
        Event(
            event_id=f"{i:02}",
            sense=f"{lemma}#{sense}",
            text=text,
            synset=synset,
            group=group,
            siblings=siblings,
            pos=pos,
            kind=kind,
        )
        for i, (lemma, sense, text, synset, group, siblings, pos, kind) in enumerate(made)
    ]
    asked = Settings(threshold=0.0, within=1, sibling=1, cross_lemma=1, top_k_within=k, top_k_sibling=k, top_k_cross=k)
    catalogue = Catalogue(events, style)
    candidates = choose(catalogue, Known(()), per_sense=3, seed=0).candidates
    strings, places = text_rows(catalogue, candidates)
    space = mine.Space(catalogue, encode.unit_vectors(ENCODER, strings), places, asked)
    for one in candidates:
        anchor = catalogue.events[one.anchor]
        got = space.pools([one.anchor])[0]
        answer = "gloss" if style == "glosses" else "example"
        expected = naive_pools(anchor, events, answer, asked)
        assert [[catalogue.events[n].event_id for n in pool[0]] for pool in got] == [
            [e.event_id for _, e in p] for p in expected
        ]
        held = [normalised(catalogue.events[number].text) for pool in got for number in pool[0]]
        assert len(set(held)) == len(held) and not set(held) & forbidden(anchor, events)
        assert anchor.sense == catalogue.events[one.positive].sense and normalised(anchor.text) in forbidden(
            anchor, events
        )


def test_no_lineup_holds_what_means_or_reads_the_same_or_one_text_twice(tmp_path):
    events = world(45)
    twin = [Event(event_id="z1", sense="other#1", text=events[0].text.upper(), pos="noun", synset="elsewhere")]
    synonym = [
        Event(event_id="z2", sense="synonym#1", text="word0 said otherwise", pos="noun", synset=events[0].synset)
    ]
    run(tmp_path, events + twin + synonym, min_passes=1, threshold=-2.0)
    by_id = {event.event_id: event for event in events + twin + synonym}
    written = lines(tmp_path)
    assert any(line["anchor"]["sense"] == events[0].sense for line in written)
    for line in written:
        without = forbidden(by_id[line["anchor"]["event_id"]], events + twin + synonym)
        held = [normalised(one["text"]) for one in line["negatives"]]
        assert not set(held) & without and len(set(held)) == len(held)
        for one in line["negatives"]:
            same_word = by_id[one["event_id"]].word == by_id[line["anchor"]["event_id"]].word
            assert same_word == (one["source"] == "within_lemma")


# --- repeatable ---------------------------------------------------------------------------------------------------------


def test_order_of_events_and_size_of_parts_change_no_byte_but_the_seed_does(tmp_path):
    events = world()
    shuffled = events.copy()
    random.Random(9).shuffle(shuffled)
    run(tmp_path / "a", events, threshold=0.12)
    run(tmp_path / "b", shuffled, threshold=0.12, at_once=7)
    run(tmp_path / "c", events, threshold=0.12, seed=43)
    assert both(tmp_path / "a") == both(tmp_path / "b")
    assert both(tmp_path / "a") != both(tmp_path / "c")
    assert not list((tmp_path / "a").glob(".*"))


KILLED = """
import contextlib, os, signal, sys
from pathlib import Path
from crucible.contrast import encode
from crucible.contrast.mining import mine
from crucible.contrast.mining.mined import Settings, targets
folder, after, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
@contextlib.contextmanager
def watch(what):
    def told(done, total):
        if what == "mining" and done >= after:
            os.kill(os.getpid(), signal.SIGKILL)
    yield told
mine.mine(folder / "events.jsonl", encode.by_name("hashing:64"), Settings(threshold=0.12, seed=seed), targets(folder / "o.jsonl"), watch, at_once=20)
"""


def killed(folder: Path, after: int, seed: int = 42) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder, str(after), str(seed)], capture_output=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_run_killed_twice_ends_with_the_bytes_of_one_left_alone(tmp_path):
    events = world()
    whole = run(tmp_path / "whole", events, threshold=0.12, at_once=20)
    (tmp_path / "cut").mkdir()
    write_events(tmp_path / "cut" / "events.jsonl", events)
    killed(tmp_path / "cut", 40)
    assert not list((tmp_path / "cut").glob("o.*"))
    work = tmp_path / "cut" / ".o.jsonl.mining"
    assert len(list(work.glob("*.part"))) == 2
    killed(tmp_path / "cut", 100)
    damaged = work / "00001.part"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    stats = run(tmp_path / "cut", events, threshold=0.12, at_once=20)
    assert both(tmp_path / "cut") == both(tmp_path / "whole")
    assert any("4 of the candidates'" in note for note in stats.notes) and not any(
        "earlier" in note for note in whole.notes
    )
    assert not work.exists() and stats.pass_distribution == whole.pass_distribution


def test_work_of_other_settings_or_events_is_never_taken_up(tmp_path):
    events = world()
    related = [
        msgspec.structs.replace(event, group=("g0", "g1")) for event in events
    ]  # the same texts, so the same vectors
    for name, changed, options in (("seed", events, {"seed": 7}), ("events", related, {})):
        folder = tmp_path / name
        folder.mkdir()
        write_events(folder / "events.jsonl", events)
        killed(folder, 100)
        stats = run(folder, changed, threshold=0.12, at_once=20, **options)
        run(tmp_path / f"{name}-clean", changed, threshold=0.12, at_once=20, **options)
        assert both(folder) == both(tmp_path / f"{name}-clean")
        assert not any("earlier" in note for note in stats.notes)


def test_two_runs_never_share_an_output(tmp_path):
    work = tmp_path / ".o.jsonl.mining"
    work.mkdir()
    with (work / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Mistake, match="another run is mining"):
            run(tmp_path, world(12))


# --- threshold, known bundles, limits ------------------------------------------------------------------------------------


def tier3(folder: Path, *, seed: int = 5) -> Path:
    """An existing tier 3 in the rows format, with other tiers in the file."""
    rng = random.Random(seed)
    path = folder / "t3.jsonl"
    rows = [
        {
            "id": f"r{i}",
            "tier": ("tier1_easy", "tier3_adversarial")[i % 2],
            "anchor_text": f"word{i} " + " ".join(rng.sample(WORDS, 4)),
            "positive_text": f"word{i} " + " ".join(rng.sample(WORDS, 3)),
            "negative_texts": [" ".join(rng.sample(WORDS, 4)) for _ in range(5)],
            "sense_id": f"word{i % 7}#0",
        }
        for i in range(41)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("q", [0.0, 0.3, 1.0])
def test_the_calibrated_threshold_is_the_quantile_of_tier_3_under_the_mining_model(tmp_path, q):
    path = tier3(tmp_path)
    hard = [bundle for bundle in read.read(path) if bundle.tier == "tier3_adversarial"]
    items = textset.build(hard)
    dangers = score(items, encode.unit_vectors(ENCODER, items.texts)).danger
    stats = run(tmp_path, world(), existing=path, calibrate_to=q)
    assert stats.threshold == pytest.approx(float(np.quantile(dangers, q)), abs=1e-12)
    assert (stats.threshold_source, stats.calibration.bundles) == ("calibrated", len(hard))
    assert all(line["metadata"]["danger"] >= stats.threshold for line in lines(tmp_path))


def test_a_danger_that_equals_the_threshold_is_a_pass(tmp_path):
    run(tmp_path / "a", world(), threshold=0.12)
    last = lines(tmp_path / "a")[-1]
    found = last["metadata"]["danger"]
    run(tmp_path / "b", world(), threshold=found, min_passes=1)
    again = {line["bundle_id"]: line["metadata"] for line in lines(tmp_path / "b")}
    assert again[last["bundle_id"]]["danger"] == found and again[last["bundle_id"]]["passes"] >= 1


def test_without_a_choice_the_threshold_is_the_median_of_tier_3_or_zero(tmp_path):
    stats = run(tmp_path / "a", world(), existing=tier3(tmp_path))
    assert (stats.calibration.quantile, stats.threshold_source) == (0.5, "default, calibrated")
    folder = tmp_path / "b"
    folder.mkdir()
    source = write_events(folder / "events.jsonl", world())
    stats = mine.mine(source, ENCODER, Settings(), targets(folder / "o.jsonl"), quiet)
    assert (stats.threshold, stats.threshold_source) == (0.0, "default")


def test_what_tier_3_already_holds_is_not_found_again_by_sense_or_by_pair(tmp_path):
    events = world()
    first = run(tmp_path / "first", events, threshold=-2.0, min_passes=1)
    mined = lines(tmp_path / "first")
    known = tmp_path / "known.jsonl"
    known.write_text("".join(json.dumps(line) + "\n" for line in mined[:40]))
    senses = {line["anchor"]["sense"] for line in mined[:40]}
    pairs = {(line["anchor"]["text"], line["positive"]["text"]) for line in mined[:40]}
    by_sense = run(tmp_path / "sense", events, existing=known, threshold=-2.0, min_passes=1)
    assert not senses & {line["anchor"]["sense"] for line in lines(tmp_path / "sense")}
    assert by_sense.duplicates["sense"] == sum(line["anchor"]["sense"] in senses for line in mined) > 40
    by_pair = run(tmp_path / "pair", events, existing=known, threshold=-2.0, min_passes=1, allow_known_senses=True)
    again = lines(tmp_path / "pair")
    assert not pairs & {(line["anchor"]["text"], line["positive"]["text"]) for line in again}
    assert by_pair.duplicates["signature"] == 40 and by_pair.written == first.written - 40
    signatures = {signature(bundle) for bundle in read.read(known)}
    assert not signatures & {signature(bundle) for bundle in read.read(tmp_path / "pair" / "o.jsonl")}


def test_a_tier_3_without_senses_is_told_apart_by_its_texts(tmp_path):
    events = world()
    run(tmp_path / "first", events, threshold=-2.0, min_passes=1)
    mined = lines(tmp_path / "first")
    flat = tmp_path / "flat.jsonl"
    flat.write_text(
        "".join(
            json.dumps({"anchor": m["anchor"]["text"].upper(), "positive": m["positive"]["text"], "negatives": ["x"]})
            + "\n"
            for m in mined[:30]
        )
    )
    stats = run(tmp_path / "again", events, existing=flat, threshold=-2.0, min_passes=1)
    assert stats.duplicates == {"signature": 30, "sense": 0, "within_output": 0}
    assert any("name no sense" in note for note in stats.notes)


def test_one_text_pair_under_two_words_is_written_once(tmp_path):
    events = world(30)
    for place, text in enumerate(("both bank and loan here", "again both loan and bank")):
        for word in ("word0", "word2"):
            events.append(
                Event(event_id=f"{word}#x/e{place}", sense=f"{word}#x", lemma=word, pos="noun", synset="sx", text=text)
            )
    stats = run(tmp_path, events, threshold=-2.0, min_passes=1)
    found = [(line["anchor"]["text"], line["positive"]["text"]) for line in lines(tmp_path)]
    assert len(set(found)) == len(found) and stats.duplicates["within_output"] == 2


def test_max_output_keeps_the_hardest_and_max_candidates_a_sample_of_all(tmp_path):
    events = world()
    stats = run(tmp_path / "all", events, threshold=0.12)
    everything = lines(tmp_path / "all")
    order = [(-m["metadata"]["passes"], -m["metadata"]["danger"], m["bundle_id"]) for m in everything]
    assert order == sorted(order) and stats.written == len(everything) > 20
    few = run(tmp_path / "few", events, threshold=0.12, max_output=7)
    assert lines(tmp_path / "few") == everything[:7]
    assert (few.accepted, few.written, few.left_out["max_output"]) == (stats.accepted, 7, stats.written - 7)
    some = run(tmp_path / "some", events, threshold=0.12, max_candidates=60)
    part = lines(tmp_path / "some")
    assert some.candidates == 60 and some.left_out["max_candidates"] == stats.candidates - 60
    assert part == [line for line in everything if line["bundle_id"] in {m["bundle_id"] for m in part}]


def test_low_passes_go_to_the_quarantine_and_all_files_can_be_read_again(tmp_path):
    stats = run(tmp_path, world(), threshold=0.12, min_passes=5)
    accepted, low = list(read.read(tmp_path / "o.jsonl")), list(read.read(tmp_path / "o.quarantine.jsonl"))
    assert {bundle.metadata["passes"] >= 5 for bundle in accepted} == {True}
    assert {1 <= bundle.metadata["passes"] < 5 for bundle in low} == {True}
    assert {bundle.metadata["source"] for bundle in accepted} == {"tier3_organic_miner"}
    assert {bundle.tier for bundle in accepted} == {"tier3_adversarial"} and {bundle.tier for bundle in low} == {None}
    assert all(set(bundle.sources or ()) <= {"within_lemma", "sibling", "cross_lemma"} for bundle in accepted + low)
    assert stats.quarantined == len(low) == sum(stats.pass_distribution[str(n)] for n in range(1, 5))
    assert stats.candidates == stats.accepted + sum(stats.rejected.values())
    assert stats.mining_pass_rate == stats.accepted / stats.tested and sum(stats.strength.values()) == stats.tested
    items = textset.build(accepted)
    again = score(items, encode.unit_vectors(ENCODER, items.texts)).danger
    np.testing.assert_allclose(again, [bundle.danger for bundle in accepted], rtol=0, atol=1e-9)
    on_disk = json.loads((tmp_path / "o.stats.json").read_text())
    assert (
        on_disk["outputs"][str(tmp_path / "o.jsonl")] == hashlib.sha256((tmp_path / "o.jsonl").read_bytes()).hexdigest()
    )
    assert "mined_at" in on_disk and "mined_at" not in accepted[0].metadata


# --- lineups ------------------------------------------------------------------------------------------------------------


def test_too_few_distinct_lineups_are_a_rejection_and_never_a_pass(tmp_path):
    """Within-lemma negatives only: a word with one other text has one lineup, drawn ten times over."""
    events = world(30, examples=6)
    for place, text in enumerate(("lonely bank here", "lonely loan there")):
        events.append(Event(event_id=f"lonely#1/e{place}", sense="lonely#1", text=text, pos="noun"))
    events.append(Event(event_id="lonely#2/e0", sense="lonely#2", text="lonely cliff", pos="noun"))
    stats = run(tmp_path, events, threshold=-2.0, within=2, sibling=0, cross_lemma=0, min_passes=1)
    assert (
        stats.effective_lineups["min"] == 1
        and stats.effective_lineups["too_few"] == stats.rejected["too_few_lineups"] == 2
    )
    assert not any(
        line["anchor"]["sense"] == "lonely#1" for line in lines(tmp_path) + lines(tmp_path, "o.quarantine.jsonl")
    )
    assert all(line["metadata"]["lineups_tested"] >= 5 for line in lines(tmp_path))
    assert stats.tested == stats.candidates - 2 - stats.rejected.get("no_within_lemma_negative", 0)


def test_if_nobody_has_enough_lineups_the_run_is_an_error_with_numbers(tmp_path):
    with pytest.raises(BadData, match=r"none of \d+ candidates has 5 distinct lineups, the most is 1 "):
        run(tmp_path, world(30, examples=2), within=8, sibling=0, cross_lemma=0)
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


@given(st.integers(1, 30), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**64 - 1))
@settings(max_examples=30)
def test_a_lineup_draws_without_replacement_and_repeats_count_once(count, within, cross, key):
    if not within + cross:
        return
    pools = np.asarray([0, within, within, within + cross])
    sims = np.linspace(0.1, 0.9, within + cross)
    outcome = lineups.line_up(
        np.asarray([key], dtype=np.uint64), np.zeros(1), np.zeros(1, dtype=np.int32), pools, sims, (2, 1, 2), count, 0.5
    )
    chosen = [place for place in outcome.negatives[0].tolist() if place >= 0]
    assert len(set(chosen)) == len(chosen) == min(2, within) + min(2, cross)
    assert sum(place < within for place in chosen) == min(2, within)
    possible = max(1, within * (within - 1) // 2) * max(1, cross * (cross - 1) // 2)
    assert 1 <= outcome.tested[0] <= min(count, possible) and outcome.passes[0] <= outcome.tested[0]
    assert outcome.danger[0] == max(sims[chosen])


def test_every_place_of_a_pool_is_drawn_about_as_often_as_any_other():
    n, size = 4000, 20
    keys = np.asarray(
        [int.from_bytes(hashlib.sha256(str(i).encode()).digest()[:8], "little") for i in range(n)], dtype=np.uint64
    )
    pools = np.asarray([0, 0, 0, size])
    outcome = lineups.line_up(keys, np.zeros(n), np.zeros(n, dtype=np.int32), pools, np.zeros(size), (0, 0, 3), 1, 0.0)
    often = np.bincount(outcome.negatives.ravel(), minlength=size)
    assert often.sum() == 3 * n and abs(often - 3 * n / size).max() < 5 * np.sqrt(3 * n / size)


def test_strength_is_the_share_of_the_lineups():
    assert [lineups.strength(passes, 10) for passes in (10, 8, 7, 5, 4, 2, 1, 0)] == [
        "ultra", "ultra", "mid", "mid", "low", "low", "none", "none",
    ]  # fmt: skip
    assert (lineups.strength(4, 5), lineups.strength(3, 5), lineups.strength(1, 5)) == ("ultra", "mid", "low")


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"threshold": float("nan")}, "threshold of nan"),
        ({"threshold": float("inf")}, "threshold of inf"),
        ({"calibrate_to": 1.5}, "quantile 1.5"),
        ({"calibrate_to": float("nan")}, "quantile nan"),
        ({"threshold": 0.1, "calibrate_to": 0.5}, "both a threshold"),
        ({"min_passes": 11}, "at least 11 passes of 10"),
        ({"min_passes": 0}, "at least 0 passes"),
        ({"lineups": 0}, "0 lineups"),
        ({"within": 0, "sibling": 0, "cross_lemma": 0}, "make no lineup"),
        ({"within": -1}, "make no lineup"),
        ({"top_k_cross": 2}, "--top-k-cross 2 for lineups of 3"),
        ({"candidates_per_sense": 0}, "--candidates-per-sense 0"),
        ({"max_output": 0}, "--max-output 0"),
        ({"max_candidates": -1}, "--max-candidates -1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(options, said):
    with pytest.raises(BadConfig, match=said):
        Settings(**options)


def test_a_run_that_could_not_end_well_is_refused_before_it_begins(tmp_path):
    source = write_events(tmp_path / "events.jsonl", world(12))

    class Never:
        id, digest, cheap = "never", "0" * 64, True

        def encode(self, texts: Any, progress: Any = None) -> Any:
            raise AssertionError("the long work began")

    def attempt(output: Path, existing: Path | None = None, **options: Any) -> None:
        mine.mine(source, Never(), Settings(**options), targets(output, **files), quiet, existing=existing)

    files: dict[str, Path] = {}
    with pytest.raises(BadConfig, match="--output and --events are both"):
        attempt(source)
    with pytest.raises(BadConfig, match="needs the bundles"):
        attempt(tmp_path / "o.jsonl", calibrate_to=0.5)
    with pytest.raises(BadConfig, match="no style is called 'poems'"):
        attempt(tmp_path / "o.jsonl", style="poems")
    with pytest.raises(Mistake, match="no folder"):
        attempt(tmp_path / "none" / "o.jsonl")
    known = tier3(tmp_path)
    with pytest.raises(BadConfig, match="--output and --existing-tier3 are both"):
        attempt(known, known)
    files["quarantine"] = tmp_path / "o.jsonl"
    with pytest.raises(BadConfig, match="--quarantine and --output are both"):
        attempt(tmp_path / "o.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "t3.jsonl"]


@pytest.mark.parametrize(
    ("events", "options", "said"),
    [
        ([], {}, "holds no event"),
        (world(12, examples=1), {"style": "examples"}, "12 events give no candidate of style examples"),
        (world(12), {"style": "glosses"}, "give no candidate of style glosses"),
    ],
)
def test_events_that_give_no_candidate_are_named(tmp_path, events, options, said):
    with pytest.raises(BadData, match=said):
        run(tmp_path, events, **options)


def test_a_tier_3_that_knows_every_sense_gives_new_pairs_of_them_and_says_so(tmp_path):
    run(tmp_path / "first", world(12), threshold=-2.0, min_passes=1, candidates_per_sense=1)
    known = tmp_path / "first" / "o.jsonl"
    stats = run(tmp_path / "again", world(12), existing=known, threshold=-2.0, candidates_per_sense=50)
    assert stats.accepted > 0 and any("new pairs of them are mined" in note for note in stats.notes)
    pairs = [
        {(one.sense, one.anchor, one.positive) for one in read.read(path)}
        for path in (known, tmp_path / "again" / "o.jsonl")
    ]
    assert not pairs[0] & pairs[1]


def test_a_tier_3_that_knows_every_pair_leaves_nothing_to_mine(tmp_path):
    run(tmp_path / "first", world(12), threshold=-2.0, min_passes=1, candidates_per_sense=50)
    with pytest.raises(BadData, match="already holds"):
        run(
            tmp_path / "again",
            world(12),
            existing=tmp_path / "first" / "o.jsonl",
            threshold=-2.0,
            candidates_per_sense=50,
        )


def test_nothing_accepted_is_an_empty_output_that_says_so(tmp_path):
    stats = run(tmp_path, world(20), threshold=5.0)
    assert (stats.accepted, stats.mining_pass_rate, (tmp_path / "o.jsonl").read_bytes()) == (0, 0.0, b"")
    assert any("the output is empty" in note for note in stats.notes)
    assert json.loads((tmp_path / "o.stats.json").read_text())["accepted"] == 0
