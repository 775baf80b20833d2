"""Read this first for mining. Events and an encoder -> organic tier-3 bundles that many lineups agree on: one walk, in order.

    candidates.py   which (anchor, positive) pairs are tried, and what may stand against each
    topk.py         the nearest of them, exactly
    lineups.py      N lineups of each candidate -> passes
    mining_work.py  what a killed run has already done
    mined.py        results -> the bundles, the quarantine and the stats on disk

A *pass* here means dangerous: a lineup in which some negative comes as close as the threshold asks. Same events, encoder and
settings give the same bytes, whatever the order of the file, the number of threads and the number of times it was killed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import encode, read, textset
from crucible.contrast.bundle import Bundle
from crucible.contrast.corpus import events as event_files
from crucible.contrast.encode import Encoder
from crucible.contrast.mining import mined
from crucible.contrast.mining.candidates import Candidate, Catalogue, Chosen, Known, Pos, choose, key_of, text_rows
from crucible.contrast.mining.lineups import line_up
from crucible.contrast.mining.mined import Calibration, MiningStats, Result, Settings, Targets, Tested
from crucible.contrast.mining.mining_work import Work
from crucible.contrast.mining.topk import Index, Rows, similarities
from crucible.contrast.score import score
from crucible.contrast.tiers import SMALL_TIER, TIERS
from crucible.contrast.train import sources
from crucible.documents import require_target
from crucible.errors import BadConfig, BadData
from crucible.kernel import digest
from crucible.kernel.stats import quantile

_CANDIDATES_AT_ONCE = 2048
"""What is searched, drawn and stored together: as much as a killed run loses."""
_REVISION = 1
"""Raise it when the same input gives another result: work of an older run is then not taken up."""

Watch = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""What to call a long step -> where its (done, total) goes."""
Pool = tuple[Rows, npt.NDArray[np.float64]]
"""Events and their similarity to the anchor, nearest first."""


@dataclass
class Inputs:
    """The files of a run, read; `bundles` are the tier-3 bundles of the existing file."""

    catalogue: Catalogue
    bundles: list[Bundle]
    sha256: dict[str, str]
    notes: list[str] = field(default_factory=list)


def mine(
    source: Path,
    encoder: Encoder,
    settings: Settings,
    targets: Targets,
    watch: Watch,
    *,
    existing: Path | None = None,
    at_once: int = _CANDIDATES_AT_ONCE,
) -> MiningStats:
    """Writes output, quarantine and stats, and returns the stats. A run that was killed is taken up where it was."""
    began = time.monotonic()
    _refuse_targets(source, existing, targets)
    settings = settings.complete(with_existing=existing is not None)
    inputs = _inputs(source, existing, settings)
    chosen = _chosen(source, inputs, settings)
    threshold, calibration = _threshold(inputs, encoder, settings, watch)
    texts, rows = text_rows(inputs.catalogue, chosen.candidates)
    with watch("encoding") as progress:
        vectors, report = encode.vectors_for(encoder, texts, progress=progress)
    inputs.notes += report.warnings
    space = Space(inputs.catalogue, vectors, rows, settings)
    with Work(targets.work, _key(encoder, settings, threshold, inputs, vectors)) as work, watch("mining") as progress:
        results: list[Result] = []
        for number, start in enumerate(range(0, len(chosen.candidates), at_once)):
            part = chosen.candidates[start : start + at_once]
            results += work.done(number, functools.partial(space.test, part, threshold))
            progress(len(results), len(chosen.candidates))
        if work.reused:
            inputs.notes.append(f"{work.reused} of the candidates' {number + 1} parts were done by an earlier run")
        tested = Tested(inputs.catalogue, chosen, results, settings, threshold, calibration)
        _refuse_all_too_few(source, tested, work)
        about = {"encoder": {"id": encoder.id, "digest": encoder.digest}, "inputs": inputs.sha256}
        stats = mined.write(tested, targets, about, inputs.notes, began)
        work.remove()
    return stats


def _refuse_targets(source: Path, existing: Path | None, targets: Targets) -> None:
    seen: dict[Path, str] = {source.resolve(): "--events"}
    if existing is not None:
        seen[existing.resolve()] = "--existing-tier3"
    for name, path in targets.named():
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise BadConfig(f"{name} and {other} are both {path}", fix="Give them different files.")
        require_target(path)
        if path.exists() and not path.is_file():
            raise BadConfig(f"{name} {path} is no ordinary file", fix="Give the path of a file.")


