"""The container of a capsule: every byte of it matters, and nothing that is put into one can reach outside or grow without end."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import subprocess
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.contrast.capsules import capsule_file
from crucible.contrast.capsules.capsule_file import Limits
from crucible.errors import BadData, IntegrityBroken

names = st.lists(
    st.text("abcdefgh-_.é ", min_size=1, max_size=8).filter(lambda n: n.strip(". ")), min_size=1, max_size=3
).map("/".join)


def read(path, limits=capsule_file.LIMITS):
    capsule_file.require_whole(path)
    return [(member.name, b"".join(member.chunks)) for member in capsule_file.members(path, limits)]


def sealed(path, tar: bytes, *, level: int = 6, tail: bytes = b""):
    """Any bytes as the content of a container whose digest is right: what a hostile packer can do."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    payload = deflate.compress(tar) + deflate.flush() + tail
    payload += b"" if tail else struct.pack("<II", zlib.crc32(tar), len(tar) & 0xFFFFFFFF)
    path.write_bytes(capsule_file._FIXED + hashlib.sha256(payload).digest() + payload)
    return path


def tarred(*entries: tuple[tarfile.TarInfo, bytes], format=tarfile.USTAR_FORMAT) -> bytes:
    out = b"".join(e.tobuf(format) + data + bytes(-len(data) % 512) for e, data in entries)
    return out + bytes(1024)


def entry(name: str, size: int = 0, **more) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.mode = size, 0o644
    for key, value in more.items():
        setattr(made, key, value)
    return made


@settings(max_examples=25)
@given(st.dictionaries(names, st.binary(max_size=2000), max_size=6))
def test_what_goes_in_comes_out_and_the_same_files_are_the_same_bytes(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("c")
    try:
        for name in ("a", "b"):
            capsule_file.write(folder / name, files.items())
    except BadData:  # names that are one name on some disks
        return
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
    assert read(folder / "a") == list(files.items())


def test_everybodys_gunzip_and_tar_can_read_it(tmp_path):
    path = tmp_path / "c.tar.gz"
    long = "folder/" * 15 + "file"
    capsule_file.write(path, [("capsule.json", b"{}"), (long, b"x" * 1000), ("é.txt", b"")])
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["capsule.json", long, "é.txt"]
        assert archive.extractfile(long).read() == b"x" * 1000
    listed = subprocess.run(["tar", "tzf", path], capture_output=True, text=True, check=True)
    assert listed.stdout.splitlines()[:2] == ["capsule.json", long] and listed.stderr == ""
    assert gzip.decompress(path.read_bytes())


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "c.tar.gz"
    capsule_file.write(path, [("capsule.json", b"{}" * 20), ("weights", bytes(range(256)) * 2), ("empty", b"")])
    return path


def test_no_byte_can_be_changed_unseen(small, tmp_path):
    whole = small.read_bytes()
    path = tmp_path / "changed"
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(IntegrityBroken):
            capsule_file.require_whole(path)


def test_no_byte_can_be_added_or_cut_off(small, tmp_path):
    whole = small.read_bytes()
    path = tmp_path / "changed"
    for data in [whole[:size] for size in range(0, len(whole), 7)] + [whole + b"\0", whole + whole, b"\0" + whole]:
        path.write_bytes(data)
        with pytest.raises(IntegrityBroken):
            capsule_file.require_whole(path)


def test_the_same_content_compressed_otherwise_is_another_file(small, tmp_path):
    tar = gzip.decompress(small.read_bytes())
    path = tmp_path / "again"
    path.write_bytes(gzip.compress(tar, mtime=0))
    with pytest.raises(IntegrityBroken, match="packed by something else"):
        capsule_file.require_whole(path)


# --- hostile content, with a container that is right --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/passwd", "plain relative name"),
        ("../outside", "plain relative name"),
        ("a/../../outside", "plain relative name"),
        ("a//b", "plain relative name"),
        ("./a", "plain relative name"),
        ("a/", "plain relative name"),
        (".", "plain relative name"),
        ("a\\b", "plain relative name"),
        ("C:evil", "every system"),
        ("new\nline", "every system"),
        ("\x1b[31m", "every system"),
        ("right\u202eleft", "every system"),
    ],
)
def test_names_that_lead_elsewhere_are_refused_in_and_out(tmp_path, name, said):
    with pytest.raises(BadData, match=said):
        capsule_file.write(tmp_path / "x", [(name, b"")])
    assert not (tmp_path / "x").exists()
    with pytest.raises(IntegrityBroken, match=f"{said}|not a plain file"):
        read(sealed(tmp_path / "c", tarred((entry(name), b""))))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_folders_and_devices_are_refused(tmp_path, kind):
    hostile = entry("innocent", type=kind, linkname="/etc/passwd")
    with pytest.raises(IntegrityBroken, match=r"'innocent/?':? is not a plain"):
        read(sealed(tmp_path / "c", tarred((hostile, b""))))


