"""Named arrays <-> the bytes of an npz file, without pickle and the same bytes every time. Knows no model.

Reading trusts nothing: the caller says which arrays of which shape must be there, and no more bytes than these need are ever
unpacked, whatever the archive claims.
"""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crucible.documents import open_input
from crucible.errors import BadData

Arrays = dict[str, npt.NDArray[np.float32]]
Shapes = Mapping[str, tuple[int, ...]]
_FIX = "Restore the file from a copy, or train again: crucible train --config FILE --output-dir DIR"
_BROKEN = (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError, SyntaxError, zlib.error,
           struct.error, tokenize.TokenError)  # fmt: skip
"""What zipfile and NumPy raise on damaged data; a header is parsed as Python text, so also what its tokeniser raises."""
_HEADER = 1024
"""Far more than the header of a small array needs."""


def packed(arrays: Mapping[str, npt.NDArray[np.float32]]) -> bytes:
    """What `numpy.load` reads; stored, not compressed, and without a time in it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, np.ascontiguousarray(array, dtype=np.float32), (1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), one.getvalue())
    return whole.getvalue()


def unpacked(path: Path, shapes: Shapes, what: str) -> Arrays:
    """Exactly the arrays that `shapes` names, in float32."""
    most = sum(_size(shape) + 2 * _HEADER for shape in shapes.values()) + _HEADER
    with open_input(path, what) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise BadData.at(path, f"is larger than the {most} bytes that {what} of this shape can have", fix=_FIX)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [info.filename for info in archive.infolist()]
            if sorted(names) != sorted(f"{name}.npy" for name in shapes):
                raise BadData.at(path, f"holds {_listed(names)}, {what} holds {_listed(list(shapes))}", fix=_FIX)
            return {name: _array(archive, path, name, shape) for name, shape in shapes.items()}
    except _BROKEN as error:
        raise BadData.at(path, f"is not {what}: {error}", fix=_FIX) from None


def _array(archive: zipfile.ZipFile, path: Path, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    size = _size(shape)
    with archive.open(f"{name}.npy") as stream:
        raw = stream.read(size + _HEADER)  # never more, however long the archive says it is
        if stream.read(1):
            raise BadData.at(path, f"is larger than an array of shape {shape}", field=name, fix=_FIX)
    member = io.BytesIO(raw)
    if np.lib.format.read_magic(member) != (1, 0):
        raise BadData.at(path, "is not a NumPy array of version 1.0", field=name, fix=_FIX)
    found, fortran, kind = np.lib.format.read_array_header_1_0(member)
    if found != shape or fortran or kind != np.dtype("<f4"):
        order = ", column by column" if fortran else ""
        raise BadData.at(path, f"is {kind} {found}{order}, expected float32 {shape}", field=name, fix=_FIX)
    body = member.read()
    if len(body) != size:
        raise BadData.at(path, f"has {len(body)} bytes of numbers, {size} are expected", field=name, fix=_FIX)
    array = np.frombuffer(body, dtype="<f4").reshape(shape).astype(np.float32)
    if not np.isfinite(array).all():
        raise BadData.at(path, "holds numbers that are not finite", field=name, fix=_FIX)
    return array


def _size(shape: tuple[int, ...]) -> int:
    return 4 * math.prod(shape)


def _listed(names: list[str]) -> str:
    shown = sorted(name.removesuffix(".npy")[:40] for name in names)
    return (", ".join(shown[:8]) + (" …" if len(shown) > 8 else "")) or "nothing"
