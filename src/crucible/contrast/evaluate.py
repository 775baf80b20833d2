"""Read this first. An eval set and an encoder -> a scoreboard, per-item results and a Record: one walk, top to bottom."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from crucible.contrast import encode, scoreboard
from crucible.contrast.encode import Encoder, EncodeReport
from crucible.contrast.evalset import EvalSet
from crucible.contrast.progress import Progress
from crucible.contrast.score import Scores, score
from crucible.contrast.scoreboard import EvalHeader, Scoreboard
from crucible.contrast.textset import NO_TIER
from crucible.contrast.tiers import SMALL_TIER, TIERS
from crucible.documents import write_json, writing
from crucible.errors import BadData
from crucible.kernel import digest, record
from crucible.kernel.record import Measured, Record


@dataclass(frozen=True)
class Evaluation:
    """What one model did on one eval set; `write()` puts it on disk, `to_record()` into a ledger."""

    evalset: EvalSet
    encoder: Encoder
    scores: Scores
    board: Scoreboard
    encoded: EncodeReport


class Subject(msgspec.Struct, frozen=True):
    """Who is measured, where several checkpoints are seeds of one model; by default the encoder is its own subject."""

    name: str | None = None
    seed: int | None = None


def evaluate(
    evalset: EvalSet,
    encoder: Encoder,
    subject: Subject | None = None,
    *,
    encoding: Progress | None = None,
    scoring: Progress | None = None,
    device: str = "cpu",
) -> Evaluation:
    """`device` is where bundles are scored; where texts are encoded is the encoder's own business."""
    vectors, encoded = encode.vectors_for(encoder, evalset.items.texts, progress=encoding)
    scores = score(evalset.items, vectors, progress=scoring, device=device)
    _refuse_non_finite(scores, evalset)
    overall, by_tier = scoreboard.statistics(scores, evalset.tier)
    header = EvalHeader(
        source_hash=evalset.source_sha256[:16],
        seed=evalset.seed,
        item_count=len(evalset.items),
        tier_distribution=evalset.tier_distribution,
        version=evalset.version,
        fingerprint=evalset.fingerprint,
        eval_set=evalset.name,
        model={"id": encoder.id, "digest": encoder.digest},
        subject=(subject and subject.name) or encoder.id,
        model_seed=subject.seed if subject else None,
        recorded=_against_recorded(scores, evalset),
        pin=evalset.pin,
    )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Evaluation(evalset, encoder, scores, Scoreboard(header, overall, by_tier, now, encoder.id), encoded)


def caveats(evaluation: Evaluation) -> list[str]:
    """What a reader must know before believing a number."""
    header = evaluation.board.eval_header
    found = []
    if evaluation.evalset.pin.facts.get("reference_encoder") == evaluation.encoder.digest:
        found.append(
            f"{header.model['id']} is the reference encoder that tiered this eval set: "
            "the higher tiers are hard for it by construction, so its tier numbers say nothing about it"
        )
    small = [f"{name} ({stats.n})" for name, stats in evaluation.board.by_tier.items() if 0 < stats.n < SMALL_TIER]
    if small:
        found.append(f"fewer than {SMALL_TIER} items in {', '.join(small)}: quantiles are optimistic")
    claimed = evaluation.evalset.items.header
    if claimed and claimed.eval_count not in (None, header.item_count):
        found.append(f"the file's header speaks of {claimed.eval_count} items, it holds {header.item_count}")
    if sum(header.tier_distribution.values()) < header.item_count:
        found.append("this file carries no tiers; `crucible evalset freeze` assigns them with a reference encoder")
    return found


def write(evaluation: Evaluation, output: Path, items: Path) -> Scoreboard:
    """Items first, then the scoreboard that names them with their digest; returns it as written."""
    with writing(items) as stream:
        for line in _item_lines(evaluation):
            stream.write(line)
    named = {"file": os.path.relpath(items, output.parent), "sha256": digest.of_file(items)}
    header = msgspec.structs.replace(evaluation.board.eval_header, items=named)
    board = msgspec.structs.replace(evaluation.board, eval_header=header)
    write_json(output, board)
    return board


def to_record(evaluation: Evaluation) -> Record:
    header = evaluation.board.eval_header
    return record.make(
        pin=evaluation.evalset.pin,
        subject={"model": header.subject},
        artefact=evaluation.encoder.digest,
        seed=header.model_seed,
        outcome=Measured(),
        metrics=scoreboard.metrics(evaluation.board),
        names=scoreboard.METRICS,
        detail={"eval_set": header.eval_set, "fingerprint": header.fingerprint, "encoder": evaluation.encoder.id},
    )


class ItemResult(msgspec.Struct, frozen=True, gc=False):
    """One line of the per-item results; the tier is null in a file that records none."""

    id: str
    danger: float
    margin: float
    rank: int
    tier: str | None


def _item_lines(evaluation: Evaluation) -> Iterator[bytes]:
    scores = evaluation.scores
    names = dict(enumerate(TIERS)) | {NO_TIER: None}
    columns = zip(
        evaluation.evalset.items.ids,
        scores.danger.tolist(),
        scores.margin.tolist(),
        scores.rank.tolist(),
        evaluation.evalset.tier.tolist(),
        strict=True,
    )
    encoder = msgspec.json.Encoder()
    for own, danger, margin, rank, tier in columns:
        yield encoder.encode(ItemResult(own, danger, margin, rank, names[tier])) + b"\n"


def _refuse_non_finite(scores: Scores, evalset: EvalSet) -> None:
    bad = np.flatnonzero(~np.isfinite(scores.danger))
    if bad.size:
        raise BadData(
            f"the danger of {bad.size} bundles is not finite, the first is {evalset.items.ids[int(bad[0])]!r}",
            fix="Check the model's vectors: a NaN would corrupt every sort and every rank after it.",
        )


def _against_recorded(scores: Scores, evalset: EvalSet) -> dict[str, float] | None:
    """How far the dangers are from those the file recorded; null where it recorded none."""
    recorded = np.asarray(evalset.items.danger)
    known = np.isfinite(recorded)
    if not known.any():
        return None
    return {"items": int(known.sum()), "max_difference": float(np.abs(scores.danger[known] - recorded[known]).max())}
