"""Archives that nobody should trust: refused by name, in bounded memory, and nothing is written outside the folder."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari import tarball
from crucible.ari.artefact import Limits, canonical, pack, unpack
from crucible.errors import SubmissionRefused

from .conftest import write_bundle

SMALL = Limits(10**6, 1_000_000, 10)


def archive(*entries: tuple[tarfile.TarInfo, bytes], kind: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=kind) as made:
        for entry, data in entries:
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def named(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, data


def special(name: str, kind: bytes, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    return named(name, b"", type=kind, linkname=to)


def raw(*blocks: bytes) -> bytes:
    return gzip.compress(b"".join(blocks) + bytes(1024))


def header(name: bytes, kind: bytes = b"0", size: int = 0) -> bytes:
    return tarball._header(name, kind, size, 0o644)


def pax(name: bytes, **records: str) -> bytes:
    body = b""
    for key, value in records.items():
        record = f" {key.replace('__', '.')}={value}\n".encode()
        length = len(record) + len(str(len(record) + len(str(len(record)))))
        body += str(length).encode() + record
    return header(b"pax", b"x", len(body)) + body + bytes(-len(body) % 512) + header(name)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    # P1: what would be written somewhere else, or would not be a file
    "parent": (lambda: archive(named("../escape")), "'../escape'"),
    "parent inside": (lambda: archive(named("a/../../escape")), "'a/../../escape'"),
    "absolute": (lambda: archive(named("/escape")), "'/escape'"),
    "parent after ./": (lambda: archive(named("./../escape")), "'../escape'"),
    "parent in a long name": (
        lambda: archive(named("a/" * 30 + "../" * 31 + "escape")),
        "is not a plain relative name",
    ),
    "parent in attributes": (lambda: raw(pax(b"fine", path="../escape")), "'../escape'"),
    "parent folder": (lambda: archive(special("..", tarfile.DIRTYPE), named("escape")), "'..'"),
    "symbolic link": (lambda: archive(special("sly", tarfile.SYMTYPE, "/etc/passwd")), "'sly' is a symbolic link"),
    "through a link": (lambda: archive(special("sly", tarfile.SYMTYPE, ".."), named("sly/escape")), "'sly'"),
    "hard link": (lambda: archive(named("a"), special("sly", tarfile.LNKTYPE, "a")), "'sly' is a hard link"),
    "character device": (lambda: archive(special("sly", tarfile.CHRTYPE)), "'sly' is a character device"),
    "block device": (lambda: archive(special("sly", tarfile.BLKTYPE)), "'sly' is a block device"),
    "fifo": (lambda: archive(special("sly", tarfile.FIFOTYPE)), "'sly' is a fifo"),
    "set-user-id": (lambda: archive(named("sly", mode=0o4755)), "'sly' is set-user-id"),
    "set-group-id": (lambda: archive(named("sly", mode=0o2755)), "'sly' is set-user-id or set-group-id"),
    "unknown kind": (lambda: raw(header(b"sly", b"Z")), "'sly' is an entry of the kind"),
    "case": (lambda: archive(named("Model.py"), named("model.py")), "'Model.py' and 'model.py'"),
    "case of a folder": (lambda: archive(named("A"), named("a/b")), "'A' and 'a/b'"),
    "unicode form": (lambda: archive(named("\u00e9"), named("e\u0301")), "unicode form"),
    "twice": (lambda: archive(named("a", b"1"), named("a", b"2")), "'a' is there twice"),
    "file and folder": (lambda: archive(named("a"), named("a/b")), "both a file and a folder"),
    "folder and file": (lambda: archive(named("a/b"), named("a")), "both a file and a folder"),
    "empty name": (lambda: raw(header(b"")), "is not a plain relative name"),
    "control characters": (lambda: archive(named("a\x1b[2Jb")), "is not a plain relative name"),
    "not UTF-8": (lambda: raw(header(b"\xff\xfe")), "not a name in UTF-8"),
    "a name cut by NUL": (lambda: raw(header(b"fine\0../escape"), header(b"fine")), "'fine' is there twice"),
    # P2: what would take all memory, disk or time
    "bomb": (lambda: archive(named("bomb", bytes(9_000_000))), "unpacks to more than"),
    "bomb in two": (lambda: archive(named("a", bytes(600_000)), named("b", bytes(600_000))), "unpacks to more than"),
    "a size that is a lie": (lambda: raw(header(b"lie", size=8**11 - 1)), "unpacks to more than"),
    "a negative size": (lambda: raw(_with_size(b"lie", b"\xff" * 12)), "size is not a plain number"),
    "a binary size": (lambda: raw(_with_size(b"lie", b"\x80" + b"\0" * 10 + b"\x01")), "size is not a plain number"),
    "a size with a sign": (lambda: raw(_with_size(b"lie", b"-0000000001\0")), "size is not a plain number"),
    "many files": (lambda: archive(*(named(f"f{i}", b"") for i in range(20))), "more than 10 files"),
    "many folders": (lambda: archive(*(special(f"f{i}", tarfile.DIRTYPE) for i in range(20))), "more than 10 folders"),
    "deep": (lambda: archive(named("d/" * 17 + "f")), "folders deep"),
    "huge name": (lambda: archive(named("n" * 201)), "more than 200 bytes"),
    "very huge name": (lambda: archive(named("n" * 500_000)), "a header of 500,001 bytes"),
    "huge name in attributes": (lambda: raw(pax(b"fine", path="n" * 60_000)), "more than 200 bytes"),
    "huge attributes": (
        lambda: archive(named("a", pax_headers={"comment": "c" * 70_000}), kind=tarfile.PAX_FORMAT),
        "a header of",
    ),
    "sparse": (lambda: raw(header(b"sly", b"S")), "'sly' is a sparse file"),
    "sparse by attributes": (lambda: raw(pax(b"sly", GNU__sparse__realsize="1000000000000")), "GNU.sparse"),
    "size by attributes": (lambda: raw(pax(b"sly", size="1000000000000")), "'size'"),
    "headers without end": (lambda: raw(*(header(b"g", b"g") for _ in range(50))), "headers for one entry"),
    # and what is no archive at all
    "cut": (lambda: archive(named("half", os.urandom(5000)))[:-30], "ends too early"),
    "cut at a header": (lambda: gzip.compress(header(b"half", size=1000)), "ends too early"),
    "no end": (lambda: gzip.compress(header(b"half")), "ends too early"),
    "a name without a file": (lambda: raw(header(b"././@LongLink", b"L", 4) + b"abc\0" + bytes(508)), "is not there"),
    "damaged": (lambda: raw(header(b"a").replace(b"0000644", b"0000645")), "damaged header"),
    "damaged attributes": (
        lambda: raw(header(b"pax", b"x", 9) + b"99 a=b\nxx" + bytes(503), header(b"a")),
        "damaged header",
    ),
    "flipped bit": (lambda: _flipped(archive(named("a", random.Random(1).randbytes(3000)))), "not a tar.gz archive"),
    "not gzip": (lambda: b"not gzip", "not a tar.gz archive"),
    "empty": (lambda: b"", "ends too early"),
    "not tar": (lambda: gzip.compress(b"not tar" * 1000), "is not"),
    "bytes after the end": (lambda: archive(named("a")) + b"hidden", "bytes after its end"),
    "a second member": (lambda: archive(named("a")) + gzip.compress(b"hidden"), "bytes after its end"),
    "bytes after the tar": (lambda: gzip.compress(header(b"a") + bytes(1024) + b"hidden"), "bytes after its end"),
}


def _with_size(name: bytes, size: bytes) -> bytes:
    block = bytearray(header(name))
    block[124:136] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _flipped(data: bytes) -> bytes:
    return data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_archive_is_refused_by_name_and_writes_nothing_outside_its_folder(
    tmp_path: Path, attack: str
) -> None:
    make, says = HOSTILE[attack]
    path, folder = tmp_path / "b.tar.gz", tmp_path / "deep" / "folder"
    path.write_bytes(make())
    folder.mkdir(parents=True)
    with pytest.raises(SubmissionRefused) as caught:
        unpack(path, folder, SMALL)
    assert says in caught.value.message and caught.value.message.isprintable()
    assert len(caught.value.message) < 400
    assert {p for p in tmp_path.rglob("*") if not p.is_relative_to(folder)} == {path, folder.parent}
    assert not any(p.is_symlink() for p in folder.rglob("*"))
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= SMALL.unpacked_bytes


class Endless(io.RawIOBase):
    """An archive that never ends, made as it is read; counts what was taken of it."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest, self.taken = pieces, b"", 0

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size:
            self._rest += next(self._pieces)
        data, self._rest = self._rest[:size], self._rest[size:]
        self.taken += len(data)
        assert self.taken < 10_000_000, "it would never stop"
        return data


