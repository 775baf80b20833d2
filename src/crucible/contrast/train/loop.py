"""A course and base vectors -> a trained head, step by step, with checkpoints to go on from. Evaluates nothing itself.

On a CPU the result is the same bytes every time: one thread, deterministic kernels, and every draw a function of (seed,
purpose, step), so that a run killed at any moment ends with the weights it would have had.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from crucible.contrast.encode import vectors_for
from crucible.contrast.encoders import arrays
from crucible.contrast.encoders.arrays import Arrays
from crucible.contrast.encoders.head import ABOUT, WEIGHTS, About, Below, HeadEncoder, Kind, Trained, shapes
from crucible.contrast.train import checkpoint, threads
from crucible.contrast.train.checkpoint import Found
from crucible.contrast.train.course import Course
from crucible.contrast.train.head import Head, first_weights, learning_rate, moment_shapes
from crucible.contrast.train.log import Journal
from crucible.contrast.train.stopping import Stop
from crucible.documents import new_folder, write_bytes, write_json
from crucible.kernel import digest

_MOMENTS = "optimiser.npz"


def train_head(course: Course, vectors: npt.NDArray[np.float32], start: Found, journal: Journal) -> None:
    """From `start` to the last step; the finished head is left in the run's checkpoint/."""
    with threads.fixed(course.device, 1):
        head = _restored(course, vectors.shape[1], start)
        _stepped(course, vectors, start.step, journal, head)
        _write_final(course, head.weights())


def _stepped(course: Course, vectors: npt.NDArray[np.float32], done: int, journal: Journal, head: Head) -> None:
    temperature, training = course.config.model.temperature, course.config.training
    x, stop = head.vectors(vectors), Stop()
    if course.evaluates_at(done):  # killed between the checkpoint and its evaluation
        _evaluate(course, head, done)
    with stop.holding():
        for step in range(done, course.steps):
            batch = course.sampler.batch(step)
            loss, norm = head.step(x, course.rivals(batch.items, step), temperature, step)
            done = step + 1
            journal.step(done, loss, learning_rate(training, step), norm, batch)
            if course.saves_at(done) or stop.asked:
                _save(course, journal, head, done)
            if stop.asked:
                break
            if course.evaluates_at(done):
                with stop.passing():
                    _evaluate(course, head, done)
    stop.deliver()


def _evaluate(course: Course, head: Head, step: int) -> None:
    weights = head.weights()
    name, kind = f"head:{course.run.step(step)}", _kind(course.config.model.hidden)
    sha256 = digest.of_bytes(arrays.packed(weights))
    course.evaluated(step, HeadEncoder(name, kind, sha256, weights, course.encoder, vectors_for))
    threads.hold(course.device, 1)


def _restored(course: Course, dimension: int, start: Found) -> Head:
    hidden = course.config.model.hidden
    if start.folder is None:
        weights = first_weights(dimension, hidden, course.seed)
        return Head(weights, course.config.training, course.device, bf16=course.bf16)
    weights = arrays.unpacked(start.folder / WEIGHTS, shapes(dimension, hidden), "the weights of a head")
    head = Head(weights, course.config.training, course.device, bf16=course.bf16)
    moments = arrays.unpacked(start.folder / _MOMENTS, moment_shapes(dimension, hidden), "an optimiser's memory")
    head.restore(moments)
    return head


def _save(course: Course, journal: Journal, head: Head, step: int) -> None:
    weights = head.weights()
    if not all(np.isfinite(array).all() for array in weights.values()):
        raise journal.broken_weights(step)
    journal.sync()  # first: a checkpoint must never know of steps that the log does not
    with checkpoint.saving(course.run, step, journal.sha256) as draft:
        _write_head(course, draft, weights, step)
        write_bytes(draft / _MOMENTS, arrays.packed(head.moments()))
    course.saved(step)


def _write_final(course: Course, weights: Arrays) -> None:
    with new_folder(course.run.checkpoint) as draft:
        _write_head(course, draft, weights, course.steps)


def _write_head(course: Course, folder: Path, weights: Arrays, steps: int) -> None:
    data = arrays.packed(weights)
    hidden = course.config.model.hidden
    about = About(
        schema=1,
        kind=_kind(hidden),
        base=Below(course.encoder.id, course.encoder.digest),
        dimension=weights["w"].shape[0],
        hidden=hidden,
        weights_sha256=digest.of_bytes(data),
        trained=Trained(steps, course.seed, course.config_sha256),
    )
    write_bytes(folder / WEIGHTS, data)
    write_json(folder / ABOUT, about)


def _kind(hidden: int) -> Kind:
    return "mlp" if hidden else "linear"
