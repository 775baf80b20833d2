"""A bundle -> a copy of it whose declared weights are permuted, by a seed. Judges nothing.

A submission that answers as well with its weights shuffled owes its answers to hand-written code. What is permuted is the
data, in small blocks, and not the headers that formats in wide use begin with (npy, npz, safetensors, torch): otherwise a
program that loads its weights and does not use them would merely fail to load them.
"""

from __future__ import annotations

import io
import random
import shutil
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

_BLOCKS = 1 << 16
_BLOCK_BYTES = 8
_NOT_DATA = (".pkl", "version", "byteorder", "format_version", "storage_alignment", "serialization_id")


def shuffled(bundle: Path, into: Path, weights: Sequence[str], seed: str) -> None:
    """Writes the copy to `into`, which must not exist."""
    shutil.copytree(bundle, into)
    for name in weights:
        path = into / name
        path.write_bytes(permuted(path.read_bytes(), random.Random(f"{seed} {name}")))


def permuted(data: bytes, dice: random.Random) -> bytes:
    if data[:4] == b"PK\x03\x04":
        archive = _zip(data, dice)
        if archive is not None:
            return archive
    head = _header_bytes(data)
    return data[:head] + _blocks(data[head:], dice)


def _blocks(data: bytes, dice: random.Random) -> bytes:
    """Whole numbers stay whole where there are enough of them: a model full of NaN would say little about its weights."""
    size = 1 if len(data) < 4 * _BLOCK_BYTES else _BLOCK_BYTES * max(1, -(-len(data) // (_BLOCK_BYTES * _BLOCKS)))
    whole = len(data) // size * size
    blocks = [data[at : at + size] for at in range(0, whole, size)]
    dice.shuffle(blocks)
    return b"".join(blocks) + data[whole:]


def _header_bytes(data: bytes) -> int:
    if data[:6] == b"\x93NUMPY" and len(data) > 12:
        wide = data[6] > 1
        return (12 if wide else 10) + int(struct.unpack("<I" if wide else "<H", data[8 : 12 if wide else 10])[0])
    if data[8:9] == b"{":  # safetensors: the length of a JSON header, then that header
        length = int(struct.unpack("<Q", data[:8])[0])
        return 8 + length if length < len(data) else 0
    return 0


def _zip(data: bytes, dice: random.Random) -> bytes | None:
    """The same archive with its members permuted; None for one that is damaged, compressed or larger than it looks."""
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            members = old.infolist()
            plain = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            if not plain or sum(member.file_size for member in members) > len(data):
                return None
            for member in members:
                content = old.read(member)
                kept = member.filename.endswith(_NOT_DATA)
                new.writestr(member, content if kept else permuted_member(content, dice))
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, RuntimeError, EOFError, OSError, KeyError):
        return None  # whoever wrote it did not mean it to be read
    return out.getvalue()


def permuted_member(content: bytes, dice: random.Random) -> bytes:
    head = _header_bytes(content)
    return content[:head] + _blocks(content[head:], dice)