def _gzipped(blocks: Iterator[bytes]) -> Iterator[bytes]:
    zipped = zlib.compressobj(9, zlib.DEFLATED, 31)
    for block in blocks:
        yield zipped.compress(block)


def _counted(make: Callable[[int], bytes]) -> Iterator[bytes]:
    number = 0
    while True:
        yield make(number)
        number += 1


ENDLESS: dict[str, Callable[[], Iterator[bytes]]] = {
    "files": lambda: _gzipped(_counted(lambda n: header(b"%d" % n))),
    "zeros in a file": lambda: _gzipped(_counted(lambda n: bytes(1 << 16) if n else header(b"a", size=8**10))),
    "zeros after the end": lambda: _gzipped(_counted(lambda n: bytes(1 << 16))),
    "long names": lambda: _gzipped(_counted(lambda n: header(b"L", b"L", 512) + b"n" * 512)),
    "empty blocks of deflate": lambda: _counted(
        lambda n: b"\0\0\0\xff\xff" * 1000 if n else b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    ),
    "a name of the gzip": lambda: _counted(lambda n: b"n" * 5000 if n else b"\x1f\x8b\x08\x08\0\0\0\0\0\xff"),
}


@pytest.mark.parametrize("attack", ENDLESS)
def test_an_archive_without_end_is_left_in_bounded_memory(attack: str) -> None:
    stream = Endless(ENDLESS[attack]())
    tracemalloc.start()
    try:
        with pytest.raises(SubmissionRefused):
            for number, (_, content) in enumerate(tarball.entries(cast(BinaryIO, stream), 2_000_000)):
                for _ in content:
                    pass
                assert number < 20_000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert stream.taken <= 2_000_000 + tarball.CHUNK


