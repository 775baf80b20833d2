from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import tarfile
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.ari.artefact import Limits, Packed, pack, unpack
from crucible.ari.submit import artefact_limits
from crucible.ari.track import load
from crucible.errors import SubmissionRefused
from crucible.kernel import digest

from .conftest import write_bundle

ROOMY = Limits(16_000_000, 64_000_000, 1_000)


def packed(folder: Path, limits: Limits = ROOMY) -> tuple[Packed, bytes]:
    out = io.BytesIO()
    return pack(folder, out, limits), out.getvalue()


def refusal(folder: Path, limits: Limits = ROOMY) -> str:
    with pytest.raises(SubmissionRefused) as caught:
        packed(folder, limits)
    return caught.value.message


names = st.lists(
    st.text("abcdefgh-_.é", min_size=1, max_size=8).filter(lambda n: n.strip(".")), min_size=1, max_size=3
).map("/".join)


@settings(max_examples=40)
@given(st.dictionaries(names, st.binary(max_size=300), max_size=8))
def test_packing_is_canonical_and_unpacking_gives_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("pack")
    one, two, back = write_bundle(root / "one"), write_bundle(root / "two"), root / "back"
    for folder, order in ((one, sorted(files)), (two, sorted(files, reverse=True))):
        for name in order:
            path = folder / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files[name])
            except OSError:  # "a" and "a/b" cannot both exist: leave the second one out on both sides
                return
    for path in two.rglob("*"):  # times, permissions and extended bits are not content
        os.utime(path, (12345, 67890))
        path.chmod(0o700 if path.is_dir() else 0o755)
    try:
        first, data = packed(one)
    except SubmissionRefused as refused:
        assert "unicode form" in refused.message or "case" in refused.message
        return
    second, again = packed(two)
    assert (data, first) == (again, second)
    assert (first.sha256, first.bytes) == (digest.of_bytes(data), len(data))
    archive = root / "b.tar.gz"
    archive.write_bytes(data)
    back.mkdir()
    unpack(archive, back, ROOMY)
    assert {p.relative_to(back).as_posix(): p.read_bytes() for p in back.rglob("*") if p.is_file()} == {
        p.relative_to(one).as_posix(): p.read_bytes() for p in one.rglob("*") if p.is_file()
    }


def test_nothing_of_the_host_is_in_the_archive(tmp_path: Path) -> None:
    _, data = packed(write_bundle(tmp_path / "b"))
    assert data[4:8] == b"\0\0\0\0"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
        entries = archive.getmembers()
    assert [entry.name for entry in entries] == ["manifest.json", "model.py"]
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime, e.mode) for e in entries} == {(0, 0, "", "", 0, 0o644)}


