"""A course -> a sentence-transformers model with all its weights trained, by the library's own trainer. No head, no cache.

Batches, rivals and loss are those of the head, so the two differ in what is trained and in nothing else. Dropout is seeded
anew at every step, so a resumed run draws what the run it continues would have drawn. On a CPU the result is exact for a
given number of threads (OMP_NUM_THREADS, or all of them).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crucible.contrast.encode import Encoder
from crucible.contrast.encoders import foreign, sentence_transformers
from crucible.contrast.progress import Progress
from crucible.contrast.train import checkpoint, threads
from crucible.contrast.train.batch import key
from crucible.contrast.train.checkpoint import Found
from crucible.contrast.train.course import Course
from crucible.contrast.train.head import info_nce, learning_rate, normalised
from crucible.contrast.train.log import Journal
from crucible.contrast.train.stopping import Stop
from crucible.documents import new_folder
from crucible.errors import BadConfig


@dataclass(frozen=True)
class Uncached:
    """An encoder whose vectors are not kept: nobody asks for those of a model half way again."""

    below: Encoder
    cheap: ClassVar[bool] = True

    @property
    def id(self) -> str:
        return self.below.id

    @property
    def digest(self) -> str:
        return self.below.digest

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        return self.below.encode(texts, progress)


def train_full(course: Course, start: Found, journal: Journal) -> None:
    """From `start` to the last step; the finished model is left in the run's checkpoint/."""
    _require_packages()
    if course.device not in ("cpu", "cuda", "cuda:0"):
        raise BadConfig(
            f"a whole model is trained on the first card, not on {course.device}",
            fix=f"CUDA_VISIBLE_DEVICES={course.device.partition(':')[2]} crucible train … --device cuda",
        )
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the libraries are loaded: nothing here may ask a network
    stop, count = Stop(), threads.available()
    with foreign.quiet(), _without_bars(), threads.fixed(course.device, count):
        trainer = _trainer(course, journal, stop)
        if course.evaluates_at(start.step):  # killed between the checkpoint and its evaluation
            course.evaluated(start.step, _encoder(course, start.step))
        if start.step < course.steps:
            with stop.holding():
                trainer.train(resume_from_checkpoint=str(start.folder) if start.folder else None)
        elif start.folder:
            trainer._load_from_checkpoint(str(start.folder))
        stop.deliver()
        with new_folder(course.run.checkpoint) as draft:
            trainer.save_model(str(draft))
            checkpoint.sync_files(draft)


def _require_packages() -> None:
    missing = [package for package in ("sentence_transformers", "accelerate", "datasets") if find_spec(package) is None]
    if missing:
        raise BadConfig(
            f"model.train: full needs the package {missing[0]}, which is not installed",
            fix="pip install 'crucible-ml[finetune]', or train a head: --model.train head",
        )


def _encoder(course: Course, step: int) -> Encoder:
    return Uncached(sentence_transformers.by_path_or_name(str(course.run.step(step)), course.device))


def _model(course: Course) -> Any:
    from sentence_transformers import SentenceTransformer

    folder = getattr(course.encoder, "_folder", None)
    if not isinstance(folder, Path):
        raise BadConfig(
            f"model.encoder {course.encoder.id!r} cannot be trained in full",
            fix="Use minilm or st:FOLDER, or model.train: head.",
        )
    with foreign.Reading(folder, "a sentence-transformers model"):
        return SentenceTransformer(str(folder), device=course.device, local_files_only=True).float()


