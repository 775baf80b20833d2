"""R's lazy-load database (.rdx with .rdb) -> the character vectors in it, as text. Reads data only: no functions, no code.

The index is a serialised list `variables: name -> (offset, length)`; at each offset stand the object's size (4 bytes) and the
object itself, serialised and compressed by zlib. Serialised (XDR) is a header and then one tree of items, each begun by a
word of flags whose lowest byte is the type.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

_ZLIB_OR_GZIP = 47
_HAS_ATTRIBUTES, _HAS_TAG = 1 << 9, 1 << 10


def lazy_load(index: bytes, data: bytes) -> dict[str, list[str]]:
    """Every character vector of the database, by the name of its variable."""
    variables = _Reader(zlib.decompress(index, _ZLIB_OR_GZIP)).document()["variables"]
    found = {}
    for name, (at, length) in variables.items():
        value = _Reader(zlib.decompress(data[int(at) + 4 : int(at) + int(length)])).document()
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            found[name] = value
    return found


class _Reader:
    """One serialised object; numbers are big-endian."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._seen: list[str] = []

    def document(self) -> Any:
        if self._take(2) != b"X\n":
            raise ValueError("not serialised by R in the XDR format")
        version, _, _ = (self._int() for _ in range(3))
        if version == 3:
            self._take(self._int())  # the native encoding
        return self._item()

    def _item(self) -> Any:
        flags = self._int()
        kind = flags & 0xFF
        match kind:
            case 254:  # NULL
                return None
            case 255:  # an earlier symbol again
                return self._seen[(flags >> 8) - 1 if flags >> 8 else self._int() - 1]
            case 1:  # a symbol
                self._seen.append(self._item() or "")
                return self._seen[-1]
            case 9:  # one string, or its absence
                size = self._int()
                return None if size < 0 else self._take(size).decode()
            case 2:  # a pair list
                return self._pairs(flags)
            case 10 | 13:  # logical and integer vectors
                values: list[Any] = [self._int() for _ in range(self._int())]
            case 14:  # a vector of doubles
                count = self._int()
                values = list(struct.unpack(f">{count}d", self._take(8 * count)))
            case 16 | 19:  # a character vector, a list
                values = [self._item() for _ in range(self._int())]
            case _:
                raise ValueError(f"an R object of type {kind}, which is not data")
        attributes = self._item() if flags & _HAS_ATTRIBUTES else None
        names = attributes.get("names") if isinstance(attributes, dict) else None
        return dict(zip(names, values, strict=True)) if names else values

    def _pairs(self, flags: int) -> dict[str, Any]:
        """A chain of (tag, value), read in a loop: the rest of each is the next item."""
        found: dict[str, Any] = {}
        while flags & 0xFF == 2:
            if flags & _HAS_ATTRIBUTES:
                self._item()
            tag = self._item() if flags & _HAS_TAG else None
            found[str(tag)] = self._item()
            flags = self._int()
        return found

    def _int(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def _take(self, count: int) -> bytes:
        data = self._data[self._at : self._at + count]
        if len(data) != count:
            raise ValueError("an R object that ends too early")
        self._at += count
        return data
