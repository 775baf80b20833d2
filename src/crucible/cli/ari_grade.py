"""`crucible ari grade` and `grade-bundle`: the judgement of a run or of anyone's bundle, in a process and a box of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from crucible.ari import grade as judgement
from crucible.ari import grade_bundle as outside
from crucible.ari import track as tracks
from crucible.ari.box import Box
from crucible.ari.boxes import bwrap, local
from crucible.ari.judge import Group
from crucible.ari.rundir import find
from crucible.cli import output
from crucible.errors import BadConfig
from crucible.kernel import stats

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The judgement.")

Root = Annotated[Path, typer.Option(help="The folder of runs, with their ledger.")]
Exam = Annotated[Path, typer.Option(help="The hidden exam; never give it to a run.")]
Published = Annotated[str | None, typer.Option("--sha256", help="The exam's published SHA-256: it must have it.")]
BoxName = Annotated[
    str, typer.Option("--box", help="What holds the submission: bwrap, or local, which isolates nothing.")
]


@app.command()
def grade(
    run: Annotated[str, typer.Argument(help="The folder of a run, or its id under --root.")],
    exam: Exam,
    sha256: Published = None,
    root: Root = Path("runs"),
    box: BoxName = "bwrap",
    json: output.AsJson = False,
) -> None:
    """Judge a finished run on the hidden exam, in this process of its own, and write its record.

    Example: crucible ari grade runs/RUN --exam /safe/EXAM
    """
    _require_digest(sha256)
    graded = judgement.grade(find(run, root), exam, chosen_box(box), sha256, output.say)
    _say_flags(graded.flags)
    if json:
        output.json_document(graded)
        return
    output.out(f"{graded.run}: {graded.outcome}, {graded.passed} of {graded.questions} exactly right")
    _show_groups(graded.by_category)
    public = "no public score" if graded.public_score is None else f"public {graded.public_score:.1f}%"
    output.out(f"hidden {_score(graded.passed, graded.questions)}, {public}{_bits(graded.bpb)}")


@app.command("grade-bundle")
def grade_bundle(
    bundle: Annotated[Path, typer.Argument(help="A tar.gz with a manifest.json, packed by anyone.")],
    exam: Exam,
    track: Annotated[str, typer.Option(help="Whose limits hold: a shipped track's name, or a TOML file.")] = "mini",
    sha256: Published = None,
    box: BoxName = "bwrap",
    ledger: Annotated[Path | None, typer.Option(help="Append the seal and the record to this ledger.")] = None,
    json: output.AsJson = False,
) -> None:
    """Judge a bundle outside any run: exact match, another order, bits-per-byte and the audit of its weights.

    Example: crucible ari grade-bundle B.tar.gz --exam /safe/EXAM --sha256 PUBLISHED
    """
    _require_digest(sha256)
    graded = outside.grade_bundle(bundle, exam, tracks.load(track), chosen_box(box), sha256, ledger, output.say)
    _say_flags(graded.flags)
    if json:
        output.json_document(graded)
        return
    output.out(f"{bundle.name}: {graded.passed} of {graded.questions} exactly right, {graded.bytes:,} bytes")
    _show_groups(graded.by_category)
    output.out(f"hidden {_score(graded.passed, graded.questions)}{_bits(graded.bpb)}, {graded.seconds:.1f} s")


def chosen_box(name: str) -> Box:
    """The box of that name; a machine that cannot hold it is an error, and never a weaker box instead."""
    if name == "local":
        output.say(f"WARNING: {local.WARNING}")
        return local.LocalBox()
    if name == "bwrap":
        return bwrap.BwrapBox()
    raise BadConfig(f"there is no box {name!a}", fix="Give --box bwrap, or --box local, which isolates nothing.")


def _require_digest(sha256: str | None) -> None:
    """A published digest that is none is a slip of the hand; none at all is said, because then nothing was compared."""
    if sha256 is None:
        output.say(
            "note: no published digest was given (--sha256), so nobody knows that this is the exam that was published"
        )
    elif not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise BadConfig(
            f"--sha256 {sha256!a} is not 64 hexadecimal digits", fix="Give the SHA-256 as `exam freeze` printed it."
        )


def _say_flags(flags: Sequence[str]) -> None:
    for flag in flags:
        output.say(f"FLAG: {flag}")


def _show_groups(groups: Mapping[str, Group]) -> None:
    rows = [(name, group.passed, group.questions) for name, group in groups.items()]
    output.table("By category", ("category", "passed", "questions"), rows)


def _score(passed: int, questions: int) -> str:
    low, high = stats.wilson(passed, questions)
    return f"{100 * passed / questions:.1f}% (95% interval {100 * low:.1f} to {100 * high:.1f})"


def _bits(bpb: float | None) -> str:
    return "" if bpb is None else f", {bpb:.3f} bits per byte"
