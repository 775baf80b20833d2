"""A package file -> the files in it, by name: Debian's .deb (ar, tar), npm's .tgz, and dictzip. Unpacks nothing to disk.

It opens packages whose SHA-256 has been compared with a pin: what is in them is known, so sizes have no limits here.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from crucible.documents import read_bytes
from crucible.errors import BadData

Wanted = Callable[[str], bool]


def members(path: Path, wanted: Wanted) -> dict[str, bytes]:
    """The plain files of a .deb or .tgz whose name is wanted, in the order of their names."""
    data = read_bytes(path, "a package")
    try:
        plain = _deb_data(data) if data.startswith(b"!<arch>\n") else data
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:*") as archive:
            found = {
                entry.name.removeprefix("./"): archive.extractfile(entry)
                for entry in archive
                if entry.isreg() and wanted(entry.name.removeprefix("./"))
            }
            return {name: stream.read() for name, stream in sorted(found.items()) if stream is not None}
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise BadData.at(
            path, f"is not a package that can be opened: {error}", fix="Fetch it again: remove that file first."
        ) from None


def dictionary(files: Mapping[str, bytes], name: str) -> str:
    """A dictd dictionary without the entries that are about the dictionary itself."""
    text = gzip.decompress(files[f"usr/share/dictd/{name}.dict.dz"])  # dictzip is gzip with an index in its header
    lines = files[f"usr/share/dictd/{name}.index"].splitlines()
    entries = [(fields[0], _base64(fields[1]), _base64(fields[2])) for line in lines if (fields := line.split(b"\t"))]
    about = sorted((at, size) for word, at, size in entries if word.startswith((b"00database", b"00-database")))
    kept, end = [], 0
    for at, size in about:
        kept.append(text[end:at])
        end = max(end, at + size)
    return b"".join([*kept, text[end:]]).decode(errors="replace")  # three stray bytes of another encoding are known


def _deb_data(data: bytes) -> bytes:
    """The data.tar of a .deb: an ar archive of three members with headers of 60 bytes."""
    at = 8
    while at + 60 <= len(data):
        name, size = data[at : at + 16].strip().rstrip(b"/"), int(data[at + 48 : at + 58])
        content = data[at + 60 : at + 60 + size]
        if name.startswith(b"data.tar"):
            return content
        at += 60 + size + size % 2
    raise ValueError("a .deb without data.tar")


_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _base64(digits: bytes) -> int:
    """dictd's numbers: base 64, most significant digit first."""
    value = 0
    for digit in digits:
        value = 64 * value + _DIGITS.index(digit)
    return value
