"""A filter such as `passes >= 8 and strength == 'ultra'` -> its tree, or an error with the column. Evaluates nothing.

    condition   one or more joined by `or`; `and` binds tighter, `not` tighter still; parentheses group
    comparison  == != < <= > >= in, not in, contains      between fields and values; a field alone must be true or false
    value       8  -0.5  'text'  "text"  true  false  null  [1, 2]
    field       passes, a.b for an inner key, `any key` between backquotes

What the tree means is in `expression.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from crucible.contrast.pooling.expression import (
    NAME,
    ORDERED,
    WORDS,
    And,
    Compare,
    Expression,
    Field,
    Listed,
    Not,
    Operand,
    Or,
    Truth,
    Value,
)
from crucible.errors import BadConfig

MAX_DEPTH = 50
"""Deeper nesting is refused: nobody writes it, and it would end the interpreter's stack."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<name>NAME)
      | (?P<quoted>`[^`]+`)
      | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)
    )""".replace("NAME", NAME),
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_SIGNS = {"==", "!=", *ORDERED}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


def parse(text: str) -> Expression:
    """BadConfig with the column where the text stops being a filter."""
    parser = _Parser(text)
    found = parser.either(0)
    if parser.now.kind != "end":
        raise parser.refuse(f"{parser.now.text!r} is not expected here", "Join conditions with `and` or `or`.")
    return found


class _Parser:
    """Recursive descent; each method takes the tokens of one rule and leaves the rest."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.place = 0

    @property
    def now(self) -> _Token:
        return self.tokens[self.place]

    def refuse(self, problem: str, fix: str) -> BadConfig:
        return BadConfig(f"filter, column {self.now.column}: {problem}", fix=fix)

    def took(self, *texts: str) -> str | None:
        """The word or sign that stands here, if it is one of these; it is then taken."""
        if self.now.kind in ("word", "sign") and self.now.text in texts:
            self.place += 1
            return self.tokens[self.place - 1].text
        return None

    def either(self, depth: int) -> Expression:
        parts = [self.both(depth)]
        while self.took("or"):
            parts.append(self.both(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def both(self, depth: int) -> Expression:
        parts = [self.one(depth)]
        while self.took("and"):
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def one(self, depth: int) -> Expression:
        if depth >= MAX_DEPTH:
            raise self.refuse(f"nested more than {MAX_DEPTH} deep", "Write a flatter filter, or filter twice.")
        if self.took("not"):
            return Not(self.one(depth + 1))
        if self.took("("):
            found = self.either(depth + 1)
            if not self.took(")"):
                raise self.refuse(f"{self.now.text!r} where `)` is expected", "Close the parenthesis.")
            return found
        return self.comparison()

    def comparison(self) -> Expression:
        left = self.operand()
        sign = self.took(*_SIGNS, "in", "contains", "not")
        if sign is None:
            return Truth(left)
        if sign == "not":
            if not self.took("in"):
                raise self.refuse(f"{self.now.text!r} where `in` is expected", "Write `field not in [a, b]`.")
            sign = "not in"
        made = Compare(left, sign, self.operand())
        if self.took(*_SIGNS, "in", "contains"):
            self.place -= 1
            raise self.refuse("a second comparison in a row", "Write `a < b and b < c`.")
        return made

    def operand(self) -> Operand:
        token = self.now
        if token.kind == "sign" and token.text == "[":
            self.place += 1
            return self.listed()
        if token.kind == "name":
            self.place += 1
            return Field(token.text)
        return self.value()

    def listed(self) -> Listed:
        values: list[Value] = []
        while not self.took("]"):
            if values and not self.took(","):
                raise self.refuse(f"{self.now.text!r} where `,` or `]` is expected", "Close the list.")
            values.append(self.value())
        return Listed(tuple(values))

    def value(self) -> Value:
        token = self.now
        self.place += 1
        if token.kind == "number":
            return Value(_number(token))
        if token.kind == "text":
            return Value(_ESCAPED.sub(_unescaped, token.text[1:-1]))
        if token.kind == "word" and token.text in _CONSTANTS:
            return Value(_CONSTANTS[token.text])
        self.place -= 1
        what = "the filter ends" if token.kind == "end" else f"{token.text!r} stands"
        raise self.refuse(f"{what} where a field or a value is expected", "Write for instance `passes >= 8`.")


def _tokens(text: str) -> Iterator[_Token]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise BadConfig(
                f"filter, column {start + 1}: {text[start : start + 12]!r} is no part of a filter",
                fix="Quote texts, compare with == != < <= > >= in contains, join with and, or, not.",
            )
        kind = found.lastgroup or ""
        piece, place = found[kind], found.end()
        if kind == "name" and piece in WORDS:
            kind = "word"
        if kind == "quoted":
            kind, piece = "name", piece[1:-1]
        yield _Token(kind, piece, found.start(found.lastgroup or 0) + 1)
    yield _Token("end", "end", end + 1)


def _number(token: _Token) -> int | float:
    if re.fullmatch(r"-?\d{1,300}", token.text):
        return int(token.text)
    number = float(token.text)
    if not math.isfinite(number):
        raise BadConfig(f"filter, column {token.column}: {token.text[:20]} is too large", fix="Give a smaller number.")
    return number


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)
