"""`crucible train`: a configuration -> a trained encoder in a run folder, with live progress and the evidence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from crucible.cli import output
from crucible.cli.overrides import DEFAULT, EXTRA, ConfigFile, configured
from crucible.cli.progress import progress
from crucible.contrast.guardrails import Finding
from crucible.contrast.train.log import Hooks, StepReport
from crucible.contrast.train.run import train as train_run
from crucible.contrast.train.rundir import RunInfo
from crucible.errors import BadConfig

app = typer.Typer(add_completion=False)

_SMOOTH = 0.98
_BETWEEN_UPDATES, _BETWEEN_LINES = 0.1, 10.0
"""Seconds between two updates of a terminal, and between two lines where nobody watches one."""

OutputDir = Annotated[Path | None, typer.Option(help="Run folder; experiment.output_dir if not given.")]
Check = Annotated[
    bool, typer.Option("--check-guardrails", help="Stop on critical and severe findings, not only on errors.")
]
Override = Annotated[
    list[str] | None,
    typer.Option("--guardrail-override", help="A guardrail that may not stop the run; recorded in it."),
]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu or cuda.", envvar="CRUCIBLE_DEVICE")]


@app.command(context_settings=EXTRA)
def train(
    ctx: typer.Context,
    config: ConfigFile = DEFAULT,
    output_dir: OutputDir = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every draw; the first of experiment.seeds.")] = None,
    check_guardrails: Check = False,
    guardrail_override: Override = None,
    device: DeviceOption = None,
    json: output.AsJson = False,
) -> None:
    """Train an encoder on bundles by a curriculum, and measure it on both truths: what it kept and what it can do new.

    Any setting is overridden as --section.key VALUE. Run it again to go on after a kill; a finished run is left alone.

    Example: crucible train --config crucible.yaml --training.steps 500 --output-dir runs/first
    """
    settings = configured(config, [*ctx.args, *([f"--device.type={device}"] if device else [])])
    out = output_dir or (Path(settings.experiment.output_dir) if settings.experiment.output_dir else None)
    if out is None:
        raise BadConfig("there is no place for the run", fix="Give --output-dir DIR, or set experiment.output_dir.")
    with _Screen() as screen:
        hooks = Hooks(
            on_step=screen.step,
            on_note=lambda note: screen.say(f"note: {note}"),
            on_finding=lambda finding: screen.say(_sentence(finding)),
            encoding=screen.encoding,
        )
        info = train_run(
            settings, out, seed=seed, overrides=guardrail_override or (), enforce=check_guardrails, hooks=hooks
        )
    if json:
        output.json_document(info)
    else:
        print_run(info)
    model = f"head:{out}" if info.train == "head" else f"st:{out}/checkpoint"
    output.say(f"{out}: {info.state} after {info.steps_done} steps; try it: crucible eval --model {model} --eval-set …")


def print_run(info: RunInfo) -> None:
    """What a run gave, for people."""
    output.out(f"{info.subject}, seed {info.seed}: {info.steps_done} of {info.steps} steps, {info.state}")
    names = {"frozen_tier3": "frozen tier 3", "frozen_overall": "frozen overall", "organic_holdout": "organic holdout"}
    rows = []
    for name, shown in names.items():
        before, after = info.metrics.get(f"base_{name}"), info.metrics.get(name)
        change = None if before is None or after is None else f"{after - before:+.4f}"
        rows.append((shown, before, after, change))
    output.table("", ("pass rate", info.encoder["id"], "trained", "change"), rows)
    pools = [(n, info.groups.get(n, 0), *msgspec.structs.astuple(e)) for n, e in info.exposure.items()]
    columns = ("tier-3 pool", "items", "expected", "status", "seen (mean)", "seen (min)", "never seen")
    output.table("", columns, pools)


def _sentence(finding: Finding) -> str:
    where = f" at step {finding.step}" if finding.step is not None else ""
    overridden = ", overridden" if finding.overridden else ""
    return f"guardrail {finding.guardrail} ({finding.level}{overridden}){where}: {finding.message}"


class _Line:
    """Reports of steps -> one line, with the loss smoothed and the rate of this process."""

    def __init__(self) -> None:
        self._loss: float | None = None
        self._first: tuple[int, float] | None = None

    def add(self, report: StepReport) -> str:
        now = time.monotonic()
        self._loss = report.loss if self._loss is None else _SMOOTH * self._loss + (1 - _SMOOTH) * report.loss
        if self._first is None:
            self._first = (report.step, now)
        steps, seconds = report.step - self._first[0], now - self._first[1]
        rate = f"  {steps / seconds:.0f} steps/s" if steps and seconds > 0 else ""
        tiers = " ".join(f"{100 * r:.0f}/{100 * t:.0f}" for r, t in zip(report.tiers, report.targets, strict=True))
        legacy = "–" if report.legacy is None else f"{report.legacy:.1f}"
        done = f"step {report.step}/{report.steps}"
        return f"{done}  loss {self._loss:.4f}  tiers % (target) {tiers}  legacy seen {legacy}x{rate}"


class _Screen:
    """What happens while a run runs, on stderr: a bar while texts are encoded, a live line or a line now and then while it
    trains, and sentences between them. One of them at a time, or they would overwrite each other."""

    def __init__(self) -> None:
        self._console, self._line = Console(stderr=True), _Line()
        self._open = contextlib.ExitStack()
        self._bar: Callable[[int, int], None] | None = None
        self._live: Live | None = None
        self._last: float | None = None

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def say(self, text: str) -> None:
        self._clear()
        output.say(text)

    def encoding(self, done: int, total: int) -> None:
        if self._bar is None:
            self._clear()
            self._bar = self._open.enter_context(progress("encoding"))
        self._bar(done, total)
        if done >= total:
            self._clear()

    def step(self, report: StepReport) -> None:
        text, now = self._line.add(report), time.monotonic()
        watched = self._console.is_terminal
        self._last = now if self._last is None and not watched else self._last
        due = self._last is None or now - self._last > (_BETWEEN_UPDATES if watched else _BETWEEN_LINES)
        if not due and report.step < report.steps:
            return
        self._last = now
        if not watched:
            output.say(text)
            return
        if self._live is None:
            self._clear()
            self._live = self._open.enter_context(Live(console=self._console, auto_refresh=False, transient=True))
        self._live.update(Text(text), refresh=True)

    def _clear(self) -> None:
        self._open.close()
        self._bar = self._live = None
