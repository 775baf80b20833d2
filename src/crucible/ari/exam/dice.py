"""A seed and a side -> draws: numbers, choices, shuffles and words of that side's pools. Makes no question.

Everything comes from `Random.random()` alone, the only sequence that Python promises to keep, so that an exam rebuilds on
any version. A document has dice of its own, seeded with the family's name and the document's number: adding a family or
changing a weight leaves the documents of the others as they are.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

from crucible.ari.exam import words as pools
from crucible.ari.exam.words import Side

_T = TypeVar("_T")


class Dice:
    """Draws for one document. No invented word comes twice, so that every key and every candidate is unlike the others."""

    def __init__(self, seed: bytes, side: Side, *labels: object) -> None:
        named = b"\0".join([side.encode(), *(str(label).encode() for label in labels), seed])
        self._random = random.Random(int.from_bytes(hashlib.sha512(named).digest(), "big")).random
        self._side: Side = side
        self._used: set[str] = set()

    def again(self) -> Dice:
        """The same dice without a memory of words: for rows in which a word may come back from another row."""
        other = object.__new__(Dice)
        other._random, other._side, other._used = self._random, self._side, set()
        return other

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, items: Sequence[_T]) -> _T:
        return items[int(self._random() * len(items))]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = int(self._random() * (last + 1))
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def sample(self, items: Sequence[_T], count: int) -> list[_T]:
        """Distinct places of `items`, in a random order; needs few draws when `items` is long."""
        places: list[int] = []
        while len(places) < count:
            place = int(self._random() * len(items))
            if place not in places:
                places.append(place)
        return [items[place] for place in places]

    def words(self, count: int, shape: str = "cvcvc") -> list[str]:
        """Invented words of one length; inside one call no two begin with the same two letters."""
        pool, used = pools.invented(shape, self._side), self._used
        found: list[str] = []
        heads: set[str] = set()
        while len(found) < count:
            word = pool[int(self._random() * len(pool))]
            if word[:2] not in heads and word not in used:
                used.add(word)
                heads.add(word[:2])
                found.append(word)
        return found

    def names(self, count: int, shape: str = "cvcvc") -> list[str]:
        return [word.capitalize() for word in self.words(count, shape)]

    def english(self, kind: str, count: int) -> list[str]:
        """Words of the small English pools: things, animals, labels, or whole sentences."""
        return self.sample(pools.english(kind, self._side), count)

    def letters(self, count: int, alphabet: str = pools.CONSONANTS) -> str:
        """Distinct letters."""
        return "".join(self.sample(alphabet, count))
