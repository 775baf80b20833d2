"""A word of the dictionary and a text -> whether the text uses it, in whatever form. English only; guesses no meaning.

Regular endings are undone by the rules of WordNet's own `morphy`, plus doubled consonants (`swanning`). Irregular forms stand
in irregular.txt, so that every WordNet folder is read alike, with or without its exception lists.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_ENDINGS = {
    "noun": ("s>", "ses>s", "xes>x", "zes>z", "ches>ch", "shes>sh", "men>man", "ies>y"),
    "verb": ("s>", "ies>y", "es>e", "es>", "ied>y", "ed>e", "ed>", "ing>e", "ing>"),
    "adj": ("er>", "est>", "er>e", "est>e", "ier>y", "iest>y"),
    "adv": (),
}
_DOUBLING = ("ed", "ing", "er", "est")
_TOKEN = re.compile(r"[\w'.-]+")
_EDGES = ".'-"

Forms = list[frozenset[str]]


def forms(text: str, pos: str) -> Forms:
    """For each word of the text, every dictionary word it may be a form of."""
    return [_token_forms(token.strip(_EDGES), pos) for token in _TOKEN.findall(text.lower())]


def uses(lemma: str, text_forms: Forms) -> bool:
    """All words of the lemma in their order; others may stand between them (`look the word up`)."""
    waiting = [part.strip(_EDGES) for part in lemma.lower().split("_")]
    for word in text_forms:
        if waiting[0] in word:
            waiting.pop(0)
            if not waiting:
                return True
    return False


@functools.lru_cache(maxsize=1 << 16)
def _token_forms(token: str, pos: str) -> frozenset[str]:
    """`bed-hops` is a form of itself, of `bed` and of `hop`; `king's` of `king`."""
    parts = {token, token.removesuffix("'s"), *token.split("-")}
    return frozenset(base for part in parts if part for base in _bases(part, pos))


def _bases(token: str, pos: str) -> set[str]:
    found = {token} | _irregular().get((pos, token), set())
    for rule in _ENDINGS[pos]:
        ending, _, instead = rule.partition(">")
        if token.endswith(ending) and len(token) > len(ending):
            found.add(token.removesuffix(ending) + instead)
    for ending in _DOUBLING:
        stem = token.removesuffix(ending)
        if stem != token and len(stem) > 2 and stem[-1] == stem[-2]:
            found.add(stem[:-1])
    return found


@functools.cache
def _irregular() -> dict[tuple[str, str], set[str]]:
    table: dict[tuple[str, str], set[str]] = {}
    for line in Path(__file__).with_name("irregular.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pos, form, *bases = line.split()
            table.setdefault((pos, form), set()).update(bases)
    return table