def test_an_archive_by_any_packer_becomes_the_canonical_one(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", **{"n" * 150: os.urandom(3000), "é": b""})
    (folder / "inner").mkdir()
    (folder / "inner" / "data").write_text("x" * 700)
    ours = io.BytesIO()
    wanted = pack(folder, ours, SMALL)
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        if kind == tarfile.USTAR_FORMAT:
            (folder / ("n" * 150)).rename(folder / "inner" / "short")
            wanted = pack(folder, ours := io.BytesIO(), SMALL)
        path = tmp_path / f"{kind}.tar.gz"
        with tarfile.open(path, "w:gz", compresslevel=1, format=kind) as made:
            made.add(folder, arcname=".")
        again = io.BytesIO()
        assert canonical(path, again, SMALL) == wanted
        assert again.getvalue() == ours.getvalue()
        if kind == tarfile.USTAR_FORMAT:
            (folder / "inner" / "short").rename(folder / ("n" * 150))
            wanted = pack(folder, ours := io.BytesIO(), SMALL)


def test_attributes_and_global_headers_of_other_packers_are_dropped(tmp_path: Path) -> None:
    entries = [
        named("manifest.json", b'{"schema": 1, "entry": "model:Model"}', mtime=1.5, uname="me", mode=0o1700),
        named("model.py", b"", pax_headers={"SCHILY.xattr.user.hidden": "x" * 500, "mtime": "1.25"}),
    ]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT, pax_headers={"comment": "c" * 200}) as made:
        for entry, data in entries:
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    path = tmp_path / "b.tar.gz"
    path.write_bytes(out.getvalue())
    folder = tmp_path / "plain"
    folder.mkdir()
    for entry, data in entries:
        (folder / entry.name).write_bytes(data)
    assert canonical(path, io.BytesIO(), SMALL) == pack(folder, io.BytesIO(), SMALL)


def test_the_size_that_counts_is_that_of_the_canonical_form(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", weights=b"ab" * 50_000)
    path = tmp_path / "b.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as made:
        made.add(folder, arcname=".")
    assert path.stat().st_size > 100_000
    assert canonical(path, io.BytesIO(), Limits(5_000, 1_000_000, 10)).bytes < 5_000
    with pytest.raises(SubmissionRefused, match="packs to more than"):
        canonical(path, io.BytesIO(), Limits(200, 1_000_000, 10))


@given(st.binary(max_size=3000), st.booleans())
def test_any_bytes_at_all_are_an_archive_or_refused(data: bytes, wrapped: bool) -> None:
    stream = io.BytesIO(gzip.compress(data) if wrapped else data)
    try:
        for _, content in tarball.entries(stream, 10_000):
            assert sum(map(len, content)) <= 10_000
    except SubmissionRefused as refusal:
        assert refusal.message.isprintable()


@given(st.lists(st.tuples(st.integers(0, 1023), st.binary(min_size=1, max_size=8)), max_size=4))
def test_a_damaged_header_never_gets_past_its_checksum_or_its_fields(damage: list[tuple[int, bytes]]) -> None:
    block = bytearray(tarball.header(b"n" * 120, 5) + b"12345".ljust(512, b"\0"))
    for at, data in damage:
        block[at : at + len(data)] = data
    for start in range(0, len(block), 512):  # a forger computes checksums too
        if block[start + 257 : start + 262] == b"ustar":
            block[start + 148 : start + 156] = b" " * 8
            block[start + 148 : start + 156] = b"%06o\0 " % sum(block[start : start + 512])
    try:
        for entry, content in tarball.entries(io.BytesIO(gzip.compress(bytes(block) + bytes(1024))), 100_000):
            assert entry.size >= 0 and sum(map(len, content)) == entry.size
    except SubmissionRefused as refusal:
        assert refusal.message.isprintable()


def test_struct_of_the_trailer_is_checked(tmp_path: Path) -> None:
    data = archive(named("a", b"content"))
    for at in (-8, -4):  # the checksum and the length at the end
        broken = data[:at] + struct.pack("<I", 1) + data[len(data) + at + 4 :]
        path = tmp_path / "b.tar.gz"
        path.write_bytes(broken)
        folder = tmp_path / f"{at}"
        folder.mkdir()
        with pytest.raises(SubmissionRefused, match=r"not a tar\.gz archive"):
            unpack(path, folder, SMALL)
