"""What one training run is made of and told, decided before its first step: the same for a head and for a whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crucible.contrast.config import Config
from crucible.contrast.curriculum import Sampler
from crucible.contrast.encode import Encoder
from crucible.contrast.train.batch import IntArray, Rivals, rivals
from crucible.contrast.train.items import Items
from crucible.contrast.train.rundir import RunDir

_APART = 500
"""Without a setting, checkpoints are a tenth of the run apart, and never further than this."""


@dataclass(frozen=True)
class Course:
    run: RunDir
    config: Config
    config_sha256: str
    seed: int
    items: Items
    sampler: Sampler
    encoder: Encoder
    """The one that training starts from."""
    device: str
    bf16: bool
    evaluated: Callable[[int, Encoder], None]
    """Measures the model as it is after so many steps."""
    saved: Callable[[int], None]
    """Is told of every checkpoint that is on disk."""

    @property
    def steps(self) -> int:
        return self.config.training.steps

    def saves_at(self, step: int) -> bool:
        every = self.config.experiment.checkpoint_every or min(_APART, -(-self.steps // 10))
        return step % every == 0 or step == self.steps or self.evaluates_at(step)

    def evaluates_at(self, step: int) -> bool:
        """The end is not among them: the finished model is measured on its own."""
        every = self.config.experiment.eval_every
        return every is not None and step % every == 0 and 0 < step < self.steps

    def rivals(self, rows: IntArray, step: int) -> Rivals:
        model = self.config.model
        return rivals(
            self.items.set,
            self.items.known,
            rows,
            seed=self.seed,
            step=step,
            max_negatives=model.max_negatives,
            in_batch=model.in_batch_negatives,
        )