def _trainer(course: Course, journal: Journal, stop: Stop) -> Any:
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from transformers import PrinterCallback

    class Trainer(SentenceTransformerTrainer):  # type: ignore[misc]
        """The library's loop with our batches, our loss, and checkpoints that are whole or not there."""

        def get_train_dataloader(self) -> Any:
            # A row of the dataset is a step: its batch is a function of the step, so skipping on resume costs nothing.
            loader = torch.utils.data.DataLoader(self.train_dataset, batch_size=1, collate_fn=self.data_collator)
            return self.accelerator.prepare(loader)

        def training_step(self, *args: Any, **more: Any) -> Any:
            threads.hold(course.device, threads.available())
            torch.manual_seed(key(course.seed, f"dropout {self.state.global_step}") % 2**63)
            self.last_loss = super().training_step(*args, **more)
            return self.last_loss

        def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **more: Any) -> Any:
            who = [inputs.pop(name) for name in _RIVALS]
            y = normalised(model(inputs)["sentence_embedding"].float())
            return info_nce(y, who, course.config.model.temperature)

        def _save_checkpoint(self, *args: Any, **more: Any) -> None:
            step = self.state.global_step
            if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
                raise journal.broken_weights(step)
            journal.sync()
            with checkpoint.saving(course.run, step, journal.sha256) as draft:
                self.args.output_dir = str(draft)
                super()._save_checkpoint(*args, **more)
                (written,) = draft.glob("checkpoint-*")
                for path in written.iterdir():
                    path.rename(draft / path.name)
                written.rmdir()
            course.saved(step)
            if course.evaluates_at(step) and not stop.asked:
                with stop.passing():
                    course.evaluated(step, _encoder(course, step))

        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            """The model alone: no pickled arguments, no model card that would ask the hub who its parent is."""
            self.model.save_pretrained(output_dir, create_model_card=False)

        def add_model_card_callback(self, *args: Any) -> None:
            """No card: the run folder says more than it could."""

    model = _model(course)
    args = SentenceTransformerTrainingArguments(
        output_dir=str(course.run.checkpoints),
        max_steps=course.steps,
        per_device_train_batch_size=course.config.training.batch_size,
        max_grad_norm=0.0,  # clipped where the norm is measured, in the callback
        use_cpu=course.device == "cpu",
        bf16=course.bf16,
        seed=course.seed % 2**32,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    args._n_gpu = min(args.n_gpu, 1)  # several cards would split the batch, and its rivals with it
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_dict({"step": list(range(course.steps))}),
        loss=torch.nn.Identity(),  # compute_loss has its own
        data_collator=_Collator(course, model),
        optimizers=_optimisers(course, model),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_callback(course, journal, stop, trainer))
    return trainer


_RIVALS = ("anchors", "positives", "negatives")


class _Collator:
    """One row, the number of a step -> the tokens of its batch's texts and who competes with whom."""

    valid_label_columns: ClassVar[list[str]] = []

    def __init__(self, course: Course, model: Any) -> None:
        self._course, self._model = course, model
        self._prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None

    def __call__(self, rows: list[dict[str, int]]) -> dict[str, Any]:
        import torch

        course, step = self._course, rows[0]["step"]
        texts, *who = course.rivals(course.sampler.batch(step).items, step).parts
        tokens = self._model.preprocess([course.items.set.texts[i] for i in texts.tolist()], prompt=self._prompt)
        return dict(tokens) | dict(zip(_RIVALS, map(torch.from_numpy, who), strict=True))


def _optimisers(course: Course, model: Any) -> tuple[Any, Any]:
    """AdamW that decays matrices and leaves biases and norms alone; the rate is the schedule's own, so it starts from 1."""
    import torch

    training = course.config.training
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=1.0)
    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: learning_rate(training, step))


def _callback(course: Course, journal: Journal, stop: Stop, trainer: Any) -> Any:
    import torch
    from transformers import TrainerCallback

    class Callback(TrainerCallback):  # type: ignore[misc]
        """Clips, writes the journal, and says when to save and when to stop."""

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            most = course.config.training.gradient_clip or math.inf
            norm = float(torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), most))
            step, lr = state.global_step, learning_rate(course.config.training, state.global_step)
            # Before the update: a loss that is not finite ends the run here, with the weights as they were.
            journal.step(step + 1, float(trainer.last_loss), lr, norm, course.sampler.batch(step))

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
            control.should_save = course.saves_at(state.global_step) or stop.asked
            control.should_training_stop = control.should_training_stop or stop.asked
            return control

    return Callback()


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """The library draws one for every file it reads or writes."""
    from transformers.utils import logging

    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()
