"""A file is read whole or refused by name, and written whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible import documents
from crucible.errors import BadConfig, BadData, MachineryFailed, Mistake

OLD = b"what was there before\n"


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inner: dict[str, list[int]] = {}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def child(program: str, *args: object) -> subprocess.Popen[str]:
    head = "import os, signal, sys\nfrom pathlib import Path\nfrom crucible import documents\nfrom crucible.errors import *\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + program, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# --- writing -----------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("w") / "file"
    documents.write_bytes(path, data)
    assert documents.read_bytes(path, "a file") == data
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("crash", [RuntimeError, KeyboardInterrupt, SystemExit, Mistake])
@pytest.mark.parametrize("there", [True, False])
def test_a_crash_in_the_block_leaves_the_old_file_and_no_draft(path: Path, crash: type, there: bool) -> None:
    if there:
        path.write_bytes(OLD)
    with pytest.raises(crash), documents.writing(path) as stream:
        stream.write(b"half of the new")
        stream.flush()
        raise crash("x", fix="y") if crash is Mistake else crash()
    assert names(path.parent) == (["file"] if there else [])
    assert not there or path.read_bytes() == OLD


def test_readers_see_the_old_file_until_the_new_one_is_whole(path: Path) -> None:
    path.write_bytes(OLD)
    with documents.writing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == OLD
    assert path.read_bytes() == b"new"


def test_two_writers_at_once_leave_one_whole_file(path: Path) -> None:
    contents = [bytes([65 + n]) * 100_000 for n in range(8)]
    threads = [threading.Thread(target=documents.write_bytes, args=(path, data)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert names(path.parent) == ["file"]


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_writer_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(OLD)
    real, synced = os.fsync, []

    def noted(handle: int) -> None:
        at = os.fstat(handle)
        synced.append(("folder" if stat.S_ISDIR(at.st_mode) else at.st_size, path.read_bytes()))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    documents.write_bytes(path, b"new")
    assert synced == [(3, OLD), ("folder", b"new")]


FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    if sys.argv[2] == "file":
        documents.write_bytes(Path(sys.argv[1]), b"x" * int(sys.argv[3]))
    else:
        with documents.new_folder(Path(sys.argv[1])) as folder:
            (folder / "first").write_bytes(b"fits")
            documents.write_bytes(folder / "second", b"x" * int(sys.argv[3]))
except MachineryFailed as error:
    print(error)
"""


@pytest.mark.parametrize("size", [1001, 1_000_000])
def test_a_full_disk_leaves_the_old_file_and_no_draft(path: Path, size: int) -> None:
    path.write_bytes(OLD)
    said = child(FULL, path, "file", size).communicate()[0]
    assert f"{path}: cannot be written: File too large; what was there before is unchanged" in said
    assert path.read_bytes() == OLD
    assert names(path.parent) == ["file"]


def test_a_full_disk_leaves_no_new_folder_and_no_draft(path: Path) -> None:
    assert "cannot be written: File too large" in child(FULL, path, "folder", 5000).communicate()[0]
    assert names(path.parent) == []


KILLED = """
with documents.writing(Path(sys.argv[1])) as stream:
    stream.write(b"x" * 100_000)
    stream.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_kill_9_in_the_middle_leaves_the_old_file(path: Path) -> None:
    path.write_bytes(OLD)
    process = child(KILLED, path)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert path.read_bytes() == OLD
    documents.write_bytes(path, b"new")  # what the kill left beside it does not disturb the next writer
    assert path.read_bytes() == b"new"


KILL_EVERYWHERE = """
folder, number = Path(sys.argv[1]), 0
while True:
    number += 1
    path = folder / str(number) / "file"
    path.parent.mkdir()
    path.write_bytes(b"old")
    if not (pid := os.fork()):
        left = [number]
        def trace(frame, event, arg):
            if frame.f_code.co_filename != documents.__file__: return None
            left[0] -= event == "line"
            if not left[0]: os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        documents.write_bytes(path, b"new")
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert path.read_bytes() in (b"old", b"new")
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0 and path.read_bytes() == b"new"
        break
