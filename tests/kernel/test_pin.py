"""Two pins match exactly when every fact is the same; what differs is named with both values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.errors import BadData
from crucible.kernel import pin
from crucible.kernel.pin import ABSENT, Pin

# Few names and few values, so that two drawn pins agree in part.
NAMES = st.sampled_from(["a", "b", "c", "a.b"])
LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, "", "1", "a"])
NESTED: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
FACTS = st.dictionaries(NAMES, NESTED, max_size=3)
PINS = st.builds(Pin, kind=st.sampled_from(["x", "y"]), facts=FACTS, notes=FACTS)


@given(PINS, PINS)
def test_differences_are_empty_exactly_when_the_digests_are_equal(left: Pin, right: Pin) -> None:
    assert (left.differences(right) == ()) == (left.digest == right.digest)


@given(PINS, PINS)
def test_differences_are_the_same_from_both_sides(left: Pin, right: Pin) -> None:
    there = [(d.fact, repr(d.left), repr(d.right)) for d in left.differences(right)]
    back = [(d.fact, repr(d.right), repr(d.left)) for d in right.differences(left)]
    assert there == back


@given(FACTS, FACTS, FACTS)
def test_notes_never_matter(facts: dict[str, Any], here: dict[str, Any], there: dict[str, Any]) -> None:
    left, right = Pin("x", facts, here), Pin("x", facts, there)
    assert left.digest == right.digest
    assert left.differences(right) == ()


@given(PINS)
def test_a_pin_survives_json(value: Pin) -> None:
    back = msgspec.json.decode(msgspec.json.encode(value), type=Pin)
    assert back.digest == value.digest
    assert value.differences(back) == ()


def test_every_differing_fact_is_named_with_both_values_and_no_other() -> None:
    left = Pin("k", {"seed": 42, "tiers": {"cuts": [0.7, 0.9], "encoder": "hashing"}, "same": 1})
    right = Pin("k", {"seed": 43, "tiers": {"cuts": [0.7, 0.95], "encoder": "hashing"}, "same": 1})
    found = left.differences(right)
    assert [(d.fact, d.left, d.right) for d in found] == [("seed", 42, 43), ("tiers.cuts", [0.7, 0.9], [0.7, 0.95])]
    assert [str(d) for d in found] == ["seed: 42 against 43", "tiers.cuts: [0.7,0.9] against [0.7,0.95]"]


def test_pins_of_two_kinds_never_match() -> None:
    (found,) = Pin("contrast.evalset", {"a": 1}).differences(Pin("ari.track", {"a": 1}))
    assert (found.fact, found.left, found.right) == ("kind", "contrast.evalset", "ari.track")


def test_an_absent_fact_is_not_a_null_fact() -> None:
    (found,) = Pin("k", {}).differences(Pin("k", {"a": None}))
    assert found.left is ABSENT and found.right is None
    assert str(found) == "a: (absent) against null"


@pytest.mark.parametrize(
    ("left", "right"), [(True, 1), (1, 1.0), (True, 1.0), (0, False), (0.0, -0.0), ("1", 1), ([], {}), ({}, None)]
)
def test_values_that_python_takes_for_equal_are_still_different_facts(left: object, right: object) -> None:
    (found,) = Pin("k", {"a": left}).differences(Pin("k", {"a": right}))
    assert found.fact == "a"
    (found,) = Pin("k", {"a": [left]}).differences(Pin("k", {"a": [right]}))
    assert found.fact == "a"


def test_a_list_and_a_tuple_are_the_same_fact() -> None:
    assert Pin("k", {"a": (1, 2)}).differences(Pin("k", {"a": [1, 2]})) == ()


def test_a_fact_that_is_not_a_number_cannot_be_pinned() -> None:
    with pytest.raises(BadData, match=r"\$\.facts\.a is nan"):
        _ = Pin("k", {"a": float("nan")}).digest


def test_an_unknown_field_of_a_stored_pin_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="extra"):
        msgspec.json.decode(b'{"kind":"k","facts":{},"extra":1}', type=pin.Pin)
