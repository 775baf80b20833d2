"""The items of a batch -> its unique texts and who competes with whom. Pure; no vectors, no model.

A text stands once in a batch, whoever uses it. For every anchor a row says which texts are its negatives: the bundle's own
(at most `max_negatives` of them, drawn anew each step) and, if wanted, the positives of the other bundles. Another bundle's
positive is no negative where it would be a false one: the anchor or positive itself, or any known event of the sense.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crucible.contrast.textset import TextSet

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
NO_SENSE = -1


@dataclass(frozen=True)
class Senses:
    """What is known about meaning: the sense of every item, and every (sense, text) that some item shows."""

    of_item: IntArray
    same_text: IntArray
    """For every text id a number that is equal for texts a reader would call the same."""
    events: IntArray
    """Sorted keys of (sense, same_text) pairs."""

    def hold(self, sense: IntArray, text: IntArray) -> BoolArray:
        """Whether the text is a known event of the sense."""
        keys = _key(sense, self.same_text[text], len(self.same_text))
        at = np.searchsorted(self.events, keys)
        found: BoolArray = (at < len(self.events)) & (sense != NO_SENSE)
        found[found] = self.events[at[found]] == keys[found]
        return found


def senses(of_item: IntArray, same_text: IntArray, items: TextSet) -> Senses:
    both = np.concatenate([items.anchors, items.positives]).astype(np.int64)
    keys = _key(np.concatenate([of_item, of_item]), same_text[both], len(same_text))
    known = np.concatenate([of_item, of_item]) != NO_SENSE
    return Senses(of_item, same_text, np.unique(keys[known]))


def _key(sense: IntArray, text: IntArray, texts: int) -> IntArray:
    return sense * np.int64(texts) + text


@dataclass(frozen=True)
class Rivals:
    """`texts[anchors[i]]` is compared with `texts[positives[i]]` and every `texts[j]` where `negatives[i, j]`."""

    texts: IntArray
    """Ids of the unique texts of the batch, ascending."""
    anchors: IntArray
    positives: IntArray
    negatives: BoolArray

    @property
    def parts(self) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
        return self.texts, self.anchors, self.positives, self.negatives


def rivals(
    items: TextSet, known: Senses, rows: IntArray, *, seed: int, step: int, max_negatives: int, in_batch: bool
) -> Rivals:
    row, own = _own_negatives(items, rows, seed, step, max_negatives)
    anchors, positives = items.anchors[rows].astype(np.int64), items.positives[rows].astype(np.int64)
    texts, place = np.unique(np.concatenate([anchors, positives, own]), return_inverse=True)
    size = len(rows)
    negatives = np.zeros((size, len(texts)), dtype=np.bool_)
    negatives[row, place[2 * size :]] = True
    if in_batch:
        one, other = np.nonzero(_may_compete(known, rows, anchors, positives))
        negatives[one, place[size : 2 * size][other]] = True
    return Rivals(texts, place[:size], place[size : 2 * size], negatives)


def _own_negatives(items: TextSet, rows: IntArray, seed: int, step: int, most: int) -> tuple[IntArray, IntArray]:
    """The row in the batch and the text id of each chosen negative."""
    begin = items.offsets[rows]
    counts = items.offsets[rows + 1] - begin
    columns = np.arange(int(counts.max(initial=0)))
    there = columns < counts[:, None]
    chosen = np.broadcast_to(columns, there.shape)
    if most and len(columns) > most:
        # Raw bits and a stable sort: NumPy promises the bits of a generator, not its own way of choosing.
        philox = np.random.Philox(key=key(seed, "negatives"), counter=step << 64)
        bits = philox.random_raw(there.size).reshape(there.shape) >> np.uint64(1)
        bits[~there] = np.uint64(1) << np.uint64(63)
        chosen = np.argsort(bits, axis=1, kind="stable")[:, :most]
        there = np.take_along_axis(there, chosen, axis=1)
    row = np.nonzero(there)[0]
    return row, items.negatives[(begin[:, None] + chosen)[there]].astype(np.int64)


def _may_compete(known: Senses, rows: IntArray, anchors: IntArray, positives: IntArray) -> BoolArray:
    """[i, j]: whether the positive of j may be a negative of i."""
    size = len(rows)
    sense = known.of_item[rows]
    text = known.same_text
    said = text[positives][None, :]
    own = (said == text[anchors][:, None]) | (said == text[positives][:, None])
    pairs = np.broadcast_to(sense[:, None], (size, size)), np.broadcast_to(positives[None, :], (size, size))
    # The positive of a bundle of the same sense is an event of that sense, so this covers it, too.
    false: BoolArray = own | known.hold(*pairs)
    return ~false


def key(seed: int, purpose: str) -> int:
    """A key for a counter-based generator: other purposes and other seeds share no random bits."""
    return int.from_bytes(hashlib.sha256(f"train {seed} {purpose}".encode()).digest()[:16], "big")
