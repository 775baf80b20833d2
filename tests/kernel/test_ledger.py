"""Nothing that was acknowledged is ever lost or changed unseen: tampering, races, kill -9 and full disks."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from crucible.errors import BadData, IntegrityBroken, MachineryFailed
from crucible.kernel import digest, ledger

BODIES = [{"a": 1}, "text with é and \n in it", [1.5, None, True], {}, {"deep": {"er": "x" * 300}}, 7, "last"]


def written(bodies: list[object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        ledger.append_all(Path(folder) / "l", [("kind", body) for body in bodies])
        return (Path(folder) / "l").read_bytes()


DATA = written(BODIES)
LINES = DATA.splitlines(keepends=True)
HEAD = json.loads(LINES[-1])["digest"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def python(program: str, *args: object) -> list[str]:
    return [sys.executable, "-c", program, *map(str, args)]


def refused_line(data: bytes) -> int:
    """The line that verify names; the write path must refuse the same bytes or repair a torn tail, never build on them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l"
        path.write_bytes(data)
        with pytest.raises(IntegrityBroken) as caught:
            ledger.verify(path)
        line = caught.value.facts["line"]
        assert f"{path}: line {line} " in caught.value.message
        assert path.read_bytes() == data
        return int(str(line))


def line_of(offset: int) -> int:
    return DATA[:offset].count(b"\n") + 1


# --- the chain ---------------------------------------------------------------------------------------------------------


def test_lines_come_back_in_order_with_their_bodies_and_chained(path: Path) -> None:
    given_back = [ledger.append(path, "one", BODIES[0]), *ledger.append_all(path, [("two", b) for b in BODIES[1:]])]
    lines = list(ledger.read(path))
    assert lines == given_back
    assert [line.entry.body for line in lines] == BODIES
    assert [line.entry.n for line in lines] == list(range(1, len(BODIES) + 1))
    assert [line.entry.prev for line in lines] == [ledger.GENESIS, *(line.digest for line in lines[:-1])]
    assert [line.entry.kind for line in ledger.read(path, "one")] == ["one"]
    assert ledger.verify(path) == ledger.Head(len(BODIES), lines[-1].digest)


def test_a_line_can_be_checked_with_nothing_but_json_and_sha256() -> None:
    for raw in LINES:
        found = re.fullmatch(rb'\{"digest":"([0-9a-f]{64})","entry":(.*)\}\n', raw)
        assert found
        assert hashlib.sha256(found[2]).hexdigest().encode() == found[1]
        assert json.loads(raw)["entry"] == json.loads(found[2])


def test_an_empty_file_is_an_empty_ledger(path: Path) -> None:
    path.touch()
    assert ledger.verify(path) == ledger.Head(0, ledger.GENESIS)
    assert ledger.append(path, "k", 1).entry.n == 1


def test_an_empty_batch_writes_nothing(path: Path) -> None:
    assert ledger.append_all(path, []) == []
    assert path.read_bytes() == b""


# --- tampering ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_single_byte_edit_is_detected_in_its_line(offset: int, change: int) -> None:
    edited = bytearray(DATA)
    edited[offset] ^= change
    assert refused_line(bytes(edited)) == line_of(offset)


@given(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=5))
def test_any_inserted_bytes_are_detected(offset: int, inserted: bytes) -> None:
    edited = DATA[:offset] + inserted + DATA[offset:]
    assume(edited != DATA)
    assert refused_line(edited) in (line_of(offset), line_of(offset) - 1 or 1)


@given(st.integers(0, len(LINES) - 2), st.data())
def test_a_middle_line_cut_short_is_detected(index: int, data: st.DataObject) -> None:
    line = LINES[index]
    start = data.draw(st.integers(0, len(line) - 1))
    end = data.draw(st.integers(start + 1, len(line)))
    cut = b"".join([*LINES[:index], line[:start] + line[end:], *LINES[index + 1 :]])
    assert refused_line(cut) == index + 1


@pytest.mark.parametrize("index", range(len(LINES) - 1))
def test_a_deleted_line_is_detected(index: int) -> None:
    assert refused_line(b"".join(LINES[:index] + LINES[index + 1 :])) == index + 1


