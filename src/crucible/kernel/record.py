"""One measured run under a pin: who was measured, on what artefact and seed, how it ended, which numbers came out.

A Record is what the two front halves produce and the board reads; the kernel does not know what a metric means, only
that its name is on the closed list its producer exports and that its value is a finite number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from crucible.errors import BadData
from crucible.kernel import digest
from crucible.kernel.pin import Pin


class Measured(msgspec.Struct, frozen=True, tag_field="end", tag="measured"):
    """The run ended and was judged."""


class Empty(msgspec.Struct, frozen=True, tag_field="end", tag="empty"):
    """The subject produced nothing to judge: it scores what it earned and counts."""

    reason: str


class Invalid(msgspec.Struct, frozen=True, tag_field="end", tag="invalid"):
    """The machinery failed, by host-side evidence: listed with its cause, rerun, never averaged."""

    cause: str


Outcome = Measured | Empty | Invalid


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Built by `make()` below or read from a ledger; both check it."""

    pin: Pin
    subject: dict[str, str]
    """Identity of what was measured: an encoder and its digest, or provider, model, effort and scaffold."""
    artefact: str | None
    """Digest of what was judged (weights, bundle); none for a run that left nothing."""
    seed: int | None
    """The training or run seed, not the seed of the eval set (that one is a fact of the pin)."""
    outcome: Outcome
    metrics: dict[str, float]
    detail: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for name, value in self.metrics.items():
            if not math.isfinite(value):
                raise ValueError(f"metric {name} is {value}: only finite numbers can be recorded")
        if isinstance(self.outcome, Invalid) and self.metrics:
            raise ValueError(f"an invalid record carries no metrics, this one has {sorted(self.metrics)}")
        if not self.subject:
            raise ValueError("a record without a subject says nothing about anyone")

    @property
    def digest(self) -> str:
        return digest.of_json(self)

    @property
    def label(self) -> str:
        """The subject for people, in the order its producer gave."""
        return " ".join(self.subject.values())


def make(
    *,
    pin: Pin,
    subject: Mapping[str, str],
    artefact: str | None,
    seed: int | None,
    outcome: Outcome,
    metrics: Mapping[str, float],
    names: tuple[str, ...],
    detail: Mapping[str, Any] | None = None,
) -> Record:
    """A record whose metric names are all on the producer's closed list `names`."""
    unknown = sorted(set(metrics) - set(names))
    if unknown:
        raise ValueError(f"unknown metrics {unknown}: the producer's list is {sorted(names)}")
    values = {name: float(metrics[name]) for name in names if name in metrics}
    return Record(pin, dict(subject), artefact, seed, outcome, values, dict(detail or {}))


def to_builtins(record: Record) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def from_builtins(plain: object, where: str) -> Record:
    """The record in a ledger line; `where` names the line in the error."""
    try:
        return msgspec.convert(plain, type=Record)
    except msgspec.ValidationError as error:
        raise BadData(f"{where}: not a record: {error}", fix="Check which program wrote this ledger.") from None
