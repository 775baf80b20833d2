"""A record says only what was measured: known names, finite numbers, and nothing at all for a failed machinery."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.errors import BadData
from crucible.kernel import ledger, record
from crucible.kernel.pin import Pin
from crucible.kernel.record import Empty, Invalid, Measured, Record

NAMES = ("pass_rate", "margin", "loss")
PIN = Pin("k", {"a": 1})


def made(**changes: Any) -> Record:
    parts: dict[str, Any] = {
        "pin": PIN,
        "subject": {"encoder": "hashing", "digest": "0f"},
        "artefact": "ab" * 32,
        "seed": 3,
        "outcome": Measured(),
        "metrics": {"pass_rate": 0.5},
        "names": NAMES,
    }
    return record.make(**parts | changes)


OUTCOMES = st.just(Measured()) | st.builds(Empty, st.text(max_size=5)) | st.builds(Invalid, st.text(max_size=5))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def records(draw: st.DrawFn) -> Record:
    outcome = draw(OUTCOMES)
    metrics = {} if isinstance(outcome, Invalid) else draw(st.dictionaries(st.sampled_from(NAMES), NUMBERS))
    return made(
        pin=Pin(draw(TEXT), draw(st.dictionaries(TEXT, NUMBERS | TEXT | st.integers() | st.none(), max_size=3))),
        subject=draw(st.dictionaries(TEXT, TEXT, min_size=1, max_size=3)),
        artefact=draw(st.none() | TEXT),
        seed=draw(st.none() | st.integers()),
        outcome=outcome,
        metrics=metrics,
        detail=draw(st.dictionaries(TEXT, st.lists(NUMBERS, max_size=2), max_size=2)),
    )


@given(records())
def test_a_record_survives_json(value: Record) -> None:
    back = record.from_builtins(json.loads(json.dumps(record.to_builtins(value))), "here")
    assert back == value
    assert back.digest == value.digest
    assert back.pin.digest == value.pin.digest


def test_a_record_survives_a_ledger_with_its_digest_and_the_order_of_its_subject(tmp_path: Path) -> None:
    value = made(subject={"b": "2", "a": "1"}, outcome=Empty("nothing promoted"), seed=2**63)
    ledger.append(tmp_path / "l", "record", record.to_builtins(value))
    (line,) = ledger.read(tmp_path / "l")
    back = record.from_builtins(line.entry.body, "l:1")
    assert back.digest == value.digest
    assert back.label == value.label == "2 1"


def test_the_label_keeps_the_order_of_the_producer() -> None:
    assert made(subject={"provider": "p", "model": "m"}).label == "p m"


def test_a_metric_that_is_not_on_the_list_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"unknown metrics \['pas_rate'\].*pass_rate"):
        made(metrics={"pas_rate": 0.5, "margin": 1.0})


def test_metrics_stand_in_the_order_of_the_list() -> None:
    assert list(made(metrics={"loss": 1, "pass_rate": 2}).metrics) == ["pass_rate", "loss"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="metric margin is"):
        made(metrics={"margin": bad})


def test_an_invalid_record_carries_no_metrics() -> None:
    assert made(outcome=Invalid("disk"), metrics={}).metrics == {}
    with pytest.raises(ValueError, match=r"no metrics.*pass_rate"):
        made(outcome=Invalid("disk"))


def test_an_empty_record_carries_what_it_earned() -> None:
    assert made(outcome=Empty("nothing promoted"), metrics={"pass_rate": 0.0}).metrics == {"pass_rate": 0.0}


def test_a_record_needs_a_subject() -> None:
    with pytest.raises(ValueError, match="subject"):
        made(subject={})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"metrics": {"a": "high"}}, r"\$\.metrics"),
        ({"metrics": {"a": None}}, r"\$\.metrics"),
        ({"outcome": {"end": "won"}}, "won"),
        ({"outcome": {"end": "invalid"}}, "cause"),
        ({"outcome": {"end": "invalid", "cause": "disk"}}, "no metrics"),
        ({"subject": {}}, "subject"),
        ({"seed": "3"}, r"\$\.seed"),
        ({"surprise": 1}, "surprise"),
        ({"pin": {"kind": "k"}}, "facts"),
    ],
)
def test_a_stored_record_is_checked_as_strictly_as_a_new_one(change: dict[str, Any], named: str) -> None:
    plain = record.to_builtins(made()) | change
    with pytest.raises(BadData, match=rf"l\.jsonl:7: not a record: .*{named}"):
        record.from_builtins(plain, "l.jsonl:7")


@pytest.mark.parametrize("plain", [None, [], "record", 3, {}])
def test_a_ledger_line_that_holds_something_else_is_bad_data(plain: object) -> None:
    with pytest.raises(BadData, match="not a record"):
        record.from_builtins(plain, "l:1")
