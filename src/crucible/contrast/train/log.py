"""Steps -> lines of log.jsonl, findings, exposures so far and a report for whoever watches; and back, when a run resumes.

The log holds no times: it is the same bytes however often a run was killed. A checkpoint names the digest of the log up to
its step, so that weights are only ever continued together with the history they belong to.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast.curriculum import Batch, Sampler
from crucible.contrast.guardrails import Finding, Watch
from crucible.contrast.pooling.pools import POOLS
from crucible.contrast.progress import Progress
from crucible.contrast.train.rundir import RunDir
from crucible.documents import write_bytes
from crucible.errors import IntegrityBroken, MachineryFailed, SubjectFailed

_FIX = "Restore the run from a copy, or start another."


class LogLine(msgspec.Struct, frozen=True):
    """One step; loss and gradient norm are null where they were not finite."""

    step: int
    loss: float | None
    lr: float
    grad_norm: float | None
    tiers: tuple[int, int, int]
    pools: dict[str, int]
    drawn: list[int]


@dataclass(frozen=True)
class StepReport:
    """What a person wants to see while it runs."""

    step: int
    steps: int
    loss: float
    tiers: tuple[float, float, float]
    """Realised shares of all draws so far."""
    targets: tuple[float, float, float]
    """What they should be by now."""
    legacy: float | None
    """How often each legacy item was seen so far, on average; none where there is no legacy pool."""


@dataclass(frozen=True)
class Hooks:
    """How a run speaks to whoever started it; every one may be missing."""

    on_step: Callable[[StepReport], None] | None = None
    on_note: Callable[[str], None] | None = None
    on_finding: Callable[[Finding], None] | None = None
    encoding: Progress | None = None


class Prefix(NamedTuple):
    """The first lines of a log: their bytes and digest."""

    size: int
    sha256: str


def prefixes(path: Path, wanted: Iterable[int]) -> dict[int, Prefix]:
    """For each wanted number of lines that the log has in full; a torn last line does not count."""
    asked, running, size, found = set(wanted), hashlib.sha256(), 0, {}
    if 0 in asked:
        found[0] = Prefix(0, running.hexdigest())
    if path.exists():
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.endswith(b"\n"):
                    break
                running.update(line)
                size += len(line)
                if number in asked:
                    found[number] = Prefix(size, running.copy().hexdigest())
    return found


def read(path: Path) -> Iterator[tuple[LogLine, bytes]]:
    """The lines in order, decoded and as they stand in the file."""
    decode = msgspec.json.Decoder(LogLine).decode
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = decode(raw)
            except msgspec.DecodeError as error:
                raise IntegrityBroken(f"{path}:{number}: is no line of a log: {error}", fix=_FIX) from None
            if line.step != number:
                raise IntegrityBroken(f"{path}:{number}: is step {line.step}", fix=_FIX)
            yield line, raw


class Journal:
    """The growing record of a run. `begin` puts it at a step, `step` adds one, `sync` makes all of it survive a power cut."""

    def __init__(self, run: RunDir, sampler: Sampler, items: int, steps: int, hooks: Hooks) -> None:
        self._run, self._sampler, self._steps, self._hooks = run, sampler, steps, hooks
        self.counts: npt.NDArray[np.int64] = np.zeros(items, dtype=np.int64)
        """How often each item was drawn."""
        self.findings: list[Finding] = []
        self._watch = Watch()
        self._realised, self._wanted = np.zeros(3), np.zeros(3)
        self._running = hashlib.sha256()
        self._legacy = sampler.used.tier3["legacy"]
        self._legacy_seen = 0
        self._log: BinaryIO | None = None
        self._found: BinaryIO | None = None

    @property
    def sha256(self) -> str:
        return self._running.hexdigest()

    @contextlib.contextmanager
    def begin(self, size: int, before: list[Finding]) -> Iterator[None]:
        """Cuts the log back to its first `size` bytes and replays them; findings are those of before and of these steps."""
        log, findings = self._run.log, self._run.findings
        with _disk_faults_named(log), log.open("ab") as stream:
            stream.truncate(size)
            os.fsync(stream.fileno())
        self.findings = list(before)
        for line, raw in read(log):
            self._running.update(raw)
            self._note(line)
        write_bytes(findings, b"".join(msgspec.json.encode(one) + b"\n" for one in self.findings))
        with contextlib.ExitStack() as closing:
            self._log, self._found = log.open("ab"), findings.open("ab")
            closing.callback(_closed, self._log, log)
            closing.callback(_closed, self._found, findings)
            yield

    def step(self, step: int, loss: float, lr: float, grad_norm: float, batch: Batch) -> None:
        """`step` counts from 1: steps done. A loss or gradient that is not finite ends the run here."""
        assert self._log is not None and self._found is not None
        tiers = np.bincount(batch.tiers, minlength=3).tolist()
        pools = np.bincount(batch.pools[batch.pools >= 0], minlength=len(POOLS)).tolist()
        line = LogLine(
            step=step,
            loss=loss if math.isfinite(loss) else None,
            lr=lr,
            grad_norm=grad_norm if math.isfinite(grad_norm) else None,
            tiers=(tiers[0], tiers[1], tiers[2]),
            pools=dict(zip(POOLS, pools, strict=True)),
            drawn=batch.items.tolist(),
        )
        raw = msgspec.json.encode(line) + b"\n"
        with _disk_faults_named(self._run.log):
            self._log.write(raw)
        self._running.update(raw)
        for finding in self._note(line):
            self._write(finding)
        if line.loss is None or line.grad_norm is None:
            raise _broken(step, f"loss {loss}, gradient norm {grad_norm}")
        if self._hooks.on_step:
            self._hooks.on_step(self._report(line))

    def broken_weights(self, step: int) -> SubjectFailed:
        """The end of a run whose loss was finite and whose weights are not any more; recorded, and to be raised."""
        finding = Finding("G6", "severe", "during", "the weights are not finite", {}, step)
        self.findings.append(finding)
        self._write(finding)
        return _broken(step, finding.message)

    def _write(self, finding: Finding) -> None:
        assert self._found is not None
        with _disk_faults_named(self._run.findings):
            self._found.write(msgspec.json.encode(finding) + b"\n")
        if self._hooks.on_finding:
            self._hooks.on_finding(finding)

    def sync(self) -> None:
        for stream, path in ((self._log, self._run.log), (self._found, self._run.findings)):
            assert stream is not None
            with _disk_faults_named(path):
                stream.flush()
                os.fsync(stream.fileno())

    def _note(self, line: LogLine) -> list[Finding]:
        targets = self._sampler.shares(line.step - 1).tiers
        self.counts += np.bincount(line.drawn, minlength=len(self.counts))
        self._realised += line.tiers
        self._wanted += np.array(targets) * sum(line.tiers)
        self._legacy_seen += line.pools["legacy"]
        loss, norm = (math.nan if value is None else value for value in (line.loss, line.grad_norm))
        found = self._watch.observe(line.step, loss, norm, line.tiers, targets)
        self.findings += found
        return found

    def _report(self, line: LogLine) -> StepReport:
        total = self._realised.sum()
        one, two, three = (self._realised / total).tolist()
        first, second, third = (self._wanted / total).tolist()
        legacy = self._legacy_seen / len(self._legacy) if len(self._legacy) else None
        assert line.loss is not None
        return StepReport(line.step, self._steps, line.loss, (one, two, three), (first, second, third), legacy)


def _broken(step: int, what: str) -> SubjectFailed:
    return SubjectFailed(
        f"training broke at step {step}: {what} (guardrail G6)",
        fix="Use a smaller --training.learning_rate, or a --training.gradient_clip.",
        facts={"guardrail": "G6", "step": step},
    )


def _closed(stream: BinaryIO, path: Path) -> None:
    with _disk_faults_named(path):
        stream.close()


@contextlib.contextmanager
def _disk_faults_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineryFailed(
            f"{path}: cannot be written: {error.strerror or error}; the last checkpoint is unchanged",
            fix="Free some space, then run the same command again: it goes on from the last checkpoint.",
        ) from error
