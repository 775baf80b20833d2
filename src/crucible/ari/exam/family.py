"""What a family of questions is: a maker of documents and a reader that answers them again. Holds no family itself.

A document is a list of spans: the text that leads up to an answer, and the answer. Most documents have one. Where there are
several, each is a question of its own, and in its prompt every earlier answer is hidden behind a mask of fixed width.

A family brings two functions that share no code:

    make(dice, template) -> [(text, answer), ...]     draws a document, only from `dice`
    solve(prompt) -> {answers}                         reads the prompt alone and returns every answer it can be read to have

The rules (see `rules.py`) hold for every document of every template; `solve` must return exactly the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crucible.ari.exam.dice import Dice

MASK = "[____]"
"""Stands for every earlier answer of a document, whatever its length."""

Spans = list[tuple[str, str]]
Make = Callable[[Dice, int], Spans]
Solve = Callable[[str], set[str]]


@dataclass(frozen=True)
class Family:
    """One kind of question. A template is a surface: other words, other punctuation, the same thing asked."""

    name: str
    category: str
    templates: int
    make: Make
    solve: Solve
    weight: float = 1.0
    """Its share of its category, relative to the other families there."""


def quiz(head: str, asked: list[tuple[str, str]], worked: int, end: str) -> Spans:
    """A document with a list of questions: the first few are answered as examples, each of the others is a span."""
    before, spans = head + "".join(f"{question}{answer}{end}" for question, answer in asked[:worked]), []
    for question, answer in asked[worked:]:
        spans.append((before + question, answer))
        before = end
    return spans


def prompts(spans: Spans) -> list[tuple[str, str]]:
    """The questions of a document: each prompt with its answer, earlier answers masked."""
    found, before = [], ""
    for text, answer in spans:
        found.append((before + text, answer))
        before += text + MASK
    return found
