"""A capsule -> whether everything in it is what it claims, down to the scores recomputed from the weights. Changes nothing.

    1  not a byte of the file was changed            capsule_file.require_whole
    2  every file is what the manifest says          capsule.extract, into a folder that is removed afterwards
    3  the ledger is unbroken and ends at the head that the manifest names; its last word about every file is true
    4  the scoreboards say what their items, the records and run.json say
    5  the pins of the scoreboards are those of the eval data
    6  a production build chose the seed that its rule chooses
    7  the checkpoint, on the base encoder, gives the recorded margins again

Nothing here is a signature: whoever packs a capsule can put anything into it. Compare the digest of the capsule, or the head of
its ledger, with one that was published.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from crucible.contrast import encode, evalset, scoreboard, versus
from crucible.contrast.capsules import capsule
from crucible.contrast.capsules.capsule import SEEDS, SELECTION, About
from crucible.contrast.capsules.capsule_file import broken
from crucible.contrast.encode import Encoder
from crucible.contrast.evalset import EvalSet
from crucible.contrast.guardrails import Truths
from crucible.contrast.progress import Progress
from crucible.contrast.score import score
from crucible.contrast.scoreboard import EvalHeader, TierStats
from crucible.contrast.sweeps import selection
from crucible.contrast.train import measure
from crucible.contrast.train.rundir import RunDir, RunInfo
from crucible.documents import read_json
from crucible.errors import BadConfig, BadData, DeviceUnavailable, IntegrityBroken, Mistake, NotComparable
from crucible.kernel import digest, ledger, record

TOLERANCE = 1e-5
"""On margins: another CPU, or a GPU, adds the same numbers in another order."""
_RANKS = 0.01


class Recomputed(msgspec.Struct, frozen=True):
    """One scoreboard, made again from the checkpoint."""

    items: int
    largest_difference: float
    """Of a margin."""
    passes: int
    passes_recorded: int


class Report(msgspec.Struct, frozen=True):
    capsule: str
    sha256: str
    files: int
    bytes: int
    run: dict[str, str | int]
    base: dict[str, str]
    ledger_head: str
    holds: list[str]
    """What was checked, in the order of the module's list."""
    recomputed: dict[str, Recomputed]
    not_recomputed: dict[str, str]
    """Scoreboard -> why not."""
    metrics: dict[str, float | None]
    selection: selection.Selection | None


@dataclass(frozen=True)
class _Open:
    """A capsule that was unpacked for looking at it."""

    path: Path
    folder: Path
    about: About
    run: RunDir
    info: RunInfo
    boards: dict[str, versus.Loaded]
    """`frozen`, `organic`, `base-frozen`, … as far as there are any."""


