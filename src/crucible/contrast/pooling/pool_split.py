"""A pool file -> a training file and a holdout that share no sense and no anchor or positive text. Runs no model.

Bundles of one sense (or lemma) are one group; groups that share an anchor or positive, as normalised text, are joined before
anything is drawn, so that no split can leak. Negatives are not joined: a negative that is an anchor or positive on the
other side is only counted. The holdout is drawn with a seed and holds as near to the wanted share as whole groups allow;
the order of the file plays no part.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from crucible.contrast.bundle import Bundle, normalised, signature
from crucible.contrast.pooling.poolfile import Entry, Manifest, PoolFile, Written, copied, publish, require_outputs
from crucible.contrast.pooling.pools import lemma_of
from crucible.contrast.read import OnProblem
from crucible.errors import BadConfig, BadData

By = Literal["sense", "lemma"]
TRAIN, HOLDOUT = 0, 1
_FACTOR = 2.0
"""A holdout more than this many times too large or too small is refused."""


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    fraction: float
    seed: int
    by: By = "sense"
    allow_shared_senses: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction < 1.0:  # also catches NaN
            raise BadConfig(
                f"the holdout fraction is {self.fraction}, it must be between 0 and 1", fix="Give e.g. 0.2."
            )


def split(source: Path, train: Path, holdout: Path, request: Request, on_problem: OnProblem | None = None) -> Manifest:
    require_outputs([train, holdout], [source])
    file = PoolFile(source, on_problem)
    joined = _joined(file, request)
    sides = _Sides(joined, _drawn(joined, request))
    lines = ((side, copied(entry)) for entry, side in sides.walk(file))
    return publish([train, holdout], lines, lambda written: _manifest(request, file, joined, sides, written))


# --- groups ------------------------------------------------------------------------------------------------------------


@dataclass
class _Joined:
    """Union-find over groups and texts; a root stands for what must stay on one side."""

    parent: list[int] = field(default_factory=list)
    node: dict[str, int] = field(default_factory=dict)
    """Group keys and normalised texts -> place in `parent`; a key begins with its kind."""
    of_bundle: list[int] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    lacking: int = 0

    def place(self, key: str) -> int:
        found = self.node.setdefault(key, len(self.parent))
        if found == len(self.parent):
            self.parent.append(found)
        return found

    def root(self, place: int) -> int:
        while self.parent[place] != place:
            self.parent[place] = self.parent[self.parent[place]]
            place = self.parent[place]
        return place

    def add(self, bundle: Bundle, request: Request) -> None:
        key, found = _group_of(bundle, request)
        self.lacking += not found
        self.groups.add(key)
        here = self.place(key)
        for text in (bundle.anchor, bundle.positive):
            self.parent[self.root(self.place("text:" + normalised(text)))] = self.root(here)
        self.of_bundle.append(here)

    def components(self) -> dict[str, int]:
        """The smallest group key of each component -> how many bundles it holds."""
        names = {self.root(self.node[key]): key for key in sorted(self.groups, reverse=True)}
        return dict(Counter(names[self.root(place)] for place in self.of_bundle))

    def component_of(self, key: str) -> int | None:
        place = self.node.get(key)
        return None if place is None else self.root(place)


def _joined(file: PoolFile, request: Request) -> _Joined:
    joined = _Joined()
    for bundle, _, _ in file:
        joined.add(bundle, request)
    return joined


def _group_of(bundle: Bundle, request: Request) -> tuple[str, bool]:
    """The key of its group, and whether the bundle names what groups are made by."""
    lemma = lemma_of(bundle) if request.by == "lemma" else None
    if request.allow_shared_senses:
        return f"bundle:{signature(bundle)}", True
    if lemma is not None:
        return f"lemma:{lemma}", True
    if bundle.sense is not None:
        return f"sense:{bundle.sense}", request.by == "sense"
    return f"anchor:{normalised(bundle.anchor)}", False


# --- drawing -----------------------------------------------------------------------------------------------------------


def _drawn(joined: _Joined, request: Request) -> set[int]:
    """The roots of the components that make the holdout."""
    sizes = joined.components()
    total, target = len(joined.of_bundle), request.fraction * len(joined.of_bundle)
    largest = max(sizes.values(), default=0)
    facts = {"bundles": total, "groups": len(joined.groups), "components": len(sizes), "largest": largest}
    shape = f"{total} bundles in {len(joined.groups)} groups by {request.by}, {len(sizes)} after joining shared texts"
    if len(sizes) < 2:
        raise BadData(
            f"cannot be split: {shape}",
            fix="Add bundles of other senses, remove texts that recur, or give --allow-shared-senses.",
            facts=facts,
        )
    order = sorted(sizes, key=lambda key: hashlib.sha256(f"pool split {request.seed} {key}".encode()).digest())
    reached, taken = nearest_sum([sizes[key] for key in order], target)
    left, wanted = total - reached, total - target  # the training side is held to the same
    if not (target / _FACTOR <= reached <= target * _FACTOR and wanted / _FACTOR <= left <= wanted * _FACTOR):
        raise BadData(
            f"no holdout near {request.fraction:g} of the bundles: whole groups allow {reached} of {total} "
            f"({reached / total:.3f}); {shape}, the largest holds {largest}",
            fix=f"Ask for --holdout-fraction {reached / total:.3f}"
            + (", split --by sense" if request.by == "lemma" else "")
            + ", or give more bundles that share no texts.",
            facts=facts | {"nearest": reached},
        )
    return {joined.root(joined.node[order[place]]) for place in taken}


def nearest_sum(sizes: Sequence[int], target: float) -> tuple[int, list[int]]:
    """The sum nearest to the target that some of the sizes make, but not none or all of them, and their places.

    The sum is exact: bit n of a number says whether n can be reached. The places are those that a draw in the given order
    takes, changed only as far as the sum needs, so that large groups have their chance as well as small ones.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for place, size in enumerate(sizes):
        places[size].append(place)
    kinds = sorted(places)
    reach = [1]
    for size in kinds:
        reach.append(_with(reach[-1], size, len(places[size])))
    total = sum(sizes)
    best = next(n for n in _outward(target, total) if reach[-1] >> n & 1)
    wish, left = Counter[int](), best
    for size in sizes:
        if size / 2 <= left:  # what sticks out by less than half is nearer to the sum with it than without it
            wish[size] += 1
            left -= size
    left, taken = best, []
    for place in range(len(kinds) - 1, -1, -1):
        size = kinds[place]
        choices = range(min(len(places[size]), left // size) + 1)
        near = (take for take in _outward(wish[size], choices[-1] + 1, 0) if reach[place] >> (left - take * size) & 1)
        take = next(near)
        taken += places[size][:take]
        left -= take * size
    return best, sorted(taken)


def _with(reach: int, size: int, count: int) -> int:
    """What can be reached with up to `count` more of `size`: by doubling, not one by one."""
    part = 1
    while count:
        step = min(part, count)
        reach |= reach << (step * size)
        count -= step
        part *= 2
    return reach


def _outward(target: float, end: int, begin: int = 1) -> Iterator[int]:
    """From `begin` to before `end`, the nearest to the target first; the smaller of two that are equally near."""
    low = min(max(math.floor(target), begin - 1), end - 1)
    high = low + 1
    while low >= begin or high < end:
        if high >= end or (low >= begin and target - low <= high - target):
            yield low
            low -= 1
        else:
            yield high
            high += 1


# --- writing -----------------------------------------------------------------------------------------------------------


class _Sides:
    """Goes through the file a second time, tells each bundle its side, and checks what came out from the texts themselves."""

    def __init__(self, joined: _Joined, held: set[int]) -> None:
        self.joined, self.held = joined, held
        self.texts: dict[str, int] = defaultdict(int)
        self.senses: dict[str, int] = defaultdict(int)
        """A bit for each side it was seen on."""
        self.signatures: Counter[str] = Counter()
        self.crossing = [[0, 0], [0, 0]]
        """By side: bundles, and negatives, that are an anchor or positive of the other side."""

    def walk(self, file: PoolFile) -> Iterator[tuple[Entry, int]]:
        for place, entry in zip(self.joined.of_bundle, file, strict=True):
            side = HOLDOUT if self.joined.root(place) in self.held else TRAIN
            self._check(entry.bundle, side)
            yield entry, side

    def _check(self, bundle: Bundle, side: int) -> None:
        for text in (bundle.anchor, bundle.positive):
            self.texts[normalised(text)] |= 1 << side
        if bundle.sense is not None:
            self.senses[bundle.sense] |= 1 << side
        self.signatures[signature(bundle)] += 1
        crossing = 0
        for text in bundle.negatives:
            component = self.joined.component_of("text:" + normalised(text))
            crossing += component is not None and (component in self.held) != (side == HOLDOUT)
        self.crossing[side][0] += crossing > 0
        self.crossing[side][1] += crossing

    def leaks(self) -> dict[str, object]:
        def counted(side: int) -> dict[str, int]:
            return {"bundles": self.crossing[side][0], "negatives": self.crossing[side][1]}

        return {
            "shared_texts": sum(sides == 3 for sides in self.texts.values()),
            "shared_senses": sum(sides == 3 for sides in self.senses.values()),
            "train_negatives_in_holdout": counted(TRAIN),
            "holdout_negatives_in_train": counted(HOLDOUT),
        }


def _manifest(request: Request, file: PoolFile, joined: _Joined, sides: _Sides, written: Sequence[Written]) -> Manifest:
    components = joined.components()
    notes = []
    if joined.lacking:
        notes.append(
            f"{joined.lacking} bundles have no {request.by}: the next best thing, sense or anchor, groups them"
        )
    if len(components) < len(joined.groups):
        notes.append(
            f"{len(joined.groups)} groups were joined to {len(components)} by shared texts; "
            f"the largest holds {max(components.values())} bundles"
        )
    if file.numbered:
        notes.append(f"{file.numbered} bundles have no id of their own: in the outputs they are numbered anew")
    if file.header:
        notes.append("the header line was left out: it describes the whole file")
    return Manifest(
        command="pool split",
        inputs=[file.described()],
        outputs=list(written),
        seed=request.seed,
        settings={
            "holdout_fraction": request.fraction,
            "by": request.by,
            "allow_shared_senses": request.allow_shared_senses,
        },
        counts={
            "bundles": file.bundles,
            "train": written[TRAIN].bundles,
            "holdout": written[HOLDOUT].bundles,
            "groups": len(joined.groups),
            "components": len(components),
            "largest_component": max(components.values()),
        },
        duplicates={"signature": sum(n - 1 for n in sides.signatures.values())},
        leaks=sides.leaks(),
        notes=notes,
    )
