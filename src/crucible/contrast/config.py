"""The settings of a training run as one frozen block, and the rules they obey. Reading them from YAML is in `settings.py`.

Every number has its default here and nowhere else; a key that is not here is an error that names the nearest one that is.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block of the file: an unknown key in it is an error."""


class Data(_Block, frozen=True):
    bundles: tuple[str, ...] = ()
    """Training bundles: files in any accepted format, or folders of frozen eval sets; one path or a list of them."""
    frozen_eval: str | None = None
    """The first truth: what the model must not lose. A frozen eval set, or a file whose rows carry tiers."""
    organic_eval: str | None = None
    """The second truth: what it has not seen. A holdout from `crucible pool split`."""
    embeddings_cache: str | None = None


class Model(_Block, frozen=True):
    encoder: str = "minilm"
    """The encoder that training starts from, as `crucible eval --model` takes it."""
    train: Literal["head", "full"] = "head"
    """A projection head over the encoder's stored vectors, or all weights of a sentence-transformers model."""
    hidden: int = 0
    """Width of the head's hidden layer; 0 is a plain linear map."""
    temperature: float = 0.5
    """Of the contrastive loss. Lower ones learn the training bundles by heart sooner: docs/LOG.md."""
    in_batch_negatives: bool = True
    max_negatives: int = 16
    """At most this many of a bundle's own negatives in one step, drawn anew each time; 0 for all of them."""


class Training(_Block, frozen=True):
    steps: int = 10_000
    batch_size: int = 32
    learning_rate: float = 1.0e-3
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    """0 clips nothing."""
    warmup_steps: int = 500
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"


class Phase(_Block, frozen=True):
    until_step: int
    tier_probabilities: tuple[float, float, float]


class Ratios(_Block, frozen=True):
    """How the tier-3 slots are shared between the pools."""

    legacy: float = 0.75
    organic: float = 0.15
    expanded: float = 0.10


class Curriculum(_Block, frozen=True):
    mode: Literal["uniform", "phased", "phased_v2"] = "uniform"
    tier_probabilities: tuple[float, float, float] = (0.60, 0.30, 0.10)
    """Of each batch slot, at every step (`uniform`), and after the last phase (`phased`)."""
    tier_caps: tuple[int | None, int | None, int | None] = (None, None, None)
    """At most this many bundles of a tier are used at all."""
    tier3_ratios: Ratios = Ratios()
    phases: tuple[Phase, ...] = ()
    start_probabilities: tuple[float, float, float] | None = None
    end_probabilities: tuple[float, float, float] | None = None
    transition_start: int | None = None
    transition_end: int | None = None
    """`phased_v2` goes from start to end between these two steps, in a straight line."""


class Experiment(_Block, frozen=True):
    name: str | None = None
    seeds: tuple[int, ...] = (42, 123, 456)
    """A single run uses the first; a sweep and a production build use all."""
    output_dir: str | None = None
    checkpoint_every: int | None = None
    """Steps between checkpoints; null: a tenth of the run."""
    eval_every: int | None = None
    """Steps between evaluations on both truths; null: only at the end."""


class Device(_Block, frozen=True):
    type: str = "auto"
    precision: Literal["fp32", "bf16"] | None = None
    """Null: bf16 on CUDA, fp32 on a CPU."""


class Guardrails(_Block, frozen=True):
    enforce: bool = False
    """Critical and severe findings stop a run that does not override them (`--check-guardrails` sets it)."""
    dilution_warning_threshold: float = 30.0
    dilution_block_threshold: float = 10.0
    regression_threshold: float = 0.02
    overfitting_detection: bool = True
    fingerprint_strict: bool = True


class Config(_Block, frozen=True):
    data: Data = Data()
    model: Model = Model()
    training: Training = Training()
    curriculum: Curriculum = Curriculum()
    experiment: Experiment = Experiment()
    device: Device = Device()
    guardrails: Guardrails = Guardrails()