@given(st.lists(st.integers(0, len(LINES) - 1), min_size=2, max_size=2, unique=True))
def test_two_swapped_lines_are_detected(places: list[int]) -> None:
    first, second = sorted(places)
    lines = list(LINES)
    lines[first], lines[second] = lines[second], lines[first]
    assert refused_line(b"".join(lines)) == first + 1


@pytest.mark.parametrize("index", range(len(LINES)))
def test_a_doubled_line_is_detected(index: int) -> None:
    assert refused_line(b"".join([*LINES[: index + 1], LINES[index], *LINES[index + 1 :]])) == index + 2


def forged(raw: bytes) -> bytes:
    """The line with another body and a digest that fits it: what a careful forger writes."""
    entry = json.loads(raw)["entry"] | {"body": "forged"}
    text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()
    return b'{"digest":"%s","entry":%s}\n' % (hashlib.sha256(text).hexdigest().encode(), text)


@pytest.mark.parametrize("index", range(len(LINES) - 1))
def test_a_line_forged_with_a_fitting_digest_is_detected_by_the_next_line(index: int) -> None:
    assert refused_line(b"".join([*LINES[:index], forged(LINES[index]), *LINES[index + 1 :]])) == index + 2


def test_two_ledgers_cannot_be_spliced() -> None:
    other = written(["x"] * len(BODIES)).splitlines(keepends=True)
    assert refused_line(b"".join(LINES[:3] + other[3:])) == 4


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_a_published_head_detects_a_cut_tail(path: Path, kept: int) -> None:
    path.write_bytes(b"".join(LINES[:kept]))
    assert ledger.verify(path).lines == kept  # a shorter ledger is a valid ledger ...
    with pytest.raises(IntegrityBroken, match=HEAD):
        ledger.verify(path, HEAD)  # ... unless somebody has seen the longer one


def test_a_published_head_detects_a_forged_last_line(path: Path) -> None:
    path.write_bytes(b"".join([*LINES[:-1], forged(LINES[-1])]))
    ledger.verify(path)
    with pytest.raises(IntegrityBroken, match="published head"):
        ledger.verify(path, HEAD)


def test_a_published_head_still_holds_after_later_lines(path: Path) -> None:
    path.write_bytes(DATA)
    ledger.append(path, "later", 1)
    assert ledger.verify(path, HEAD).lines == len(LINES) + 1
    assert ledger.verify(path, ledger.GENESIS).lines == len(LINES) + 1


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_nothing_is_ever_appended_behind_a_broken_last_line(offset: int, change: int) -> None:
    edited = bytearray(DATA)
    edited[offset] ^= change
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l"
        path.write_bytes(edited)
        try:
            ledger.append(path, "k", 1)
        except IntegrityBroken as error:
            assert error.facts["line"] == line_of(offset)
            assert path.read_bytes() == edited
        else:  # an earlier line is verify's to find; a last line without its end is repaired, which is said
            with pytest.raises(IntegrityBroken):
                ledger.verify(path, HEAD)