def verify(
    path: Path,
    *,
    recompute: bool = True,
    expected: str | None = None,
    data: Mapping[str, Path] | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Report:
    """Raises IntegrityBroken with the name of the file that is not what it should be.

    `data` are eval sets for a capsule without its own, by `frozen` and `organic`; what cannot be recomputed is said.
    """
    sha256 = capsule.capsule_file_is_whole(path)
    if expected is not None and sha256 != expected.lower():
        raise broken(path, f"its digest is {sha256}, expected is {expected}")
    with tempfile.TemporaryDirectory(prefix="crucible-capsule-") as made:
        folder = Path(made)
        about = capsule.extract(path, folder)
        with _faults_of(path, folder):
            opened = _opened(path, folder, about)
            holds = ["every byte of the file", f"the digests of {len(about.manifest)} files"]
            holds += [_evidence(opened), _scoreboards(opened)]
            sets = _own_sets(opened)
            chosen = _selection(opened)
        sets |= _given_sets(opened, {name: place for name, place in (data or {}).items() if name not in sets})
        with _faults_of(path, folder):
            again, missing = _recompute(opened, sets, device, progress) if recompute else ({}, {})
        if sets:
            holds.append(f"the pins of the eval data ({', '.join(sets)})")
        if chosen:
            holds.append(f"seed {chosen.chosen} is {chosen.rule}")
        if again:
            holds.append(f"the scores of {', '.join(again)}, recomputed from the weights")
    return Report(
        capsule=str(path),
        sha256=sha256,
        files=len(about.manifest),
        bytes=sum(file.size for file in about.manifest.values()),
        run=about.run,
        base=about.base,
        ledger_head=about.ledger.digest,
        holds=holds,
        recomputed=again,
        not_recomputed=missing,
        metrics=opened.info.metrics,
        selection=chosen,
    )


@contextlib.contextmanager
def _faults_of(path: Path, folder: Path) -> Iterator[None]:
    """Whatever is wrong inside is a fault of the capsule, and is named as it is called there."""
    try:
        yield
    except (IntegrityBroken, Mistake) as error:
        message = error.message.replace(f"{folder}/", "").removeprefix(f"{path}: ")
        raise IntegrityBroken(f"{path}: {message}", fix=error.fix, facts={**error.facts, "file": str(path)}) from None


def _opened(path: Path, folder: Path, about: About) -> _Open:
    run = RunDir(folder)
    info = capsule.finished(run)
    names = [*capsule.TRUTHS, *(f"base-{name}" for name in capsule.TRUTHS)]
    boards = {name: versus.load(run.scoreboard(name)) for name in names if run.scoreboard(name).exists()}
    for name, one in boards.items():
        if (one.board.eval_header.items or {}).get("file") != run.board_items(name).name or one.items is None:
            raise broken(path, "does not name its items", f"scoreboards/{name}.json")
    return _Open(path, folder, about, run, info, boards)


# --- the evidence ------------------------------------------------------------------------------------------------------------


def _evidence(opened: _Open) -> str:
    about, run = opened.about, opened.run
    head = ledger.verify(run.ledger)
    if head != about.ledger:
        raise broken(
            opened.path,
            f"ends at {head.digest[:16]}…, {capsule.ABOUT} says {about.ledger.digest[:16]}…",
            run.ledger.name,
        )
    closed = capsule.closing(run)
    if (closed.checkpoint, about.base) != (opened.info.checkpoint, opened.info.encoder):
        raise broken(opened.path, "names another checkpoint or base encoder than the ledger", run.info.name)
    return f"the ledger, {head.lines} lines up to {head.digest[:16]}…"


def _scoreboards(opened: _Open) -> str:
    """Each scoreboard says what its items say and what was recorded of it; run.json says what they say."""
    lines = ledger.read(opened.run.ledger, "record")
    recorded = [record.from_builtins(line.entry.body, f"ledger.jsonl:{line.entry.n}") for line in lines]
    for name, one in opened.boards.items():
        inside = f"scoreboards/{name}.json"
        header, items = one.board.eval_header, one.items or {}
        for group, stats in {"overall": one.board.overall, **one.board.by_tier}.items():
            margins = [item.margin for item in items.values() if group in ("overall", item.tier)]
            if (stats.n, stats.correct) != (len(margins), sum(margin > 0 for margin in margins)):
                raise broken(opened.path, f"{group} does not count what its items count", inside)
        metrics = scoreboard.metrics(one.board)
        if not any(r.artefact == header.model["digest"] and r.metrics == metrics for r in recorded):
            raise broken(opened.path, "no record in the ledger has its numbers", inside)
        if name in capsule.TRUTHS and _pin(opened.about, name) != header.pin.digest:
            raise broken(opened.path, f"its pin is not the one in {capsule.ABOUT}", inside)
        expected = opened.info.encoder["digest"] if name.startswith("base-") else opened.info.checkpoint
        if header.model["digest"] != expected:
            raise broken(opened.path, "was made with another model than this run's", inside)
    told = measure.metrics(_truths(opened, "")) | measure.metrics(_truths(opened, "base-"), "base_")
    if told != opened.info.metrics:
        raise broken(opened.path, "its metrics are not those of the scoreboards", opened.run.info.name)
    return f"the numbers of {len(opened.boards)} scoreboards, of their items and their records"


def _pin(about: About, name: str) -> str | None:
    return about.pins[name].pin if name in about.pins else None


def _truths(opened: _Open, before: str) -> Truths:
    found = [opened.boards.get(f"{before}{name}") for name in capsule.TRUTHS]
    frozen, organic = (one.board if one else None for one in found)
    return Truths(frozen, organic)


def _own_sets(opened: _Open) -> dict[str, EvalSet]:
    """The truths whose data was packed, each with the pin of its scoreboard."""
    found = {}
    for name, own in opened.about.data.items():
        packed = any(file == own.path or file.startswith(f"{own.path}/") for file in opened.about.manifest)
        if not packed or name not in opened.boards:
            raise broken(opened.path, f"names {name} data that is not there", capsule.ABOUT)
        header = opened.boards[name].board.eval_header
        found[name], differences = _loaded(opened.folder / own.path, header)
        if differences:
            raise broken(opened.path, f"is not what {name}.json was made on: {differences}", own.path)
    return found


def _given_sets(opened: _Open, given: Mapping[str, Path]) -> dict[str, EvalSet]:
    found = {}
    for name, place in given.items():
        if name in opened.boards:
            found[name], differences = _loaded(place, opened.boards[name].board.eval_header)
            if differences:
                raise NotComparable(
                    f"{place} is not what {name}.json of {opened.path} was made on: {differences}",
                    fix="Give the eval set with the fingerprint of the scoreboard.",
                )
    return found


def _loaded(place: Path, header: EvalHeader) -> tuple[EvalSet, str]:
    version = header.version or None
    held = evalset.load(place, version, header.seed if version is None else None)
    return held, "; ".join(map(str, held.pin.differences(header.pin)))


def _selection(opened: _Open) -> selection.Selection | None:
    path = opened.folder / SELECTION
    if not path.exists():
        return None
    told = read_json(path, selection.Selection, "a selection of a seed", "Build the capsule again.")
    if told.chosen != opened.info.seed:
        raise broken(opened.path, f"chose seed {told.chosen}, the run in the capsule has {opened.info.seed}", SELECTION)
    for one in told.seeds:
        run = opened.run if one.seed == told.chosen else RunDir(opened.folder / SEEDS / f"seed-{one.seed}")
        info = capsule.finished(run)
        if (info.seed, info.checkpoint, info.metrics) != (one.seed, one.checkpoint, one.metrics):
            raise broken(opened.path, f"says of seed {one.seed} what its run.json does not say", SELECTION)
        if capsule.last_word(run).files.get(run.info.name) != digest.of_file(run.info):
            raise broken(
                opened.path, "is not the one its ledger closed with", f"{SEEDS}/seed-{one.seed}/{run.info.name}"
            )
    if selection.select(told.seeds) != told:
        raise broken(opened.path, "its rule chooses another seed than the one that was packed", SELECTION)
    return told


# --- recomputing -------------------------------------------------------------------------------------------------------------


def _recompute(
    opened: _Open, sets: Mapping[str, EvalSet], device: str, progress: Progress | None
) -> tuple[dict[str, Recomputed], dict[str, str]]:
    """Every scoreboard whose data and encoder are here; and why the others are not made again."""
    done: dict[str, Recomputed] = {}
    missing = {
        name: "its eval data is not in the capsule" for name in opened.boards if name.removeprefix("base-") not in sets
    }
    try:
        base = encode.by_name(opened.about.base["id"], device)
        reason = "" if base.digest == opened.about.base["digest"] else "another model has this name here"
    except (BadConfig, BadData, DeviceUnavailable) as error:
        reason = error.message
    if reason:
        return {}, dict.fromkeys(opened.boards, f"needs {opened.about.base['id']}: {reason}")
    trained = encode.by_name(_checkpoint(opened), device)
    for name, one in opened.boards.items():
        held = sets.get(name.removeprefix("base-"))
        if held is not None:
            encoder = base if name.startswith("base-") else trained
            done[name] = _again(opened, name, one, held, encoder, progress)
    return done, missing


def _checkpoint(opened: _Open) -> str:
    if opened.info.train == "head":
        return f"head:{opened.folder}"
    return f"st:{opened.run.checkpoint}"


def _again(
    opened: _Open, name: str, one: versus.Loaded, held: EvalSet, encoder: Encoder, progress: Progress | None
) -> Recomputed:
    inside = f"scoreboards/{name}.json"
    if encoder.digest != one.board.eval_header.model["digest"]:
        raise broken(opened.path, "was made with another checkpoint than the one in the capsule", inside)
    # The weights are run, whatever an earlier evaluation left in the cache; the base encoder is this machine's own.
    vectors, _ = encode.vectors_for(encoder, held.items.texts, progress, cache=name.startswith("base-"))
    scores = score(held.items, vectors)
    items = one.items or {}
    if set(items) != set(held.items.ids):
        raise broken(opened.path, "its items are not those of the eval set", inside)
    before = np.array([items[own].margin for own in held.items.ids])
    now = scores.margin
    gap = float(np.abs(now - before).max(initial=0.0))
    flipped = (now > 0) != (before > 0)
    if gap > TOLERANCE:
        worst = held.items.ids[int(np.abs(now - before).argmax())]
        raise broken(opened.path, f"recomputed, the margin of {worst!r} differs by {gap:.2g}", inside)
    overall, by_tier = scoreboard.statistics(scores, held.tier)
    made, told = {"overall": overall, **by_tier}, {"overall": one.board.overall, **one.board.by_tier}
    _require_close(opened, inside, made, told, int(flipped.sum()))
    return Recomputed(len(now), gap, overall.correct, one.board.overall.correct)


def _require_close(
    opened: _Open, inside: str, made: Mapping[str, TierStats], told: Mapping[str, TierStats], flips: int
) -> None:
    """`flips` items stand within the tolerance of a tie: only by so many may a count differ."""
    for group, now in made.items():
        before = told[group]
        for field in TierStats.__struct_fields__:
            a, b = getattr(now, field), getattr(before, field)
            if (a is None) != (b is None) or (a is not None and abs(a - b) > _allowed(field, now.n, flips)):
                raise broken(opened.path, f"recomputed, {group}.{field} is {a}, recorded is {b}", inside)


def _allowed(field: str, n: int, flips: int) -> float:
    if field == "n":
        return 0.0
    if field in ("correct", "n_ties"):
        return float(flips)
    if field in ("accuracy", "pass_rate"):
        return flips / max(n, 1) + 1e-12
    return _RANKS if "rank" in field else TOLERANCE


def refused(report: Report) -> Mistake | None:
    """What to raise where something that was to be recomputed was not."""
    if not report.not_recomputed:
        return None
    reasons = "; ".join(dict.fromkeys(report.not_recomputed.values()))
    return Mistake(
        f"{report.capsule}: every digest holds, but not recomputed: {reasons}",
        fix="Install or give what is missing (--frozen-eval, --organic-eval), or be content with --no-recompute.",
        facts={"not_recomputed": report.not_recomputed},
    )