@pytest.mark.parametrize("more", [{"mtime": 1}, {"uid": 1}, {"mode": 0o4755}, {"uname": "root"}, {"gid": 7}])
def test_nothing_hides_in_times_owners_and_modes(tmp_path, more):
    with pytest.raises(IntegrityBroken, match="'a': is not a plain file"):
        read(sealed(tmp_path / "c", tarred((entry("a", **more), b""))))


def test_long_name_and_extended_headers_are_refused(tmp_path):
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as archive:
            archive.addfile(entry("n" * 150))
        with pytest.raises(IntegrityBroken):
            read(sealed(tmp_path / "c", out.getvalue()))


@pytest.mark.parametrize("second", ["a", "A", "a\u0301x"])
def test_one_name_twice_is_refused_however_it_is_spelled(tmp_path, second):
    first = {"a\u0301x": "\u00e1x"}.get(second, "a")
    with pytest.raises(IntegrityBroken, match="one name on some systems"):
        read(sealed(tmp_path / "c", tarred((entry(first), b""), (entry(second), b""))))


def test_bytes_hidden_in_padding_or_behind_the_end_are_found(tmp_path):
    plain = tarred((entry("a", 3), b"abc"))
    padded = plain[:515] + b"\1" + plain[516:]
    with pytest.raises(IntegrityBroken, match="space behind it"):
        read(sealed(tmp_path / "c", padded))
    for more in (bytes(512), b"x" * 512, bytes(9 * 1024)):
        with pytest.raises(IntegrityBroken, match=r"behind its content|end of its content"):
            read(sealed(tmp_path / "c", plain + more))
    with pytest.raises(IntegrityBroken, match="behind its content"):
        read(sealed(tmp_path / "c", plain, tail=struct.pack("<II", zlib.crc32(plain), len(plain)) + b"secret"))
    with pytest.raises(IntegrityBroken, match="checksum is wrong"):
        read(sealed(tmp_path / "c", plain, tail=struct.pack("<II", 0, len(plain))))
    with pytest.raises(IntegrityBroken, match="breaks off"):
        read(sealed(tmp_path / "c", plain[:-1024]))


def test_a_bomb_stops_at_its_limit_and_is_never_held_in_memory(tmp_path):
    limits = Limits(files=10, bytes=1 << 20, ratio=50, always=1 << 16)
    size = 8 << 20
    bomb = sealed(tmp_path / "c", tarred((entry("zeros", size), bytes(size))), level=9)
    assert bomb.stat().st_size < 20_000
    seen = 0
    with pytest.raises(IntegrityBroken, match="unpacks to more than"):
        for member in capsule_file.members(bomb, limits):
            for chunk in member.chunks:
                seen += len(chunk)
                assert len(chunk) <= 1 << 20
    assert seen <= 1 << 20
    claimed = tarred((entry("zeros", 7 << 30), b""))  # says more than it has
    with pytest.raises(IntegrityBroken, match=r"breaks off|unpacks to more"):
        read(sealed(tmp_path / "d", claimed), limits)


def test_too_many_files_are_refused_in_and_out(tmp_path):
    limits = Limits(files=3)
    many = [(f"f{i}", b"") for i in range(4)]
    with pytest.raises(BadData, match="more than 3 files"):
        capsule_file.write(tmp_path / "x", many, limits)
    with pytest.raises(IntegrityBroken, match="more than 3 files"):
        read(sealed(tmp_path / "c", tarred(*((entry(name), b"") for name, _ in many))), limits)


@given(st.binary(min_size=1, max_size=3000))
def test_garbage_in_the_place_of_content_is_refused_and_nothing_else_happens(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("g") / "c"
    path.write_bytes(capsule_file._FIXED + hashlib.sha256(data).digest() + data)
    with pytest.raises(IntegrityBroken):
        read(path)
    capsule_file.survey(path, "capsule.json")
    with pytest.raises(IntegrityBroken):
        read(sealed(path, b"\1" + data + bytes(1024)))
    capsule_file.survey(path, "capsule.json")