def _inputs(source: Path, existing: Path | None, settings: Settings) -> Inputs:
    read.require_file(source)
    sha256 = {str(source): digest.of_file(source)} if source.is_file() else {}
    catalogue = Catalogue(event_files.read(source), settings.style)
    bundles: list[Bundle] = []
    notes = []
    if existing is not None:
        sourced = sources.read(existing)
        if any(one.tier for one in sourced):
            sourced = [one for one in sourced if one.tier == TIERS[2]]
            if not sourced:
                raise BadData.at(existing, "carries tiers, but none is tier 3", fix="Give one with tier-3 bundles.")
        bundles = [one.bundle for one in sourced]
        sha256[str(existing)] = digest.of_tree(existing) if existing.is_dir() else digest.of_file(existing)
        nameless = sum(bundle.sense is None for bundle in bundles)
        if nameless:
            notes.append(f"{nameless} existing tier-3 bundles name no sense: they are told apart by their texts alone")
    return Inputs(catalogue, bundles, sha256, notes)


def _chosen(source: Path, inputs: Inputs, settings: Settings) -> Chosen:
    def choice(allow_known_senses: bool) -> Chosen:
        return choose(
            inputs.catalogue,
            Known(inputs.bundles),
            per_sense=settings.candidates_per_sense,
            seed=settings.seed,
            limit=settings.max_candidates,
            allow_known_senses=allow_known_senses,
        )

    found = choice(settings.allow_known_senses)
    if not found.candidates and found.known_sense and not settings.allow_known_senses:
        inputs.notes.append(
            f"all {found.known_sense} candidates are of senses that the existing tier 3 holds: new pairs of them are mined"
        )
        found = choice(True)
    if found.candidates:
        return found
    known = found.known_sense + found.known_pair
    events, style = len(inputs.catalogue.events), inputs.catalogue.style
    if known:
        problem = f"all {known} candidates are pairs that the existing tier 3 already holds"
        raise BadData.at(source, problem, fix="Mine other events, or raise --candidates-per-sense.")
    raise BadData.at(
        source,
        f"{events} events give no candidate of style {style}",
        fix="A candidate needs an example and another text of the same sense: an example, or a gloss with --style glosses.",
    )


def _threshold(inputs: Inputs, encoder: Encoder, settings: Settings, watch: Watch) -> tuple[float, Calibration | None]:
    """As given, or a quantile of the dangers that the mining model gives the existing tier 3."""
    if settings.threshold is not None:
        return settings.threshold, None
    assert settings.calibrate_to is not None
    items = textset.build(inputs.bundles)
    with watch("encoding tier 3") as progress:
        vectors, report = encode.vectors_for(encoder, items.texts, progress=progress)
    inputs.notes += report.warnings
    dangers = score(items, vectors).danger
    if len(items) < SMALL_TIER:
        inputs.notes.append(f"the threshold is a quantile of only {len(items)} dangers")
    found = Calibration(settings.calibrate_to, len(items), float(dangers.min()), float(dangers.max()))
    return quantile(dangers.tolist(), settings.calibrate_to), found


def _key(
    encoder: Encoder, settings: Settings, threshold: float, inputs: Inputs, vectors: npt.NDArray[np.float32]
) -> str:
    """What results depend on: everything that was read and asked for, and the very vectors."""
    pieces = (vectors[start : start + 4096].tobytes() for start in range(0, len(vectors), 4096))
    return digest.of_json(
        {
            "revision": _REVISION,
            "encoder": encoder.digest,
            "vectors": digest.of_chunks(pieces),
            "settings": msgspec.to_builtins(settings),
            "style": inputs.catalogue.style,
            "threshold": threshold,
            "inputs": sorted(inputs.sha256.values()),
        }
    )


def _refuse_all_too_few(source: Path, tested: Tested, work: Work) -> None:
    if any(result.rejected is None for result in tested.results):
        return
    work.remove()
    most = max(result.tested for result in tested.results)
    settings, reasons = tested.settings, ", ".join(f"{name} {count}" for name, count in tested.unfit().items())
    raise BadData.at(
        source,
        f"none of {len(tested.results)} candidates has {settings.enough} distinct lineups, the most is {most} ({reasons})",
        fix="Lower --lineups or the negatives a lineup holds (--within, --sibling, --cross-lemma), raise --top-k-cross, "
        "or mine more events.",
    )


