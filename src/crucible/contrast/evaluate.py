"""Read this first. An eval set and an encoder -> a scoreboard, per-item results and a Record: one walk, top to bottom."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crucible.contrast import encode, scoreboard
from crucible.contrast.encode import Encoder
from crucible.contrast.evalset import EvalSet
from crucible.contrast.score import Scores, score
from crucible.contrast.scoreboard import EvalHeader, Scoreboard
from crucible.contrast.tiers import TIERS
from crucible.documents import write_json, writing
from crucible.kernel import digest, record
from crucible.kernel.record import Measured, Record


@dataclass(frozen=True)
class Evaluation:
    """What one model did on one eval set; `write()` puts it on disk, `to_record()` into a ledger."""

    evalset: EvalSet
    encoder: Encoder
    scores: Scores
    board: Scoreboard


def evaluate(evalset: EvalSet, encoder: Encoder) -> Evaluation:
    vectors = encode.unit_vectors(encoder, evalset.items.texts)
    scores = score(evalset.items, vectors)
    overall, by_tier = scoreboard.statistics(scores, evalset.tier)
    manifest = evalset.manifest
    header = EvalHeader(
        source_hash=manifest.source_hash,
        seed=manifest.seed,
        item_count=manifest.item_count,
        tier_distribution=manifest.tier_distribution,
        version=manifest.version,
        fingerprint=manifest.fingerprint,
        eval_set=manifest.name,
        model={"id": encoder.id, "digest": encoder.digest},
        pin=manifest.pin,
    )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Evaluation(evalset, encoder, scores, Scoreboard(header, overall, by_tier, now, encoder.id))


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


def to_record(evaluation: Evaluation, seed: int | None = None) -> Record:
    return record.make(
        pin=evaluation.evalset.manifest.pin,
        subject={"model": evaluation.encoder.id},
        artefact=evaluation.encoder.digest,
        seed=seed,
        outcome=Measured(),
        metrics=scoreboard.metrics(evaluation.board),
        names=scoreboard.METRICS,
        detail={"eval_set": evaluation.evalset.manifest.name, "fingerprint": evaluation.evalset.manifest.fingerprint},
    )


class ItemResult(msgspec.Struct, frozen=True):
    """One line of the per-item results."""

    id: str
    danger: float
    margin: float
    rank: int
    tier: str


def _item_lines(evaluation: Evaluation) -> list[bytes]:
    scores = evaluation.scores
    columns = zip(
        evaluation.evalset.items.ids,
        scores.danger.tolist(),
        scores.margin.tolist(),
        scores.rank.tolist(),
        evaluation.evalset.tier.tolist(),
        strict=True,
    )
    encoder = msgspec.json.Encoder()
    return [encoder.encode(ItemResult(i, d, m, r, TIERS[t])) + b"\n" for i, d, m, r, t in columns]