@pytest.mark.parametrize(
    "junk", [b'{"weights": [1, 2, 3]}', b"a\nb\n", b"a\nb", b"\n", b"\x00" * 5000, b"\xff\xfe\n", b"[]\n", b"{}\n"]
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    for attempt in (ledger.verify, ledger.repair, lambda p: ledger.append(p, "k", 1)):
        with pytest.raises(IntegrityBroken, match="line 1 "):
            attempt(path)
        assert path.read_bytes() == junk
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@given(st.binary(max_size=400))
def test_reading_any_bytes_ends_in_a_head_or_in_a_named_line(junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l"
        path.write_bytes(junk)
        if junk:
            with pytest.raises(IntegrityBroken, match="line 1 "):
                ledger.verify(path)


@pytest.mark.parametrize(
    "entry", [b"1", b"{}", b'{"n":1}', b"[" * 5000, b'{"n":1,"prev":"","at":"","kind":"","body":0,"x":1}']
)
def test_a_line_with_a_fitting_digest_that_is_no_entry_is_refused(path: Path, entry: bytes) -> None:
    path.write_bytes(b'{"digest":"%s","entry":%s}\n' % (digest.of_bytes(entry).encode(), entry))
    with pytest.raises(IntegrityBroken, match="line 1 is not an entry"):
        ledger.verify(path)


def test_a_line_of_100_megabytes_is_refused_without_reading_it_all(path: Path) -> None:
    path.write_bytes(DATA)
    with path.open("ab") as stream:
        stream.truncate(len(DATA) + (100 << 20))
    program = (
        "import sys; from pathlib import Path; from crucible.errors import IntegrityBroken\n"
        "from crucible.kernel import ledger\n"
        "try: ledger.verify(Path(sys.argv[1]))\n"
        "except IntegrityBroken as error: print(error.facts['line'])\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run(python(program, path), capture_output=True, text=True, check=True)
    line, kilobytes = map(int, done.stdout.split())
    assert line == len(LINES) + 1
    assert kilobytes < 90 << 10


# --- what is refused before anything is written ------------------------------------------------------------------------


@pytest.mark.parametrize("body", [float("nan"), {"a": [float("inf")]}, {1: 2}, "\ud800", b"bytes"])
def test_a_body_that_json_cannot_say_changes_nothing(path: Path, body: object) -> None:
    path.write_bytes(DATA)
    with pytest.raises(BadData):
        ledger.append_all(path, [("k", 1), ("k", body)])
    assert path.read_bytes() == DATA


def test_the_longest_line_is_taken_and_read_and_one_byte_more_is_refused(path: Path) -> None:
    frame = len(written([""]))
    ledger.append(path, "kind", "x" * (ledger.MAX_LINE - frame))
    assert path.stat().st_size == ledger.MAX_LINE
    before = ledger.verify(path)
    with pytest.raises(BadData, match="over the limit"):
        ledger.append(path, "kind", "x" * (ledger.MAX_LINE - frame + 1))
    assert ledger.verify(path) == before


def test_bodies_keep_the_order_of_their_keys(path: Path) -> None:
    ledger.append(path, "k", {"b": 1, "a": {"d": 1, "c": 2}})
    (line,) = ledger.read(path)
    assert json.dumps(line.entry.body) == '{"b": 1, "a": {"d": 1, "c": 2}}'


def test_a_missing_ledger_or_a_folder_is_bad_data(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(BadData, match=str(path)):
            ledger.verify(path)
    with pytest.raises(MachineryFailed, match="cannot be appended to"):
        ledger.append(tmp_path, "k", 1)


# --- several writers and readers ---------------------------------------------------------------------------------------

WRITER = """
import random, sys
from pathlib import Path
from crucible.kernel import ledger
path, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
rng = random.Random(who)
for batch in range(count):
    size = rng.choice([1, 1, 2, 5])
    items = [("w", {"who": who, "batch": batch, "of": size, "fill": "x" * rng.choice([0, 100, 70_000])}) for _ in range(size)]
    ledger.append_all(path, items)
"""


def test_several_processes_never_interleave_and_lose_nothing(path: Path) -> None:
    writers, batches = 4, 25
    running = [subprocess.Popen(python(WRITER, path, who, batches)) for who in range(writers)]
    assert [process.wait() for process in running] == [0] * writers
    lines = list(ledger.read(path))
    assert ledger.verify(path).lines == len(lines)
    assert not list(path.parent.glob("*.torn-*"))
    expected: dict[str, list[int]] = {str(who): [] for who in range(writers)}
    at = 0
    while at < len(lines):  # a batch stands together, and each writer's batches stand in its order
        body = lines[at].entry.body
        same = [(line.entry.body["who"], line.entry.body["batch"]) for line in lines[at : at + body["of"]]]
        assert same == [(body["who"], body["batch"])] * body["of"]
        expected[body["who"]].append(body["batch"])
        at += body["of"]
    assert all(order == list(range(batches)) for order in expected.values())


def test_threads_of_one_process_never_interleave(path: Path) -> None:
    def work(who: int) -> None:
        for step in range(15):
            ledger.append_all(path, [("k", [who, step])] * 2)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.verify(path).lines == 4 * 15 * 2


def test_a_reader_never_sees_half_a_line_of_a_writer_at_work(path: Path) -> None:
    path.touch()
    writer = subprocess.Popen(python(WRITER, path, "w", 60))
    seen, rounds = 0, 0
    while writer.poll() is None:
        now = sum(1 for _ in ledger.read(path))  # raises on a line that is not whole
        assert now >= seen
        seen, rounds = now, rounds + 1
    assert writer.wait() == 0
    assert rounds > 3
    assert ledger.verify(path).lines >= seen


def test_a_reader_waits_for_a_writer_in_the_middle_of_a_line(path: Path) -> None:
    path.write_bytes(b"".join(LINES[:-1]))
    seen: list[object] = []

    def look() -> None:
        try:
            seen.append(sum(1 for _ in ledger.read(path)))
        except IntegrityBroken as error:
            seen.append(error)

    reader = threading.Thread(target=look)
    with path.open("ab", buffering=0) as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # as every writer does
        stream.write(LINES[-1][:100])
        reader.start()
        time.sleep(0.2)  # time enough to see half a line, for a reader that does not wait
        stream.write(LINES[-1][100:])
    reader.join()
    assert seen == [len(LINES)]


def test_a_reader_is_not_disturbed_by_lines_that_come_while_it_reads(path: Path) -> None:
    path.write_bytes(DATA)
    count = 0
    for count, _ in enumerate(ledger.read(path), 1):
        ledger.append(path, "more", count)
    assert count == len(LINES)


# --- one batch, one fsync ----------------------------------------------------------------------------------------------


def test_a_batch_costs_one_fsync_of_the_file_after_the_last_byte(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(DATA)
    real, sizes = os.fsync, []

    def counted(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(os, "fsync", counted)
    ledger.append_all(path, [("k", n) for n in range(50)])
    assert sizes == [path.stat().st_size]


def test_a_new_ledger_also_syncs_the_folder_that_names_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, []

    def noted(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    ledger.append(path, "k", 1)
    assert set(synced) == {path.stat().st_ino, path.parent.stat().st_ino}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_or_sigterm_in_the_middle_of_a_batch_leaves_none_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    path.write_bytes(DATA)

    def interrupted(handle: int) -> None:
        raise stop

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(stop):
        ledger.append_all(path, [("k", n) for n in range(50)])
    assert path.read_bytes() == DATA


# --- crashes -----------------------------------------------------------------------------------------------------------


def check_repair(path: Path, torn: bytes) -> None:
    """After the next write: earlier lines untouched, the torn bytes beside, and a line that says both."""
    reports = [line.entry.body for line in ledger.read(path, ledger.REPAIRED)]
    kept = {report["kept_as"]: path.with_name(report["kept_as"]).read_bytes() for report in reports}
    for report in reports:
        assert report["sha256"] == digest.of_bytes(kept[report["kept_as"]])
        assert report["bytes"] == len(kept[report["kept_as"]])
    assert torn in kept.values()


@given(st.integers(0, len(DATA)))
@example(len(DATA))
@example(len(DATA) - 1)
@example(0)
@example(1)
def test_a_write_cut_at_any_byte_is_repaired_and_reported_and_earlier_lines_stay(length: int) -> None:
    whole = DATA[: DATA[:length].rfind(b"\n") + 1]
    torn = DATA[len(whole) : length]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "l"
        path.write_bytes(DATA[:length])
        if torn:
            with pytest.raises(IntegrityBroken, match=f"line {line_of(length)} .*torn"):
                ledger.verify(path)
        ledger.append(path, "next", 1)
        assert path.read_bytes().startswith(whole)
        assert ledger.verify(path).lines == whole.count(b"\n") + (2 if torn else 1)
        if torn:
            check_repair(path, torn)
        else:
            assert [p.name for p in Path(folder).iterdir()] == ["l"]


def test_repair_alone_reports_once_and_then_has_nothing_to_do(path: Path) -> None:
    path.write_bytes(DATA + b'{"digest":"torn')
    report = ledger.repair(path)
    assert report is not None and report.entry.kind == ledger.REPAIRED
    check_repair(path, b'{"digest":"torn')
    after = path.read_bytes()
    assert ledger.repair(path) is None
    assert path.read_bytes() == after


def test_torn_bytes_are_on_the_disk_before_they_are_written_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(DATA + b'{"digest":"torn')
    real, synced = os.fsync, []

    def noted(handle: int) -> None:
        at = os.fstat(handle)
        synced.append((at.st_ino, at.st_size, path.read_bytes() == DATA + b'{"digest":"torn'))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    ledger.repair(path)
    torn = path.with_name(f"{path.name}.torn-1").stat()
    assert synced[0] == (torn.st_ino, torn.st_size, True)
    assert synced[-1] == (path.stat().st_ino, path.stat().st_size, False)


def test_torn_bytes_of_several_crashes_are_all_kept(path: Path) -> None:
    for n in range(3):
        with path.open("ab") as stream:
            stream.write(b'{"digest":"%d' % n)
        ledger.append(path, "k", n)
    assert sorted(p.read_bytes() for p in path.parent.glob("*.torn-*")) == [b'{"digest":"%d' % n for n in range(3)]
    assert ledger.verify(path).lines == 6


KILL_EVERYWHERE = """
import io, os, signal, shutil, sys
from pathlib import Path
from crucible.errors import IntegrityBroken
from crucible.kernel import digest, ledger

folder, data, torn = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), sys.argv[3].encode()

def die(): os.kill(os.getpid(), signal.SIGKILL)

def at_line(number):      # dies before the number-th line of ledger.py that is executed
    left = [number]
    def trace(frame, event, arg):
        if frame.f_code.co_filename != ledger.__file__: return None
        if event == "line":
            left[0] -= 1
            if not left[0]: die()
        return trace
    sys.settrace(trace)

def at_byte(number):      # dies with `number` bytes of the report written over the torn ones
    real = os.pwrite
    def short(handle, piece, at):
        if number > len(piece): return real(handle, piece, at)
        real(handle, piece[:number], at)
        die()
    os.pwrite = short

def at_append(number):    # dies with `number` bytes of the new line written
    class Mortal(io.FileIO):
        def write(self, piece):
            if number > len(piece): return super().write(piece)
            super().write(piece[:number])
            die()
    os.fdopen = lambda handle, mode, buffering: Mortal(handle, mode)

def check(path, finished):
    raw = path.read_bytes()
    assert raw.startswith(data), "an earlier line changed"
    ledger.append(path, "after", 1)
    lines = list(ledger.read(path))
    kinds = [line.entry.kind for line in lines]
    assert kinds[-1] == "after" and kinds.count("new") <= 1 and (not finished or "new" in kinds), kinds
    if torn:
        reports = [line.entry.body for line in lines if line.entry.kind == ledger.REPAIRED]
        for r in reports:
            assert r["sha256"] == digest.of_file(path.with_name(r["kept_as"])), "a report of something else"
        kept = [p.read_bytes() for p in path.parent.glob("*.torn-*")]
        assert torn in kept, "the torn bytes are gone"
        assert len(reports) >= 1, "the loss is not reported"

def once(name, arm):
    path = folder / name / "l"
    path.parent.mkdir()
    path.write_bytes(data + torn)
    child = os.fork()
    if not child:
        arm()
        ledger.append(path, "new", {"x": 1})
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    finished = os.WIFEXITED(status)
    assert finished or os.WTERMSIG(status) == signal.SIGKILL
    check(path, finished)
    shutil.rmtree(path.parent)
    return finished

kills = 0
while not once(f"line-{kills}", lambda: at_line(kills + 1)): kills += 1
for name, arm in [("append", at_append), ("report", at_byte)][: 2 if torn else 1]:
    size = 0
    while not once(f"{name}-{size}", lambda: arm(size)): size += 5; kills += 1
print(kills)
"""


@pytest.mark.parametrize(
    ("data", "torn"),
    [(DATA, ""), (DATA, '{"digest":"01'), (DATA, "x" * 900), (b"", '{"dig'), (b"", "")],
    ids=["clean", "torn", "torn longer than the report", "torn first line", "new"],
)
def test_kill_9_before_every_statement_loses_nothing_and_hides_nothing(tmp_path: Path, data: bytes, torn: str) -> None:
    source = tmp_path / "data"
    source.write_bytes(data)
    done = subprocess.run(python(KILL_EVERYWHERE, tmp_path, source, torn), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30  # it did die at many places


APPEND_FOREVER = """
import os, random, sys
from pathlib import Path
from crucible.kernel import ledger
path, rng = Path(sys.argv[1]), random.Random(sys.argv[2])
fill = "x" * (4 << 20)
while True:
    line = ledger.append(path, "k", fill[: rng.choice([10, 10_000, 1 << 20, 4 << 20])])
    os.write(1, b"%d\\n" % line.entry.n)
"""


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_at_most_the_line_being_written(path: Path) -> None:
    rng = random.Random(5)
    last = 0
    for round_ in range(25):
        child = subprocess.Popen(python(APPEND_FOREVER, path, round_), stdout=subprocess.PIPE)
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline())]
        time.sleep(rng.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        acknowledged += [int(number) for number in child.stdout.read().split()]
        child.wait()
        child.stdout.close()
        raw = path.read_bytes()
        torn = raw[raw.rfind(b"\n") + 1 :]
        whole = raw.count(b"\n")
        assert acknowledged[0] > last, "a line was acknowledged twice"
        assert 0 <= whole - acknowledged[-1] <= 1, "more than the line being written is at stake"
        ledger.append(path, "next", round_)
        head = ledger.verify(path)
        assert head.lines == whole + (2 if torn else 1)
        if torn:
            check_repair(path, torn)
        if path.stat().st_size > 60 << 20:
            path.unlink()
            head = ledger.Head(0, ledger.GENESIS)
            for beside in path.parent.glob("*.torn-*"):
                beside.unlink()
        last = head.lines


# --- full disk ---------------------------------------------------------------------------------------------------------

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from crucible.errors import MachineryFailed
from crucible.kernel import ledger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    ledger.append_all(path, [("k", "y" * 500), ("k", "z" * 100_000)])
except MachineryFailed as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 1, 300, 650, 700, 50_000, 100_000])
def test_a_full_disk_leaves_the_earlier_lines_and_a_line_end(path: Path, room: int) -> None:
    path.write_bytes(DATA)
    done = subprocess.run(python(FULL_DISK, path, len(DATA) + room), capture_output=True, text=True, check=True)
    assert "cannot be appended to: File too large; earlier lines are unchanged" in done.stdout
    assert path.read_bytes() == DATA
    ledger.append(path, "k", "when there is room again")
    assert ledger.verify(path, HEAD).lines == len(LINES) + 1


@pytest.mark.parametrize("room", [0, 20, 100, 300])
def test_a_disk_too_full_for_the_repair_leaves_the_tear_to_be_repaired_later(path: Path, room: int) -> None:
    torn = b'{"digest":"half a li'
    path.write_bytes(DATA + torn)
    done = subprocess.run(python(FULL_DISK, path, len(DATA) + room), capture_output=True, text=True, check=True)
    assert "cannot be appended to" in done.stdout
    assert path.read_bytes().startswith(DATA)
    ledger.append(path, "k", "when there is room again")
    ledger.verify(path, HEAD)
    check_repair(path, torn)


def test_a_disk_too_full_to_keep_the_torn_bytes_leaves_the_file_as_it_is(path: Path) -> None:
    torn = b'{"digest":"' + b"x" * 50_000
    path.write_bytes(DATA + torn)
    done = subprocess.run(python(FULL_DISK, path, 1000), capture_output=True, text=True, check=True)
    assert "cannot be appended to" in done.stdout
    assert path.read_bytes() == DATA + torn
    assert [p.name for p in path.parent.iterdir()] == [path.name]
