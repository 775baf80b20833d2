"""A prompt -> what a program that has learned nothing would answer. Pure functions; none is told more than the length.

Each steps byte by byte for as long as it is asked to. What one of these gets right, a submission gets right without any
ability: the exam has to leave them with almost nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from crucible.ari.exam.family import MASK
from crucible.ari.exam.questions import Question

Guess = Callable[[bytes, int], bytes]
_ORDER = 6
_MASK = MASK.encode()
_WORD = re.compile(rb"[A-Za-z0-9]+")


def suffix_copy(prompt: bytes, length: int) -> bytes:
    """Finds the longest end of the text that occurred before and copies the byte that followed its latest occurrence."""
    text = prompt
    for _ in range(length):
        at, size = -1, 0
        while size < len(text) - 1:
            found = text.rfind(text[len(text) - size - 1 :], 0, len(text) - 1)
            if found < 0:
                break
            at, size = found + size + 1, size + 1
        text += text[at : at + 1] if size else text[-1:]
    return text[len(prompt) :]


def prompt_ngram(prompt: bytes, length: int) -> bytes:
    """Counts what followed each context of up to six bytes and takes the most frequent follower of the longest known one."""
    text = prompt
    for _ in range(length):
        followers: Counter[int] = Counter()
        for order in range(min(_ORDER, len(text) - 1), 0, -1):
            context, at = text[-order:], text.find(text[-order:])
            while 0 <= at < len(text) - order:
                followers[text[at + order]] += 1
                at = text.find(context, at + 1)
            if followers:
                break
        text += bytes([min(followers, key=lambda byte: (-followers[byte], byte))]) if followers else text[-1:]
    return text[len(prompt) :]


def last_value(prompt: bytes, length: int) -> bytes:
    """Repeats what followed the last delimiter when it was last seen, or else the last word."""
    mark = (re.search(rb"[^A-Za-z0-9]+$", prompt) or [b""])[0]
    at = prompt.rfind(mark, 0, len(prompt) - len(mark)) if mark.strip() else -1
    if at < 0:
        words = list(_WORD.finditer(prompt, 0, len(prompt) - len(mark)))
        at, mark = (words[-1].start(), b"") if words else (0, b"")
    return _filled(prompt[at + len(mark) :], length)


def line_retrieval(prompt: bytes, length: int) -> bytes:
    """Finds the line that shares the rarest word with the question and copies what follows that word."""
    found = _retrieved(prompt)
    if found is None:
        return _filled(b"", length)
    line, key = found
    return _filled(re.sub(rb"^[^A-Za-z0-9]+", b"", line[line.index(key) + len(key) :]), length)


def line_end(prompt: bytes, length: int) -> bytes:
    """Finds the same line and copies its last word."""
    found = _retrieved(prompt)
    words = _WORD.findall(found[0]) if found else []
    return _filled(found[0][found[0].rindex(words[-1]) :] if found and words else b"", length)


def constant(questions: Sequence[Question]) -> Callable[[Question], bytes]:
    """The answer that most of the other questions of the family have: an oracle no submission has, and still worth nothing."""
    answers: dict[str, Counter[bytes]] = {}
    for question in questions:
        answers.setdefault(question.family, Counter())[question.answer] += 1

    def guess(question: Question) -> bytes:
        counted = answers[question.family]
        others = {answer: n - (answer == question.answer) for answer, n in counted.items()}
        best = min(others, key=lambda answer: (-others[answer], answer))
        return best if others[best] else b""

    return guess


GUESSES: dict[str, Guess] = {
    "longest-suffix copy": suffix_copy,
    "prompt n-gram": prompt_ngram,
    "last value": last_value,
    "line retrieval": line_retrieval,
    "line end": line_end,
}


def _retrieved(prompt: bytes) -> tuple[bytes, bytes] | None:
    """The line that fits the question best, and the rarest word they share."""
    *lines, question = [line for line in re.split(rb"\n|(?<=[.;]) ", prompt) if line.strip() and _MASK not in line] or [
        b""
    ]
    asked = [word for word in _WORD.findall(question) if len(word) > 1]
    sets = [set(_WORD.findall(line)) for line in lines]
    spread = {word: sum(word in words for words in sets) for word in asked}
    shared = [[word for word in asked if word in words] for words in sets]
    rarest = [min(words, key=lambda word: spread[word], default=None) for words in shared]
    fits = [(-spread[word], len(shared[i]), i) for i, word in enumerate(rarest) if word is not None]
    if not fits:
        return None
    place = max(fits)[2]
    key = rarest[place]
    return None if key is None else (lines[place], key)


def _filled(text: bytes, length: int) -> bytes:
    return (text + b" " * length)[:length]
