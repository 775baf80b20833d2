"""The embedding cache gives back what went in, bit for bit, whatever writes, kills or damages it meanwhile."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast import cache, encode, segments
from crucible.errors import BadConfig, BadData

COUNTING = '''
import hashlib, os, sys, time
import numpy as np
from crucible.contrast import encode

class Counting:
    """Vectors from a digest of the text: any process makes the same ones, and it says how many it made."""
    id, digest, cheap = "counting", "c" * 64, False
    def __init__(self, pause=0.0):
        self.made, self.pause = [], pause
    def encode(self, texts, progress=None):
        self.made += texts
        time.sleep(self.pause)
        rows = [np.frombuffer(hashlib.sha512(text.encode()).digest(), dtype=np.uint8)[:24] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 24) / 7
'''
scope: dict = {}
exec(COUNTING, scope)
Counting = scope["Counting"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings" / Counting.digest


def texts(count: int, name: str = "text") -> list[str]:
    return [f"{name} {i}" for i in range(count)]


def fill(some: list[str]) -> tuple[np.ndarray, encode.EncodeReport]:
    return encode.vectors_for(Counting(), some)


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# --- finding -----------------------------------------------------------------------------------------------------------

# Many keys share their first eight bytes, so that the search has to look on; real digests never do.
crowded = st.builds(lambda a, b: bytes([a]) * 8 + bytes([b]) * 24, st.integers(0, 1), st.integers(0, 9))
keys_and_others = st.lists(crowded | st.binary(min_size=32, max_size=32), min_size=1, max_size=40, unique=True)


@given(keys_and_others, st.lists(crowded, max_size=10), st.integers(0, 3))
def test_lookup_agrees_with_a_dictionary(known: list[bytes], others: list[bytes], step: int) -> None:
    wanted = known[::-1] + others + known[::-1][:step]

    def array(some: list[bytes]) -> segments.Keys:
        return np.frombuffer(b"".join(some), dtype=np.uint8).reshape(-1, 32)

    keys = array(known)[segments.sorted_order(array(known))]
    assert [row.tobytes() for row in keys] == sorted(known)
    table = {own: place for place, own in enumerate(sorted(known))}
    assert segments.KeyIndex(keys).find(array(wanted)).tolist() == [table.get(own, -1) for own in wanted]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=30))
def test_equal_texts_have_equal_keys_and_others_do_not(some: list[str]) -> None:
    keys = segments.keys_of(some)
    assert len({row.tobytes() for row in keys}) == len(set(some))
    assert not segments.all_distinct(keys) or len(set(some)) == len(some)


def test_half_a_surrogate_pair_is_refused_as_data() -> None:
    with pytest.raises(BadData, match="surrogate"):
        segments.keys_of(["fine", "\ud800"])


# --- storing -----------------------------------------------------------------------------------------------------------


def test_second_call_encodes_nothing_and_gives_the_same_bits() -> None:
    first, report = fill(texts(5000))
    assert (report.unique, report.cached, report.encoded, report.warnings) == (5000, 0, 5000, ())
    again = Counting()
    second, report = encode.vectors_for(again, texts(5000)[::-1])
    assert (report.cached, report.encoded, again.made) == (5000, 0, [])
    assert second[::-1].tobytes() == first.tobytes()
    assert first.tobytes() == encode.unit_vectors(Counting(), texts(5000)).tobytes()


def test_only_new_texts_are_encoded_and_each_only_once() -> None:
    fill(texts(10))
    encoder = Counting()
    vectors, report = encode.vectors_for(encoder, [*texts(12), "text 11", "text 3", "text 11"])
    assert sorted(encoder.made) == ["text 10", "text 11"]
    assert (report.unique, report.cached, report.encoded) == (12, 10, 2)
    assert (
        (vectors[11] == vectors[12]).all() and (vectors[11] == vectors[14]).all() and (vectors[3] == vectors[13]).all()
    )


def test_without_the_cache_nothing_is_read_or_written(folder: Path) -> None:
    encoder = Counting()
    encode.vectors_for(encoder, [*texts(3), "text 0"], cache=False)
    assert sorted(encoder.made) == texts(3) and not folder.exists()


def test_cheap_encoders_are_not_stored(folder: Path) -> None:
    encode.vectors_for(encode.by_name("hashing:16"), texts(3))
    assert not folder.parent.exists()


def test_another_digest_never_gets_the_stored_vectors() -> None:
    fill(texts(5))
    other = Counting()
    other.digest = "d" * 64
    assert encode.vectors_for(other, texts(5))[1].encoded == 5


def test_many_small_segments_become_one_and_lose_nothing(folder: Path) -> None:
    for start in range(60):
        fill([f"text {start}", f"text {start + 1}"])
    assert len(list(folder.glob("*.seg"))) <= 17
    encoder = Counting()
    assert encode.vectors_for(encoder, texts(61))[1].encoded == 0
    assert (encode.vectors_for(encoder, texts(61))[0] == encode.unit_vectors(Counting(), texts(61))).all()
    assert sum(entry.texts for entry in cache.stats()) == 61


def test_nobody_merges_while_another_process_does(folder: Path) -> None:
    fill(texts(1))
    with (folder / cache.LOCK).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        for start in range(1, 30):
            fill([f"text {start}"])
        assert len(list(folder.glob("*.seg"))) == 30
    assert fill(texts(31))[1].encoded == 1 and len(list(folder.glob("*.seg"))) == 1


def test_segments_merged_between_listing_and_opening_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(5):
        fill([f"text {start}"])
    opening = segments.Segment

    def merged_meanwhile(path: Path) -> segments.Segment:
        monkeypatch.setattr(cache, "Segment", opening)
        old = [opening(one) for one in folder.glob("*.seg")]
        segments.merge(folder, old)
        for one in old:
            one.path.unlink()
        return opening(path)

    monkeypatch.setattr(cache, "Segment", merged_meanwhile)
    _, report = fill(texts(5))
    assert (report.encoded, report.warnings) == (0, ())


def test_vectors_of_odd_length_are_checked_too() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    keys = segments.keys_of(texts(50))
    store = cache.Store("odd", "f" * 64)
    store.put(keys, vectors)
    out = np.zeros_like(vectors)
    assert cache.Store("odd", "f" * 64).load(keys, out).all() and out.tobytes() == vectors.tobytes()
    (path,) = store.folder.glob("*.seg")
    damage(path, -30)
    assert cache.Store("odd", "f" * 64).load(keys, out).sum() == 49


def test_vectors_that_are_not_finite_are_never_stored(folder: Path) -> None:
    broken = Counting()
    broken.encode = lambda some, progress=None: np.full((len(some), 3), np.inf, dtype=np.float32)
    with pytest.raises(BadData, match="hello"):
        encode.vectors_for(broken, ["hello"])
    assert not folder.exists()


def test_progress_counts_stored_texts_and_ends_at_the_total() -> None:
    fill(texts(30))
    seen: list[tuple[int, int]] = []
    encode.vectors_for(Counting(), texts(40), lambda done, total: seen.append((done, total)))
    assert seen[0] == (30, 40) and {total for _, total in seen} == {40}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_location_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache.location() == tmp_path / "cache"
    monkeypatch.delenv("CRUCIBLE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.location() == tmp_path / "xdg" / "crucible"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    assert cache.location() == tmp_path / "someone" / ".cache" / "crucible"


# --- damage ------------------------------------------------------------------------------------------------------------

HEADER, KEYS, CHECKS = 20, 64 + 5, 64 + 32 * 10 + 3
VECTORS = 64 + 40 * 10 + 24 * 4 * 3 + 1  # in the fourth row


@pytest.mark.parametrize(("at", "lost"), [(HEADER, 10), (KEYS, 10), (CHECKS, 10), (VECTORS, 1), (-1, 1)])
def test_damaged_segment_is_noticed_and_encoded_again(folder: Path, at: int, lost: int) -> None:
    right, _ = fill(texts(10))
    (path,) = folder.glob("*.seg")
    damage(path, at)
    vectors, report = fill(texts(10))
    assert vectors.tobytes() == right.tobytes()
    assert report.encoded == lost and len(report.warnings) == 1 and "damaged" in report.warnings[0]
    vectors, report = fill(texts(10))
    assert (report.encoded, report.warnings, vectors.tobytes()) == (0, (), right.tobytes())


@pytest.mark.parametrize("size", [0, 10, 64, 200, 64 + 40 * 10, 1300])
def test_segment_cut_short_is_noticed_and_encoded_again(folder: Path, size: int) -> None:
    right, _ = fill(texts(10))
    (path,) = folder.glob("*.seg")
    os.truncate(path, size)
    vectors, report = fill(texts(10))
    assert vectors.tobytes() == right.tobytes() and report.encoded == 10 and len(report.warnings) == 1


def test_damage_is_not_laundered_by_merging(folder: Path) -> None:
    right, _ = fill(texts(10))
    damage(next(folder.glob("*.seg")), VECTORS)
    for start in range(20):
        fill([f"more {start}"])
    vectors, report = fill(texts(10))
    assert vectors.tobytes() == right.tobytes() and report.encoded == 1


def test_cache_that_cannot_be_made_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "file"))
    _, report = fill(texts(5000))
    assert report.encoded == 5000 and len(report.warnings) == 1 and "not kept" in report.warnings[0]


# --- other processes ---------------------------------------------------------------------------------------------------


def child(program: str, *, limit: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COUNTING + limit + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_full_disk_while_caching_does_not_stop_the_evaluation() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    program = (
        "v, r = encode.vectors_for(Counting(), [f'text {i}' for i in range(5000)])\n"
        "print(v.shape, r.encoded, len(r.warnings), 'not kept' in r.warnings[0])\n"
    )
    process = child(program, limit=limit)
    out, err = process.communicate(timeout=120)
    assert (out.strip(), err) == ("(5000, 24) 5000 1 True", "")
    assert fill(texts(3))[1].encoded == 3  # nothing half-written is believed


def test_kill_during_encoding_keeps_what_was_stored(folder: Path) -> None:
    program = "encode.vectors_for(Counting(pause=0.5), [f'text {i}' for i in range(20000)])\n"
    process = child(program)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("*.seg"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    vectors, report = fill(texts(20000))
    assert report.cached >= 4096 and report.cached + report.encoded == 20000 and report.warnings == ()
    assert vectors.tobytes() == encode.unit_vectors(Counting(), texts(20000)).tobytes()


def test_processes_fill_the_cache_at_once(folder: Path) -> None:
    """Many tiny writes from several processes, so that writing, merging and reading meet."""
    program = (
        "for i in range(40):\n"
        "    encode.vectors_for(Counting(), [f'text {i}', f'text {i + 1}', f'own {os.getpid()} {i}'])\n"
        "r = encode.vectors_for(Counting(), [f'text {i}' for i in range(41)])[1]\n"
        "print(r.encoded, r.warnings)\n"
    )
    for process in [child(program) for _ in range(3)]:
        out, err = process.communicate(timeout=300)
        assert (out.strip(), err) == ("0 ()", "")
    vectors, report = fill(texts(41))
    assert report.encoded == 0 and not list(folder.glob("*.damaged"))
    assert vectors.tobytes() == encode.unit_vectors(Counting(), texts(41)).tobytes()


# --- housekeeping ------------------------------------------------------------------------------------------------------


def make(name: str, letter: str, count: int, days_ago: float) -> str:
    encoder = Counting()
    encoder.id, encoder.digest = name, letter * 64
    encode.vectors_for(encoder, texts(count))
    then = time.time() - days_ago * 86400
    os.utime(cache.embeddings() / encoder.digest / cache.ABOUT, (then, then))
    return encoder.digest


def test_stats_say_what_is_there_most_recently_used_first() -> None:
    make("old", "a", 10, 9)
    make("new", "b", 5, 1)
    found = cache.stats()
    assert [(entry.id, entry.texts, entry.segments, entry.damaged) for entry in found] == [
        ("new", 5, 1, 0),
        ("old", 10, 1, 0),
    ]
    on_disk = sum(p.stat().st_size for p in cache.embeddings().rglob("*") if p.is_file())
    assert sum(entry.bytes for entry in found) == on_disk


def test_a_hit_counts_as_use() -> None:
    make("counting", "c", 3, 9)
    fill(texts(3))
    assert cache.prune(older_than_days=1).removed == []


@pytest.mark.parametrize(
    ("how", "gone"),
    [
        ({"older_than_days": 5}, ["a"]),
        ({"older_than_days": 0}, ["a", "b"]),
        ({"encoder": "new"}, ["b"]),
        ({"encoder": "bbbbbb"}, ["b"]),
        ({"encoder": "new", "older_than_days": 5}, []),
        ({"max_bytes": 2000}, ["a"]),
        ({"max_bytes": 0}, ["a", "b"]),
        ({"max_bytes": 1 << 30}, []),
        ({"everything": True}, ["a", "b"]),
    ],
    ids=str,
)
def test_prune_removes_what_was_asked_and_a_dry_run_removes_nothing(how: dict, gone: list[str]) -> None:
    digests = {make("old", "a", 10, 9), make("new", "b", 5, 1)}
    said = cache.prune(**how, dry_run=True)
    assert {entry.digest for entry in cache.stats()} == digests
    done = cache.prune(**how)
    assert [entry.digest[0] for entry in done.removed] == [entry.digest[0] for entry in said.removed] == gone
    assert done.freed_bytes == said.freed_bytes == sum(entry.bytes for entry in done.removed)
    assert {entry.digest for entry in cache.stats()} == {entry.digest for entry in done.kept}
    assert {path.name[0] for path in cache.embeddings().iterdir()} == {"a", "b"} - set(gone)


def test_prune_of_an_unknown_encoder_names_the_known_ones() -> None:
    make("old", "a", 1, 1)
    with pytest.raises(BadConfig) as caught:
        cache.prune(encoder="bbb")
    assert "old" in caught.value.fix


def test_leftovers_of_killed_processes_go_and_running_ones_stay(folder: Path) -> None:
    fill(texts(3))
    stale, fresh = folder / ".x.seg.0123.part", folder / ".y.seg.4567.part"
    for path in (stale, fresh):
        path.write_bytes(b"x" * 100)
    os.utime(stale, (0, 0))
    assert cache.prune(older_than_days=1000).freed_bytes == 100
    assert fresh.exists() and not stale.exists() and fill(texts(3))[1].encoded == 0