print(number)
"""


def test_kill_9_before_every_statement_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    process = child(KILL_EVERYWHERE, tmp_path)
    said = process.communicate()[0]
    assert process.returncode == 0
    assert int(said) > 15  # it did die at many places


def test_a_full_device_is_the_machinerys_fault_and_stays_a_device() -> None:
    before = Path("/dev/full").stat().st_rdev
    with pytest.raises(MachineryFailed, match="No space left on device"):
        documents.write_bytes(Path("/dev/full"), b"x")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert Path("/dev/full").stat().st_rdev == before


def test_a_device_is_written_to_and_never_replaced(path: Path) -> None:
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    documents.write_bytes(path, b"through the pipe")
    reader.join()
    assert got == [b"through the pipe"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_link_keeps_pointing_where_it_points(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.write_bytes(OLD)
    link.symlink_to("far/target")
    documents.write_bytes(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    assert names(tmp_path) == ["far", "link"] and names(tmp_path / "far") == ["target"]


def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    documents.write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"new" and (tmp_path / "link").is_symlink()


def test_a_private_file_stays_private(path: Path) -> None:
    documents.write_bytes(path, b"secret", mode=0o600)
    documents.write_bytes(path, b"another")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "文" * 85, "-", " ", "a\nb", "\x1b[31m"])
def test_every_name_the_file_system_takes_can_be_written(tmp_path: Path, name: str) -> None:
    documents.write_bytes(tmp_path / name, b"x")
    assert names(tmp_path) == [name]
    with documents.new_folder(tmp_path / "sub" / name) as folder:
        (folder / "a").touch()
    assert names(tmp_path / "sub") == [name]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for place in (tmp_path / "missing" / "x", tmp_path / "folder", tmp_path / "file" / "x", tmp_path / ("x" * 256)):
        with pytest.raises(MachineryFailed, match=str(place)):
            documents.write_bytes(place, b"x")
    (tmp_path / "loop").symlink_to("loop")
    for odd in (tmp_path / "loop", tmp_path / "nul\0byte"):
        with pytest.raises((Mistake, MachineryFailed)):
            documents.write_bytes(odd, b"x")
    assert names(tmp_path) == ["file", "folder", "loop"]


# --- new folders -------------------------------------------------------------------------------------------------------


def test_a_new_folder_appears_whole(path: Path) -> None:
    with documents.new_folder(path) as folder:
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").write_bytes(b"x")
        assert not path.exists()
    assert (path / "deep" / "er" / "file").read_bytes() == b"x"
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("crash", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_new_folder_does_not_appear_after_a_crash(path: Path, crash: type[BaseException]) -> None:
    with pytest.raises(crash), documents.new_folder(path) as folder:
        (folder / "half").write_bytes(b"x")
        raise crash
    assert names(path.parent) == []


def test_a_folder_with_something_in_it_and_a_file_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_bytes(OLD)
    (tmp_path / "file").write_bytes(OLD)
    for place in ("full", "file"):
        with pytest.raises(Mistake, match="already there"), documents.new_folder(tmp_path / place):
            pytest.fail("the block must not run")
    assert (tmp_path / "full" / "precious").read_bytes() == (tmp_path / "file").read_bytes() == OLD
    assert names(tmp_path) == ["file", "full"]


def test_a_folder_filled_by_someone_else_meanwhile_is_not_overwritten(path: Path) -> None:
    with pytest.raises(MachineryFailed), documents.new_folder(path) as folder:
        (folder / "mine").touch()
        path.mkdir()
        (path / "theirs").touch()
    assert names(path) == ["theirs"]
    assert names(path.parent) == ["file"]


def test_an_empty_folder_the_current_one_and_a_link_to_one_can_be_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("empty", "here", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("target")
    monkeypatch.chdir(tmp_path / "here")
    for place in (tmp_path / "empty", Path(), tmp_path / "link"):
        with documents.new_folder(place) as folder:
            (folder / "a").touch()
    assert [names(tmp_path / name) for name in ("empty", "here", "target")] == [["a"]] * 3
    assert (tmp_path / "link").is_symlink()


# --- reading -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Shape:
    return documents.read_json(path, Shape, "a shape", fix="Make it again.")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "truncated"),
        (b"not json", "malformed"),
        (b"[1, 2]", "Expected `object`"),
        (b'{"name": 3}', r"\$\.name"),
        (b'{"name": "a", "inner": {"b": [1, "two"]}}', r"\$\.inner\[\.\.\.\]\[1\]"),
        (b'{"inner": {}}', "missing required field `name`"),
        (b'{"name": "a", "nam": 1}', "unknown field `nam`"),
        (b'{"name": "a"} trailing', "malformed"),
        (b'{"name": "\xff"}', "UnicodeDecodeError"),
        (b"\x00\x01\x02" * 1000, "malformed"),
        (b'{"name": "a", "inner": {"b": ' + b"[" * 100_000, r"\$\.inner|RecursionError"),
        (b'{"name": "a", "inner": {"b": [1e400]}}', "out of range"),
    ],
)
def test_a_file_of_the_wrong_shape_is_bad_data_that_names_file_and_field(path: Path, data: bytes, named: str) -> None:
    path.write_bytes(data)
    with pytest.raises(BadData, match=named) as caught:
        read(path)
    assert caught.value.message.startswith(f"{path}: is not a shape")
    assert caught.value.fix == "Make it again."


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda s: json.dumps({"name": s}).encode()[:30]))
def test_any_bytes_are_read_or_refused_by_name(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("r") / "file"
    path.write_bytes(data)
    try:
        read(path)
    except BadData as error:
        assert str(path) in error.message


def test_missing_files_folders_and_odd_paths_are_bad_data(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for place, problem in (
        (tmp_path / "missing", "no such file"),
        (tmp_path, "is a folder, not a shape"),
        (tmp_path / "file" / "below", "cannot be read"),
        (tmp_path / ("x" * 300), "cannot be read"),
        (tmp_path / "loop", "cannot be read"),
        (tmp_path / "nul\0byte", "is not a path"),
        (Path("/proc/self/mem"), "cannot be read"),
    ):
        with pytest.raises(BadData, match=problem):
            read(place)


def test_an_unreadable_file_is_bad_data() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "file"
        path.write_bytes(b"{}")
        path.chmod(0)
        # Root reads everything, so the attempt is made by a process that is nobody.
        process = child(
            "os.getuid() or (os.setgid(65534), os.setuid(65534))\n"
            "try: documents.read_bytes(Path(sys.argv[1]), 'a shape')\n"
            "except BadData as error: print(error)\n",
            path,
        )
        assert f"{path}: cannot be read (Permission denied)" in process.communicate()[0]


@pytest.mark.parametrize(
    "data",
    [
        b"name = ",
        b"name = 3",
        b"\xff",
        b"other = 'x'",
        b"name = 'a'\ninner.b = ['x']",
        b"name = " + b"9" * 5000,
        b"a=" + b"[" * 9999,
    ],
)
def test_a_faulty_toml_file_is_a_fault_of_the_configuration(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(BadConfig, match=str(path)):
        documents.read_toml(path, Shape, "a shape", fix="Mend it.")


def test_toml_is_read_as_its_shape(path: Path) -> None:
    path.write_text('name = "é"\n[inner]\nb = [1, 2]\n')
    assert documents.read_toml(path, Shape, "a shape", fix="x") == Shape("é", {"b": [1, 2]})


# --- JSON for people ---------------------------------------------------------------------------------------------------


def test_json_is_indented_ends_with_a_newline_and_comes_back(path: Path) -> None:
    documents.write_json(path, Shape("a", {"b": [1]}))
    assert path.read_bytes() == b'{\n  "name": "a",\n  "inner": {\n    "b": [\n      1\n    ]\n  }\n}\n'
    assert read(path) == Shape("a", {"b": [1]})
    assert json.loads(documents.to_json({"z": 1, "a": 2})) == {"z": 1, "a": 2}


def test_a_file_name_that_is_not_utf8_can_still_be_written_about() -> None:
    name = os.fsdecode(b"caf\xe9")
    assert json.loads(documents.to_json({"file": name, "n": [name, 1], name: None})) == {
        "file": "caf\\udce9",
        "n": ["caf\\udce9", 1],
        "caf\\udce9": None,
    }


def test_a_target_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(Mistake, match="is a folder"):
        documents.require_target(tmp_path)
    with pytest.raises(Mistake, match="no folder") as caught:
        documents.require_target(tmp_path / "missing" / "x.json")
    assert "mkdir -p" in caught.value.fix
    documents.require_target(tmp_path / "x.json")