class Space:
    """The catalogue and its vectors: anchors -> pools -> lineups. Keeps one search matrix at a time."""

    def __init__(self, catalogue: Catalogue, vectors: npt.NDArray[np.float32], rows: Rows, settings: Settings) -> None:
        self.catalogue, self.vectors, self.rows, self.settings = catalogue, vectors, rows, settings
        self.index: tuple[Pos, Index] | None = None

    def test(self, candidates: Sequence[Candidate], threshold: float) -> list[Result]:
        """Every candidate against its lineups; the result of one does not depend on the others."""
        anchors = list(dict.fromkeys(one.anchor for one in candidates))
        slot = {anchor: place for place, anchor in enumerate(anchors)}
        pools = self.pools(anchors)
        events = np.concatenate([numbers for trio in pools for numbers, _ in trio])
        sizes = np.asarray([len(numbers) for trio in pools for numbers, _ in trio])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        pairs = np.asarray([(one.anchor, one.positive) for one in candidates])
        outcome = line_up(
            keys=np.asarray([key_of(self.settings.seed, one.id) for one in candidates], dtype=np.uint64),
            positives=self._measured(pairs[:, 0], np.arange(len(pairs) + 1), pairs[:, 1]),
            owners=np.asarray([slot[one.anchor] for one in candidates], dtype=np.int32),
            pools=ends,
            similarities=np.concatenate([found for trio in pools for _, found in trio]),
            asked=self.settings.asked,
            lineups=self.settings.lineups,
            threshold=threshold,
        )
        results = []
        for place, one in enumerate(candidates):
            first = 3 * slot[one.anchor]
            chosen = [at for at in outcome.negatives[place].tolist() if at >= 0]
            sources = (np.searchsorted(ends[first : first + 4], chosen, side="right") - 1).tolist()
            tested = int(outcome.tested[place])
            results.append(
                Result(
                    passes=int(outcome.passes[place]),
                    tested=tested,
                    danger=float(outcome.danger[place]) if tested else None,
                    negatives=[(int(events[at]), source) for at, source in zip(chosen, sources, strict=True)],
                    pools=sizes[first : first + 3].tolist(),
                    rejected=self._unfit(sizes[first : first + 3].tolist(), tested),
                )
            )
        return results

    def _unfit(self, sizes: Sequence[int], tested: int) -> str | None:
        if self.settings.within and not sizes[0]:
            return "no_within_lemma_negative"  # as in `bundles build`: without one the word is no puzzle
        if not any(sizes):
            return "no_negative"
        return "too_few_lineups" if tested < self.settings.enough else None

    def pools(self, anchors: Sequence[int]) -> list[tuple[Pool, Pool, Pool]]:
        """The within-lemma, sibling and cross-lemma pool of every anchor; the three share no text."""
        catalogue, settings = self.catalogue, self.settings
        taken = [catalogue.taken(anchor) for anchor in anchors]
        both = list(zip(anchors, taken, strict=True))
        within = [catalogue.within(*one) if settings.within else [] for one in both]
        related = [catalogue.siblings(*one) if settings.sibling else [] for one in both]
        nearest_within = self._closest(anchors, within, settings.top_k_within)
        siblings = self._closest(anchors, related, settings.top_k_sibling)
        across = self._across(both, [numbers.tolist() for numbers, _ in siblings])
        return list(zip(nearest_within, siblings, across, strict=True))

    def _measured(
        self, anchors: npt.ArrayLike, offsets: npt.NDArray[np.int64], others: Rows
    ) -> npt.NDArray[np.float64]:
        return similarities(self.vectors, self.rows[np.asarray(anchors, dtype=np.int64)], offsets, self.rows[others])

    def _closest(self, anchors: Sequence[int], lists: Sequence[Sequence[int]], k: int) -> list[Pool]:
        """The k nearest of each anchor's own list; of equals the one with the smaller number."""
        sizes = np.asarray([len(numbers) for numbers in lists])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        numbers = np.asarray([number for one in lists for number in one], dtype=np.int32)
        found = self._measured(anchors, offsets, numbers)
        order = np.lexsort((numbers, -found, np.repeat(np.arange(len(lists)), sizes)))
        edges = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        parts = [order[begin : min(end, begin + k)] for begin, end in edges]
        return [(numbers[part], found[part]) for part in parts]

    def _across(self, anchors: Sequence[tuple[int, set[int]]], siblings: Sequence[Sequence[int]]) -> list[Pool]:
        """The nearest of all texts of the anchor's part of speech, without those that it must not get."""
        empty: Pool = (np.empty(0, dtype=np.int32), np.empty(0))
        pools = [empty] * len(anchors)
        if not self.settings.cross_lemma:
            return pools
        by_pos: dict[Pos, list[int]] = {}
        for place, (anchor, _) in enumerate(anchors):
            by_pos.setdefault(self.catalogue.events[anchor].pos, []).append(place)
        for pos, places in by_pos.items():
            columns = np.asarray(self.catalogue.columns[pos], dtype=np.int32)
            banned = [self.catalogue.not_across(*anchors[place], siblings[place]) for place in places]
            offsets = np.concatenate([[0], np.cumsum([len(one) for one in banned])])
            rows = np.asarray([column for one in banned for column in one], dtype=np.int32)
            queries = self.vectors[self.rows[[anchors[place][0] for place in places]]]
            found = self._searched(pos).nearest(queries, self.settings.top_k_cross, (offsets, rows))
            for at, place in enumerate(places):
                count = int(found.counts[at])
                pools[place] = (columns[found.rows[at, :count]], found.similarities[at, :count])
        return pools

    def _searched(self, pos: Pos) -> Index:
        if self.index is None or self.index[0] != pos:
            self.index = None  # before the next one is made: each is as large as the vectors
            self.index = pos, Index(self.vectors[self.rows[self.catalogue.columns[pos]]])
        return self.index[1]