def test_the_bytes_are_those_of_gnu_tar_in_gzip_whatever_python_writes_them(tmp_path: Path) -> None:
    folder = write_bundle(
        tmp_path / "b", **{"x" * length: os.urandom(length * 31) for length in (1, 99, 100, 101, 200)}
    )
    plain = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=plain, mtime=0) as packer,
        tarfile.open(fileobj=packer, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(folder.iterdir()):
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    found, data = packed(folder)
    assert data == plain.getvalue()
    assert found.zlib == zlib.ZLIB_RUNTIME_VERSION


@pytest.mark.slow
def test_sixteen_million_bytes_exactly_are_accepted_and_one_more_is_not(tmp_path: Path) -> None:
    limits, folder = artefact_limits(load("official-1h")), write_bundle(tmp_path / "b")
    noise = random.Random(1).randbytes(16_000_000)  # packs to its own length and a little
    (folder / "weights").write_bytes(noise[:15_994_000])
    lengths: dict[int, int] = {}
    length = first = 2_000
    while not {16_000_000, 16_000_001} <= lengths.keys():
        (folder / "pad").write_bytes(noise[-length:])
        size = packed(folder, Limits(10**9, 10**9, 10))[0].bytes
        lengths[size] = length
        length = length - (size - 16_000_000) - 20 if length == first else length + 1
        assert len(lengths) < 80
    (folder / "pad").write_bytes(noise[-lengths[16_000_000] :])
    assert packed(folder, limits)[0].bytes == 16_000_000
    (folder / "pad").write_bytes(noise[-lengths[16_000_001] :])
    assert "16,000,000 bytes" in refusal(folder, limits)


def test_one_byte_over_is_rejected(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", weights=os.urandom(5000))
    exact = packed(folder)[0].bytes
    assert packed(folder, Limits(exact, 64_000, 10))[0].bytes == exact
    assert f"{exact - 1:,} bytes" in refusal(folder, Limits(exact - 1, 64_000, 10))


def test_a_bomb_stops_at_the_limit_without_being_read(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b")
    with (folder / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    assert "unpacks to more than" in refusal(folder)


def test_packing_ends_when_the_clock_of_the_one_who_asked_has_run_out(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", weights=bytes(random.Random(1).choices(b"ab", k=1_000_000)))
    asked: list[int] = []

    def over() -> bool:
        asked.append(1)
        return len(asked) > 8

    with pytest.raises(SubmissionRefused, match="before the time was over"):
        pack(folder, io.BytesIO(), ROOMY, over)
    assert len(asked) == 9


def test_a_folder_of_very_many_files_is_left_after_as_many_as_are_allowed(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b")
    for number in range(5_000):
        os.mknod(folder / f"{number:06}")
    tracemalloc.start()
    try:
        assert "more than" in refusal(folder, Limits(10**6, 10**6, 100))
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_very_many_folders_are_rejected_though_they_hold_nothing(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b")
    for number in range(12):
        (folder / f"{number % 3}" / f"{number}").mkdir(parents=True)
    assert packed(folder)[0].files == 2
    assert "more than 10 folders" in refusal(folder, Limits(10**6, 10**6, 10))


def test_nothing_is_hidden_in_attributes_times_permissions_or_empty_folders(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b")
    before = packed(folder)
    (folder / "hidden" / "name").mkdir(parents=True)
    os.utime(folder / "model.py", ns=(0x4142434445464748, 0x4142434445464748 >> 8))
    (folder / "model.py").chmod(0o1751)
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(folder / "model.py", "user.hidden", os.urandom(1000))
    assert packed(folder) == before


def test_too_many_files_are_rejected(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", **{f"f{i}": b"" for i in range(9)})
    assert packed(folder, Limits(10**6, 10**6, 11))[0].files == 11
    assert "more than 10 files" in refusal(folder, Limits(10**6, 10**6, 10))


@pytest.mark.parametrize("kind", ["symlink", "linked folder", "hard link", "fifo", "setuid"])
def test_anything_but_plain_files_is_rejected_with_its_name(tmp_path: Path, kind: str) -> None:
    folder, strange = write_bundle(tmp_path / "b"), tmp_path / "b" / "strange"
    (tmp_path / "outside").write_text("x")
    match kind:
        case "symlink":
            strange.symlink_to(tmp_path / "outside")
        case "linked folder":
            strange.symlink_to(tmp_path, target_is_directory=True)
        case "hard link":
            os.link(tmp_path / "outside", strange)
        case "fifo":
            os.mkfifo(strange)
        case "setuid":
            strange.write_text("x")
            strange.chmod(0o4755)
    assert "strange" in refusal(folder)


@pytest.mark.parametrize("name", ["a\nb", "back\\slash", "\x1b[31m", "x" * 201, "\udcff"])
def test_names_that_hide_something_are_rejected(tmp_path: Path, name: str) -> None:
    folder = write_bundle(tmp_path / "b")
    (folder / name[:120] / name[120:] if len(name) > 120 else folder / name).parent.mkdir(exist_ok=True)
    target = folder / name[:120] / name[120:] if len(name) > 120 else folder / name
    target.write_text("x")
    assert refusal(folder).isprintable()


def test_a_file_and_a_folder_of_one_name_in_another_case_are_rejected(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", Data=b"1")
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("2")
    assert "'Data'" in refusal(folder)


def test_names_that_collide_elsewhere_are_rejected(tmp_path: Path) -> None:
    assert "case" in refusal(write_bundle(tmp_path / "b", Weights=b"1", weights=b"2"))
    other = write_bundle(tmp_path / "c")
    (other / "\u00e9").write_text("1")
    (other / "e\u0301").write_text("2")
    assert "unicode" in refusal(other)


@pytest.mark.parametrize(
    ("manifest", "named"),
    [
        (None, "no manifest.json"),
        ("{", "manifest.json"),
        ('{"schema": 2, "entry": "model:Model"}', "schema 2"),
        ('{"schema": 1, "entry": "model"}', "entry"),
        ('{"schema": 1, "entry": "../x:Model"}', "entry"),
        ('{"schema": 1, "entry": "os:system; x"}', "entry"),
        ('{"schema": 1, "entry": "model:Model", "weights": ["gone"]}', "gone"),
        ('{"schema": 1, "entry": "model:Model", "weights": [], "author": "me"}', "author"),
        ('{"schema": 1, "entry": "other:Model"}', "no other.py"),
        ('{"schema": 1, "weights": []}', "entry"),
        ('{"schema": 1, "entry": "model:Model", "weights": "all"}', "weights"),
        ("", "manifest.json"),
        (" " * (1 << 20) + '{"schema": 1, "entry": "model:Model"}', "larger than"),
    ],
)
def test_a_manifest_that_says_nothing_useful_is_rejected(tmp_path: Path, manifest: str | None, named: str) -> None:
    folder = write_bundle(tmp_path / "b")
    (folder / "manifest.json").unlink()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    assert named in refusal(folder)


def test_the_pack_command_writes_the_bundle_it_counts(crucible: Any, tmp_path: Path) -> None:
    folder, out = write_bundle(tmp_path / "model", weights=os.urandom(500)), tmp_path / "B.tar.gz"
    ran = crucible("ari", "pack", folder, "-o", out, "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["bytes"], ran.json["sha256"]) == (out.stat().st_size, digest.of_file(out))
    assert (ran.json["files"], ran.json["manifest"]["entry"]) == (3, "model:Model")
    assert out.read_bytes() == packed(folder)[1]
    assert ran.json["sha256"] in crucible("ari", "pack", folder, "-o", out).out

    track = tmp_path / "small.toml"
    track.write_text(f"artifact_bytes = {ran.json['bytes'] - 1}")
    before = out.read_bytes()
    for arguments, code, said in (
        ((folder, "-o", out, "--track", track), 1, f"more than {ran.json['bytes'] - 1:,} bytes"),
        ((tmp_path / "gone", "-o", out), 1, "not a folder"),
        ((tmp_path, "-o", out), 1, "is inside"),
        ((folder, "-o", folder / "B.tar.gz"), 1, "is inside"),
        ((folder, "-o", tmp_path / "gone" / "B.tar.gz"), 1, "mkdir -p"),
        ((folder, "-o", out, "--track", "marathon"), 2, "official-1h"),
    ):
        refused = crucible("ari", "pack", *arguments, "--json")
        assert refused.code == code and "Traceback" not in refused.err, refused
        assert said in refused.json["error"]["message"] + refused.json["error"]["fix"]
    assert out.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {"model", "B.tar.gz", "small.toml", "cwd"}
