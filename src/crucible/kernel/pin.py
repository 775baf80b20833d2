"""What was held fixed while something was measured: facts that are compared, notes that are only kept.

A digest of a file is a fact; its path, the host and the date are notes. Deciding whether two results may be compared is
`compare.py`'s work; this module only says where two pins differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from crucible.kernel import digest


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()
"""Stands for a fact that one of two pins does not have: not the same as a fact whose value is null."""


class Difference(msgspec.Struct, frozen=True):
    """One fact on which two pins disagree; nested facts are named with dots."""

    fact: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.fact}: {_shown(self.left)} against {_shown(self.right)}"


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` says whose pin it is ("contrast.evalset", "ari.track"); pins of two kinds never match."""

    kind: str
    facts: dict[str, Any]
    notes: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """Identity: equal exactly when kind and facts are equal. Notes do not enter."""
        return digest.of_json({"kind": self.kind, "facts": self.facts})

    def differences(self, other: Pin) -> tuple[Difference, ...]:
        """Every differing fact with both values, in the order of their names; empty exactly when the digests are equal."""
        kinds = () if self.kind == other.kind else (Difference("kind", self.kind, other.kind),)
        return (*kinds, *_differences(self.facts, other.facts, ""))


def _differences(left: dict[str, Any], right: dict[str, Any], prefix: str) -> Iterator[Difference]:
    for name in sorted(left.keys() | right.keys()):
        a, b = left.get(name, ABSENT), right.get(name, ABSENT)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{name}.")
        elif not _same(a, b):
            yield Difference(prefix + name, a, b)


def _same(left: Any, right: Any) -> bool:
    if left is ABSENT or right is ABSENT:
        return left is right
    # As JSON, because Python says 1 == True == 1.0 and a pin must not.
    return digest.canonical_json(left) == digest.canonical_json(right)


def _shown(value: Any) -> str:
    return repr(value) if value is ABSENT else digest.canonical_json(value).decode()
