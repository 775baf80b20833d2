"""Read this first. A configuration -> a trained encoder, its scoreboards and the evidence, in one folder; resumes itself.

    inputs -> items, tiers, pools        items.py      (what is left out, and what leaks into the eval sets, is noted)
    guardrails before                    contrast/guardrails.py
    the base encoder on both truths      measure.py
    steps, log, checkpoints              loop.py for a head, full.py for a whole model; log.py, checkpoint.py
    the trained encoder on both truths   measure.py
    guardrails after, the ledger closed

Called again on a folder that is not finished it goes on from the newest sound checkpoint; on a finished one it returns.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np

import crucible
from crucible.contrast import encode, exposure, guardrails, settings
from crucible.contrast.config import Config
from crucible.contrast.curriculum import Sampler
from crucible.contrast.encode import Encoder
from crucible.contrast.encoders.sentence_transformers import choose_device
from crucible.contrast.evaluate import Subject
from crucible.contrast.guardrails import Finding, Truths
from crucible.contrast.train import checkpoint, full, items, measure, sources
from crucible.contrast.train.course import Course
from crucible.contrast.train.exposed import exposed
from crucible.contrast.train.items import Items
from crucible.contrast.train.log import Hooks, Journal
from crucible.contrast.train.loop import train_head
from crucible.contrast.train.measure import Bench
from crucible.contrast.train.rundir import METRICS, RunDir, RunInfo, placed, require_same_run
from crucible.documents import to_json, write_bytes, writing
from crucible.errors import BadConfig, GuardrailTripped, Mistake, SubjectFailed
from crucible.kernel import digest, ledger

__all__ = ["Hooks", "train"]


def train(
    config: Config,
    out: Path,
    *,
    seed: int | None = None,
    overrides: Sequence[str] = (),
    enforce: bool = False,
    hooks: Hooks | None = None,
) -> RunInfo:
    """`overrides` are guardrails whose findings do not stop the run; `enforce` lets critical and severe ones stop it."""
    config, seed = placed(config), config.experiment.seeds[0] if seed is None else seed
    overrides = guardrails.overridable(overrides)
    settings.require_files(config)
    if find_spec("torch") is None:
        raise BadConfig(
            "training needs the package torch, which is not installed", fix="pip install 'crucible-ml[torch]'"
        )
    encode.by_name(config.model.encoder, config.device.type)  # a wrong name or device leaves no folder behind
    if config.device.type not in ("auto", "cpu"):
        choose_device(config.device.type)
    data = sources.digests(config.data)
    with _alone(out) as run:
        info = _opened(run, config, seed, data)
        if info is not None and info.state == "done":
            return info
        return _Run(run, config, seed, data, overrides, enforce or config.guardrails.enforce, hooks or Hooks()).go(info)


class _Run:
    """One call of `train` on a folder that is not finished; `info` is what run.json says, and only `_now` changes it."""

    def __init__(
        self,
        run: RunDir,
        config: Config,
        seed: int,
        data: dict[str, str],
        overrides: Sequence[str],
        enforce: bool,
        hooks: Hooks,
    ) -> None:
        self.run, self.config, self.seed, self.data = run, config, seed, data
        self.overrides, self.enforce, self.hooks = list(overrides), enforce, hooks
        self.began = time.monotonic()

    def go(self, earlier: RunInfo | None) -> RunInfo:
        config, run = self.config, self.run
        device = choose_device(config.device.type)
        encoder = encode.by_name(config.model.encoder, config.device.type)
        mine, vectors = self._items(encoder)
        sampler = Sampler(mine.groups, config.curriculum, batch_size=config.training.batch_size, seed=self.seed)
        expected = exposure.per_pool(config.curriculum, config.training, mine.sizes())
        journal = Journal(run, sampler, len(mine), config.training.steps, self.hooks)
        start = checkpoint.newest(run)
        bench = measure.bench(run, config.data, self.hooks.encoding)
        notes = [*mine.notes, *sampler.notes, *start.notes, *_notes(config, device), *bench.notes]
        self.info = self._first(earlier, encoder, mine, notes, device)
        self._begun(earlier, start.step, mine, encoder)
        for note in self.info.notes:
            self._say(note)
        before = self._judged(guardrails.before(config, mine.sizes(), mine.duplicates, mine.without_metadata), [])
        base = bench.measure(encoder, Subject(), "base-")
        self._now(metrics=self.info.metrics | measure.metrics(base, "base_"), steps_done=start.step)
        course = Course(
            run=run,
            config=config,
            config_sha256=self.info.config_sha256,
            seed=self.seed,
            items=mine,
            sampler=sampler,
            encoder=encoder,
            device=device,
            bf16=device != "cpu" and config.device.precision != "fp32",
            evaluated=lambda step, made: self._evaluated(bench, step, made),
            saved=lambda step: self._now(steps_done=step, exposure=exposed(expected, sampler, journal.counts)),
        )
        shutil.rmtree(run.checkpoint, ignore_errors=True)  # of a call that was killed while it finished
        try:
            with journal.begin(start.prefix.size, before):
                if vectors is None:
                    full.train_full(course, start, journal)
                else:
                    train_head(course, vectors, start, journal)
        except SubjectFailed:
            self._now(state="blocked")
            raise
        self._now(steps_done=course.steps, exposure=exposed(expected, sampler, journal.counts))
        return self._finished(bench, base, journal.findings)

    # --- the parts of the walk -----------------------------------------------------------------------------------------

    def _items(self, encoder: Encoder) -> tuple[Items, encode.Vectors | None]:
        """Items with tiers, and the vectors of their texts where a head is trained on them."""
        mine = items.read(self.config.data)
        head = self.config.model.train == "head"
        if not head and not mine.untiered:
            return mine, None
        vectors, report = encode.vectors_for(encoder, mine.set.texts, self.hooks.encoding)
        for warning in report.warnings:
            self._say(warning)
        return items.tiered(mine, vectors, encoder.id), vectors if head else None

    def _first(self, earlier: RunInfo | None, encoder: Encoder, mine: Items, notes: list[str], device: str) -> RunInfo:
        named = self.config.experiment.name or f"{self.config.model.train} on {encoder.id}"
        if earlier and earlier.encoder["digest"] != encoder.digest:
            raise BadConfig(
                f"{self.run.path} was begun with {encoder.id} of digest {earlier.encoder['digest'][:16]}…, "
                f"which now has {encoder.digest[:16]}…",
                fix="Restore the model, or give another --output-dir.",
            )
        empty = dict.fromkeys((*METRICS, *(f"base_{name}" for name in METRICS)))
        return RunInfo(
            schema=1,
            state="training",
            seed=self.seed,
            steps=self.config.training.steps,
            steps_done=0,
            encoder={"id": encoder.id, "digest": encoder.digest},
            subject=named,
            train=self.config.model.train,
            data=self.data,
            groups=mine.sizes(),
            exposure=earlier.exposure if earlier else {},
            notes=list(dict.fromkeys([*(earlier.notes if earlier else []), *notes])),
            overrides=list(dict.fromkeys([*(earlier.overrides if earlier else []), *self.overrides])),
            metrics=empty,
            checkpoint=None,
            config_sha256=digest.of_file(self.run.config),
            versions={"crucible": crucible.__version__, "numpy": np.__version__, "torch": version("torch")},
            device=device,
            seconds=earlier.seconds if earlier else 0.0,
        )

    def _begun(self, earlier: RunInfo | None, step: int, mine: Items, encoder: Encoder) -> None:
        """Items and ledger, then run.json: from there on the folder is a run that can be resumed."""
        run, info = self.run, self.info
        with writing(run.items) as stream:
            for line in mine.lines():
                stream.write(msgspec.json.encode(line) + b"\n")
        body = {"config_sha256": info.config_sha256, "data": info.data, "seed": info.seed, "encoder": info.encoder}
        known = any(ledger.read(run.ledger, "run.started")) if run.ledger.exists() else False
        if not known:
            ledger.append(run.ledger, "run.started", body | {"versions": info.versions, "overrides": info.overrides})
        elif earlier:
            ledger.append(
                run.ledger, "run.resumed", {"step": step, "overrides": info.overrides, "versions": info.versions}
            )
        self._now(steps_done=step)

    def _judged(self, found: Sequence[Finding], before: list[Finding]) -> list[Finding]:
        """All findings are written before one of them stops the run."""
        judged, tripped = list(before), None
        for finding in found:
            try:
                judged += guardrails.judged([finding], self.overrides, enforce=self.enforce)
            except GuardrailTripped as error:
                judged.append(finding)
                tripped = tripped or error
        for finding in judged[len(before) :]:
            if self.hooks.on_finding:
                self.hooks.on_finding(finding)
        write_bytes(self.run.findings, b"".join(msgspec.json.encode(one) + b"\n" for one in judged))
        if tripped:
            self._now(state="blocked")
            raise tripped
        return judged

    def _evaluated(self, bench: Bench, step: int, made: Encoder) -> None:
        """Under a name of its own: a model half way is no seed of the finished one."""
        bench.measure(made, Subject(f"{self.info.subject}, step {step}", self.seed), f"step-{step:08d}-")

    def _finished(self, bench: Bench, base: Truths, findings: list[Finding]) -> RunInfo:
        run, config = self.run, self.config
        name = f"head:{run.path}" if config.model.train == "head" else f"st:{run.checkpoint}"
        trained = encode.by_name(name, config.device.type)
        truths = bench.measure(trained, Subject(self.info.subject, self.seed))
        self._now(metrics=self.info.metrics | measure.metrics(truths), checkpoint=trained.digest)
        found = guardrails.after(config, base, truths)
        if config.guardrails.overfitting_detection:
            found += guardrails.cliff(measure.points(run, truths, config.training.steps))
        self._judged(found, findings)
        self._now(state="done", write=False)
        last = to_json(self.info)
        files = {path.relative_to(run.path).as_posix(): digest.of_file(path) for path in run.files()}
        body = {"files": files | {run.info.name: digest.of_bytes(last)}, "checkpoint": self.info.checkpoint}
        ledger.append(run.ledger, "run.finished", body | {"metrics": self.info.metrics})
        write_bytes(run.info, last)
        return self.info

    def _now(self, *, write: bool = True, **changes: object) -> None:
        spent = time.monotonic() - self.began
        self.began += spent
        self.info = msgspec.structs.replace(self.info, seconds=self.info.seconds + spent, **changes)
        if write:
            self.run.write_info(self.info)

    def _say(self, note: str) -> None:
        if self.hooks.on_note:
            self.hooks.on_note(note)


# --- the folder --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[RunDir]:
    """Two processes that train into one folder would mix their logs: the second is refused."""
    if out.exists() and not out.is_dir():
        raise BadConfig(f"{out} is a file, not a place for a run", fix="Give another --output-dir.")
    out.mkdir(parents=True, exist_ok=True)
    handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield RunDir(out)
    except BlockingIOError:
        raise Mistake(
            f"another process is training in {out}", fix="Wait for it, or give another --output-dir."
        ) from None
    finally:
        os.close(handle)


def _opened(run: RunDir, config: Config, seed: int, data: dict[str, str]) -> RunInfo | None:
    """What an earlier call left here; the settings are written where there was none."""
    info = run.read_info()
    if info is not None:
        require_same_run(run, info, config, seed, data)
        return info
    # A call that was killed at its very beginning left these.
    strange = [
        path
        for path in run.path.iterdir()
        if path not in (run.config, run.items, run.ledger) and path.suffix != ".part"
    ]
    if strange:
        raise BadConfig(
            f"{run.path} holds other files ({strange[0].name}), and no run",
            fix="Give an --output-dir that is empty or new.",
        )
    write_bytes(run.config, settings.dump(config))
    return None


def _notes(config: Config, device: str) -> list[str]:
    found = []
    if config.training.warmup_steps >= config.training.steps:
        warmup, steps = config.training.warmup_steps, config.training.steps
        found.append(f"warmup_steps {warmup} is the whole run of {steps}: the learning rate never reaches its value")
    if device == "cpu" and config.device.precision == "bf16":
        found.append("bf16 is for CUDA: on this CPU everything is fp32")
    for name in ("frozen_eval", "organic_eval"):
        if getattr(config.data, name) is None:
            found.append(f"data.{name} is not set: one of the two truths is not measured")
    return found
