"""A filter means what it says: parsed and printed without loss, evaluated as Python would, refused where it is unclear."""

from __future__ import annotations

import operator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crucible.contrast.pooling.expression import (
    And,
    Compare,
    Field,
    Listed,
    Not,
    Or,
    Truth,
    Value,
    fields,
    holds,
    printed,
)
from crucible.contrast.pooling.expression_text import MAX_DEPTH, parse
from crucible.errors import BadConfig, BadData

texts = st.text(st.characters(exclude_categories=()) | st.sampled_from("\\'\"`nu0 \n"), max_size=6)
names = st.sampled_from(["passes", "strength", "a.b", "x-y", "in", "not", "null", "two words", "über", "9", "a b.c"])
numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
values = st.builds(Value, texts | numbers | st.booleans() | st.none())
operands = st.builds(Field, names) | values | st.builds(Listed, st.lists(values, max_size=3).map(tuple))
signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains"])
leaves = st.builds(Compare, operands, signs, operands) | st.builds(Truth, operands)


def grown(inner):
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, inner) | st.builds(And, several) | st.builds(Or, several)


trees = st.recursive(leaves, grown, max_leaves=12)


@given(trees)
@example(Compare(Field("in"), "==", Value("\\n it's \\u0041 \\")))
def test_what_is_printed_parses_to_the_same_tree(tree):
    again = parse(printed(tree))
    assert again == tree and repr(again) == repr(tree)  # repr, too: 1 == True == 1.0 for Python


# --- evaluation against Python -----------------------------------------------------------------------------------------

RECORD = {"n": 5, "f": 0.5, "s": "ultra", "t": True, "l": [1, 2, 5], "w": ["ultra", "mid"]}
SIGNS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

number_leaves = st.tuples(
    st.sampled_from(["n", "f", "gone"]), st.sampled_from(sorted(SIGNS)), st.sampled_from([0, 0.5, 5, 5.0, -1, 9])
)
text_leaves = st.tuples(
    st.sampled_from(["s", "gone"]), st.sampled_from(sorted(SIGNS)), st.sampled_from(["ultra", "", "zz", "mid"])
)
list_leaves = st.tuples(
    st.sampled_from(["n", "f", "gone"]), st.sampled_from(["in", "not in"]), st.lists(st.sampled_from([0.5, 5, 7]))
)


def reference(name, sign, value):
    """The same as a Python expression; what is missing makes it false."""
    have = RECORD.get(name)
    if have is None:
        return False
    if sign == "in":
        return have in value
    if sign == "not in":
        return have not in value
    return SIGNS[sign](have, value)


@st.composite
def filters(draw):
    """A filter and what it is by Python's own rules."""
    kind = draw(st.sampled_from(["leaf"] * 3 + ["not", "and", "or"]))
    if kind == "leaf":
        name, sign, value = draw(number_leaves | text_leaves | list_leaves)
        right = Listed(tuple(map(Value, value))) if isinstance(value, list) else Value(value)
        return Compare(Field(name), sign, right), reference(name, sign, value)
    if kind == "not":
        tree, truth = draw(filters())
        return Not(tree), not truth
    several = draw(st.lists(filters(), min_size=2, max_size=3))
    trees, truths = zip(*several, strict=True)
    return (And(trees), all(truths)) if kind == "and" else (Or(trees), any(truths))


