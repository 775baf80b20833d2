"""A model in training -> its scoreboards on both truths, written into the run and recorded in its ledger. Judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.contrast import evalset, evaluate, scoreboard
from crucible.contrast.config import Data
from crucible.contrast.encode import Encoder
from crucible.contrast.evalset import EvalSet
from crucible.contrast.evaluate import Subject
from crucible.contrast.guardrails import Point, Truths
from crucible.contrast.progress import Progress
from crucible.contrast.scoreboard import Scoreboard
from crucible.contrast.tiers import TIERS
from crucible.contrast.train.rundir import METRICS, RunDir
from crucible.errors import BadData
from crucible.kernel import digest, ledger, record

NAMES = ("frozen", "organic")


@dataclass(frozen=True)
class Bench:
    """Both eval sets, loaded once; none where one is not configured."""

    run: RunDir
    sets: dict[str, EvalSet | None]
    progress: Progress | None

    @property
    def notes(self) -> list[str]:
        frozen = self.sets["frozen"]
        if frozen is None or frozen.tier_distribution.get("tier3"):
            return []
        return [f"{frozen.name} has no tier 3, so retention has no number (crucible evalset freeze assigns tiers)"]

    def measure(self, encoder: Encoder, subject: Subject, before: str = "") -> Truths:
        """`before` is what the scoreboards' names begin with: `base-`, `step-00000500-`. What is there is not made again."""
        boards = {name: self._board(one, encoder, subject, f"{before}{name}") for name, one in self.sets.items()}
        return Truths(boards["frozen"], boards["organic"])

    def _board(self, held: EvalSet | None, encoder: Encoder, subject: Subject, name: str) -> Scoreboard | None:
        if held is None:
            return None
        known = self._known(name)
        if (
            known
            and known.eval_header.model["digest"] == encoder.digest
            and not known.eval_header.pin.differences(held.pin)
        ):
            return known
        made = evaluate.evaluate(held, encoder, subject, encoding=self.progress)
        # The record first: a scoreboard that is there says that its record is, too.
        self._recorded(record.to_builtins(evaluate.to_record(made)))
        self.run.scoreboards.mkdir(exist_ok=True)
        return evaluate.write(made, self.run.scoreboard(name), self.run.board_items(name))

    def _known(self, name: str) -> Scoreboard | None:
        path = self.run.scoreboard(name)
        if not path.exists() or not self.run.board_items(name).exists():
            return None
        try:
            return scoreboard.load(path)
        except BadData:  # from another version, or damaged: made again
            return None

    def _recorded(self, body: dict[str, object]) -> None:
        own = digest.of_json(body)
        if not any(digest.of_json(line.entry.body) == own for line in ledger.read(self.run.ledger, "record")):
            ledger.append(self.run.ledger, "record", body)


def bench(run: RunDir, data: Data, progress: Progress | None) -> Bench:
    given = (data.frozen_eval, data.organic_eval)
    sets = {name: evalset.load(Path(path)) if path else None for name, path in zip(NAMES, given, strict=True)}
    return Bench(run, sets, progress)


def metrics(truths: Truths, before: str = "") -> dict[str, float | None]:
    """Under the names of RunInfo; null where the eval set is not configured or has no such tier."""
    frozen, organic = truths.frozen, truths.organic
    tier3 = frozen.by_tier[TIERS[2]] if frozen else None
    values = (
        tier3.pass_rate if tier3 else None,
        frozen.overall.pass_rate if frozen else None,
        tier3.q10_margin if tier3 else None,
        organic.overall.pass_rate if organic else None,
        organic.overall.q10_margin if organic else None,
    )
    return {f"{before}{name}": value for name, value in zip(METRICS, values, strict=True)}


def points(run: RunDir, last: Truths, steps: int) -> Sequence[Point]:
    """Both truths at every step that was measured, for the cliff."""
    found = []
    for path in sorted(run.scoreboards.glob("step-*-frozen.json")):
        other = run.scoreboard(path.stem.replace("frozen", "organic"))
        if other.exists():
            both = Truths(scoreboard.load(path), scoreboard.load(other))
            found += _point(both, int(path.stem.split("-")[1]))
    return [*found, *_point(last, steps)]


def _point(both: Truths, step: int) -> list[Point]:
    values = metrics(both)
    frozen, organic = values["frozen_tier3"], values["organic_holdout"]
    return [] if frozen is None or organic is None else [Point(step, frozen, organic)]
