"""`crucible ari …`: tracks, exams, runs and their judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crucible.ari import run as hour
from crucible.ari import track as tracks
from crucible.ari.agents import scripted
from crucible.ari.boxes import local
from crucible.ari.rundir import find
from crucible.ari.submit import candidates, replay
from crucible.cli import ari_corpus, ari_exam, ari_grade, ari_pack, output
from crucible.documents import as_builtins

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="ARI Bench: run an agent for its hour, grade it, look at what it did.",
)
track_app = typer.Typer(add_completion=False, no_args_is_help=True)
app.add_typer(track_app, name="track", help="The numbers of a track.")
app.add_typer(ari_exam.app, name="exam")
app.add_typer(ari_corpus.app, name="corpus")
app.command()(ari_pack.pack)
app.command()(ari_grade.grade)
app.command("grade-bundle")(ari_grade.grade_bundle)

Root = Annotated[Path, typer.Option(help="The folder of runs, with their ledger.")]
Run = Annotated[str, typer.Argument(help="The folder of a run, or its id under --root.")]


@app.command()
def run(
    track: Annotated[str, typer.Option(help="A shipped track's name, or a TOML file.")] = "mini",
    agent: Annotated[str, typer.Option(help="idle, starter, overfitter, or script:PATH.")] = "starter",
    seed: Annotated[int, typer.Option(help="The seed of this run.", min=0)] = 1,
    root: Root = Path("runs"),
    json: output.AsJson = False,
) -> None:
    """Run one agent under a track's clock; what it promoted waits for `crucible ari grade`.

    Example: crucible ari run --track mini --agent starter --seed 1 --root runs
    """
    chosen, who = tracks.load(track), scripted.load(agent)
    box = local.LocalBox()
    output.say(f"WARNING: {local.WARNING}")
    place = hour.run(chosen, who, seed, root, box, output.say)
    finished = place.read_finished()
    document = {
        **as_builtins(finished),
        "track": chosen.name,
        "agent": agent,
        "seed": seed,
        "subject": who.subject,
        "box": box.kind,
        "path": str(place.path),
    }
    if json:
        output.json_document(document)
    else:
        output.table(f"Run {finished.run}", ("", ""), [(k, v) for k, v in document.items() if k != "run"], left=2)
    if finished.outcome == "pending":
        output.say(f"next: crucible ari grade {place.path} --exam EXAM")
    if finished.outcome == "invalid":
        raise typer.Exit(1)


@app.command()
def submissions(run: Run, root: Root = Path("runs"), json: output.AsJson = False) -> None:
    """List every submission of a run with its public score; public scores select nothing.

    Example: crucible ari submissions runs/RUN
    """
    found = candidates(replay(find(run, root).history))
    if json:
        output.json_document(found)
        return
    rows = [
        (c.id, c.status, c.note or c.reason, c.bytes, _of(c.public_passed, c.public_questions), _mark(c)) for c in found
    ]
    output.table(f"Submissions of {run}", ("id", "status", "note", "bytes", "public", ""), rows, left=3)


@track_app.callback()
def track() -> None:
    """The numbers of a track."""


@track_app.command("show")
def track_show(
    name: Annotated[str, typer.Argument(help="A shipped track's name, or a TOML file.")], json: output.AsJson = False
) -> None:
    """Show every number of a track and what it pins.

    Example: crucible ari track show official-1h
    """
    chosen = tracks.load(name)
    pinned = tracks.pin(chosen, box=local.LocalBox.kind)
    document: dict[str, Any] = {**as_builtins(chosen), "pins": {k: v for k, v in pinned.facts.items() if k != "track"}}
    if json:
        output.json_document(document)
        return
    rows = [(key, value) for key, value in as_builtins(chosen).items()]
    rows += [(f"pin: {key}", value) for key, value in document["pins"].items()]
    output.table(f"Track {chosen.name}", ("", ""), [(key, _plain(value)) for key, value in rows], left=2)


def _of(part: int | None, whole: int | None) -> str | None:
    return None if whole is None else f"{part}/{whole}"


def _mark(candidate: Any) -> str | None:
    return "official" if candidate.official else "promoted" if candidate.promoted else None


def _plain(value: object) -> object:
    return f"{value:g}" if isinstance(value, float) else value
