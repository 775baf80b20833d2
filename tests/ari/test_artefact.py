from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.ari.artefact import Limits, Packed, pack, unpack
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
    ],
)
def test_a_manifest_that_says_nothing_useful_is_rejected(tmp_path: Path, manifest: str | None, named: str) -> None:
    folder = write_bundle(tmp_path / "b")
    (folder / "manifest.json").unlink()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)
    assert named in refusal(folder)


def hostile(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def link(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, to
    return entry


HOSTILE = {
    "parent": lambda: hostile([(tarfile.TarInfo("../escape"), b"x")]),
    "absolute": lambda: hostile([(tarfile.TarInfo("/escape"), b"x")]),
    "parent inside": lambda: hostile([(tarfile.TarInfo("a/../../escape"), b"x")]),
    "through a link": lambda: hostile([(link("l", "..", tarfile.SYMTYPE), b""), (tarfile.TarInfo("l/escape"), b"x")]),
    "hard link": lambda: hostile([(link("l", "manifest.json", tarfile.LNKTYPE), b"")]),
    "device": lambda: hostile([(link("d", "", tarfile.CHRTYPE), b"")]),
    "file and folder": lambda: hostile([(tarfile.TarInfo("a"), b"x"), (tarfile.TarInfo("a/b"), b"x")]),
    "twice": lambda: hostile([(tarfile.TarInfo("a"), b"x"), (tarfile.TarInfo("a"), b"y")]),
    "bomb": lambda: hostile([(tarfile.TarInfo("bomb"), bytes(9_000_000))]),
    "many": lambda: hostile([(tarfile.TarInfo(f"f{i}"), b"") for i in range(20)]),
    "cut": lambda: hostile([(tarfile.TarInfo("half"), b"x" * 5000)])[:-30],
    "not gzip": lambda: b"not gzip",
    "not tar": lambda: gzip.compress(b"not tar" * 1000),
}


@pytest.mark.parametrize("attack", sorted(HOSTILE))
def test_a_hostile_archive_is_refused_and_writes_nothing_outside_its_folder(tmp_path: Path, attack: str) -> None:
    archive, folder = tmp_path / "b.tar.gz", tmp_path / "deep" / "folder"
    archive.write_bytes(HOSTILE[attack]())
    folder.mkdir(parents=True)
    with pytest.raises(SubmissionRefused):
        unpack(archive, folder, Limits(10**6, 1_000_000, 10))
    assert not list(tmp_path.rglob("escape*"))