@given(filters())
def test_a_filter_is_true_exactly_when_python_says_so(case):
    tree, truth = case
    assert holds(tree, RECORD.get, "b1") is truth
    assert holds(parse(printed(tree)), RECORD.get, "b1") is truth


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("n >= 5 and s == 'ultra'", True),
        ("n > 5 or f < 1", True),
        ("not n == 5 or t", True),
        ("not (n == 5 or t)", False),
        ("n == 5 and not s == 'mid' and f <= .5", True),
        ("false and n == 'text'", False),  # the right side is not asked
        ("true or n == 'text'", True),
        ('s == "ultra"', True),
        ("s contains 'ltr'", True),
        ("w contains 'mid'", True),
        ("w contains 'low'", False),
        ("n in l", True),
        ("n not in [1, 2]", True),
        ("n in []", False),
        ("gone == null", True),
        ("gone != null", False),
        ("n != null", True),
        ("n == null", False),
        ("gone != 3", False),
        ("gone not in [3]", False),
        ("not gone == 3", True),
        ("gone", False),
        ("t", True),
        ("t == true", True),
        ("5 == n", True),
        ("n == 5.0", True),
        ("l == [1, 2, 5]", True),
        ("s == 'ul\\u0074ra'", True),
        ("  n\n== 5\t", True),
        ("`n` == 5", True),
    ],
)
def test_the_language_by_example(text, truth):
    assert holds(parse(text), RECORD.get, "b1") is truth


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n == 'five'", "n is 5 (number) and 'five' (text), which `==` does not compare"),
        ("s >= 3", "s is 'ultra' (text) and 3 (number), which `>=` does not compare"),
        ("t == 1", "t is True (true or false) and 1 (number)"),
        ("t < false", "which `<` does not compare"),
        ("l < [9]", "which `<` does not compare"),
        ("n in ['five']", "n is 5 (number), the list holds 'five' (text)"),
        ("n in s", "s is 'ultra' (text), not a list; for a part of a text write"),
        ("n contains 5", "n is 5 (number), not a list"),
        ("s", "s is 'ultra' (text), not true or false"),
        ("5", "5 (number), not true or false"),
    ],
)
def test_values_of_different_kinds_are_an_error_that_names_the_bundle_and_both(text, said):
    with pytest.raises(BadData) as caught:
        holds(parse(text), RECORD.get, "bundle-7")
    assert said in caught.value.message and "bundle-7" in caught.value.message and text in caught.value.message


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 1, "the filter ends where a field or a value is expected"),
        ("   ", 1, "the filter ends"),
        ("n ==", 5, "the filter ends"),
        ("n = 5", 3, "'= 5' is no part of a filter"),
        ("n == 5 s", 8, "'s' is not expected here"),
        ("(n == 5", 8, "where `)` is expected"),
        ("n == 5)", 7, "')' is not expected here"),
        ("1 < n < 9", 7, "a second comparison in a row"),
        ("n not 5", 7, "where `in` is expected"),
        ("n in [1 2]", 9, "where `,` or `]` is expected"),
        ("n in [1,]", 9, "where a field or a value is expected"),
        ("n in [s]", 7, "where a field or a value is expected"),
        ("and n", 1, "'and' stands where"),
        ("s == 'open", 6, "is no part of a filter"),
        ("n == 5x", 6, "is no part of a filter"),
        ("n == 1e999", 6, "is too large"),
        ("n == __import__('os')", 16, "'(' is not expected here"),
        ("n; 1", 2, "is no part of a filter"),
    ],
)
def test_a_broken_filter_is_refused_at_its_column(text, column, said):
    with pytest.raises(BadConfig) as caught:
        parse(text)
    assert said in caught.value.message and f"column {column}:" in caught.value.message


@given(st.text(st.sampled_from("n5'\"()[],<>=! andornti`.\\-e"), max_size=30))
def test_any_text_is_a_filter_or_a_refusal(text):
    try:
        tree = parse(text)
    except BadConfig:
        return
    assert parse(printed(tree)) == tree


@pytest.mark.parametrize("text", ["(" * 5000 + "n" + ")" * 5000, "not " * 5000 + "n", "(not " * 5000])
def test_deep_nesting_is_refused_and_does_not_end_the_stack(text):
    with pytest.raises(BadConfig, match=f"nested more than {MAX_DEPTH} deep"):
        parse(text)


def test_a_long_flat_filter_is_no_nesting():
    tree = parse(" or ".join(f"n == {i}" for i in range(5000)))
    assert holds(tree, RECORD.get, "b1") and fields(tree) == ["n"]


def test_the_deepest_allowed_filter_is_evaluated():
    deep = "(" * (MAX_DEPTH - 1) + "n == 5" + ")" * (MAX_DEPTH - 1)
    assert holds(parse(deep), RECORD.get, "b1")
    assert holds(parse("not " * (MAX_DEPTH - 2) + "t"), RECORD.get, "b1")


@given(trees)
def test_every_field_is_listed_once(tree):
    found = fields(tree)
    assert len(found) == len(set(found))
    assert all(f"Field(name={name!r})" in repr(tree) for name in found)
    assert repr(tree).count("Field(") == 0 or found


# --- names and values that only look alike -----------------------------------------------------------------------------


def test_a_word_of_the_language_between_backquotes_is_a_field():
    assert fields(parse("`in` == 1 and `two words` == 2 and null == null")) == ["in", "two words"]
