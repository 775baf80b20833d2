"""A filter's tree -> true or false of one record, or the text it is written as. Runs nothing as Python.

A comparison with a field that is missing or null is false, `!=` and `not in` too. Only the word null asks for it:
`tier == null` is true where there is no tier, `tier != null` where there is one. Values of different kinds are not
compared: that is a mistake in the filter or in the data, and an error names both. Text -> tree is in `expression_text.py`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crucible.errors import BadData

Lookup = Callable[[str], Any]
"""A field's value in one record; None where it is missing."""


@dataclass(frozen=True)
class Field:
    name: str


@dataclass(frozen=True)
class Value:
    value: bool | int | float | str | None


@dataclass(frozen=True)
class Listed:
    values: tuple[Value, ...]


Operand = Field | Value | Listed


@dataclass(frozen=True)
class Compare:
    left: Operand
    operator: str
    right: Operand


@dataclass(frozen=True)
class Truth:
    """A field or value alone."""

    of: Operand


@dataclass(frozen=True)
class Not:
    of: Expression


@dataclass(frozen=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Expression, ...]


Expression = Compare | Truth | Not | And | Or

WORDS = {"and", "or", "not", "in", "contains", "true", "false", "null"}
ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NAME = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
"""A field that needs no backquotes."""


def printed(expression: Expression) -> str:
    """Text that parses to the same tree."""
    match expression:
        case Or(parts):
            return " or ".join(_inside(part, (Or,)) for part in parts)
        case And(parts):
            return " and ".join(_inside(part, (Or, And)) for part in parts)
        case Not(of):
            return "not " + _inside(of, (Or, And))
        case Compare(left, sign, right):
            return f"{_operand(left)} {sign} {_operand(right)}"
        case Truth(of):
            return _operand(of)


def _inside(expression: Expression, looser: tuple[type, ...]) -> str:
    return f"({printed(expression)})" if isinstance(expression, looser) else printed(expression)


def _operand(operand: Operand) -> str:
    if isinstance(operand, Field):
        plain = re.fullmatch(NAME, operand.name) and operand.name not in WORDS
        return operand.name if plain else f"`{operand.name}`"
    if isinstance(operand, Listed):
        return "[" + ", ".join(map(_operand, operand.values)) + "]"
    value = operand.value
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return repr(value)


# --- tree and record -> true or false ----------------------------------------------------------------------------------


def fields(expression: Expression) -> list[str]:
    """Every field that is asked for, once, in the order of the text."""
    found: dict[str, None] = {}
    stack: list[Expression] = [expression]
    while stack:
        now = stack.pop()
        if isinstance(now, And | Or):
            stack.extend(reversed(now.parts))
        elif isinstance(now, Not):
            stack.append(now.of)
        else:
            operands = (now.of,) if isinstance(now, Truth) else (now.left, now.right)
            found |= dict.fromkeys(operand.name for operand in operands if isinstance(operand, Field))
    return list(found)


def holds(expression: Expression, lookup: Lookup, record: str) -> bool:
    """Is it true of this record? `record` names it in errors. `and` and `or` stop as soon as they know, from the left."""
    if isinstance(expression, And):
        return all(holds(part, lookup, record) for part in expression.parts)
    if isinstance(expression, Or):
        return any(holds(part, lookup, record) for part in expression.parts)
    if isinstance(expression, Not):
        return not holds(expression.of, lookup, record)
    if isinstance(expression, Compare):
        return _compared(expression, lookup, record)
    value = _valued(expression.of, lookup)
    if value is not None and not isinstance(value, bool):
        raise _mismatch(record, expression, f"{_described(expression.of, value)}, not true or false")
    return value is True


def _compared(expression: Compare, lookup: Lookup, record: str) -> bool:
    sign = expression.operator
    left, right = _valued(expression.left, lookup), _valued(expression.right, lookup)
    if sign in ("==", "!=") and Value(None) in (expression.left, expression.right):
        return (left is None and right is None) == (sign == "==")
    if left is None or right is None:
        return False
    if sign == "contains":
        if isinstance(left, str) and isinstance(right, str):
            return right in left
        return _among(expression, record, right, left, expression.right, expression.left)
    if sign in ("in", "not in"):
        return _among(expression, record, left, right, expression.left, expression.right) == (sign == "in")
    wanted = ("number", "text") if sign in ORDERED else ("number", "text", "true or false", "list")
    if _kind(left) != _kind(right) or _kind(left) not in wanted:
        both = f"{_described(expression.left, left)} and {_described(expression.right, right)}"
        raise _mismatch(record, expression, f"{both}, which `{sign}` does not compare")
    if sign in ORDERED:
        return bool(ORDERED[sign](left, right))
    return bool((left == right) == (sign == "=="))


def _among(expression: Compare, record: str, one: Any, many: Any, which: Operand, where: Operand) -> bool:
    if not isinstance(many, list):
        hint = "; for a part of a text write `field contains 'text'`" if isinstance(many, str) else ""
        raise _mismatch(record, expression, f"{_described(where, many)}, not a list{hint}")
    for other in many:
        if other is not None and _kind(other) != _kind(one):
            both = f"{_described(which, one)}, the list holds {other!r} ({_kind(other)})"
            raise _mismatch(record, expression, both)
    return one in many


def _valued(operand: Operand, lookup: Lookup) -> Any:
    if isinstance(operand, Field):
        return lookup(operand.name)
    return operand.value if isinstance(operand, Value) else [value.value for value in operand.values]


def _described(operand: Operand, value: Any) -> str:
    shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:39] + "…"
    name = f"{operand.name} is " if isinstance(operand, Field) else ""
    return f"{name}{shown} ({_kind(value)})"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list | tuple) else "object"


def _mismatch(record: str, expression: Expression, problem: str) -> BadData:
    fix = "Compare values of one kind; `field != null and …` passes over records that do not have it."
    return BadData(f"bundle {record}: in `{printed(expression)}` {problem}", fix=fix, facts={"id": record})
