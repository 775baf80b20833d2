"""`crucible ari exam …`: build, freeze, take in, describe, check and calibrate hidden exams. Never prints a question."""

from __future__ import annotations

import stat
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from crucible.ari import track as tracks
from crucible.ari.exam import calibrate as measure
from crucible.ari.exam import freeze as freezing
from crucible.ari.exam import overlap, pack
from crucible.ari.exam import questions as exams
from crucible.ari.exam.build import build_exam
from crucible.ari.exam.families import FAMILIES
from crucible.ari.exam.public import public_set
from crucible.ari.exam.rules import departures
from crucible.ari.exam.seed import read_seed
from crucible.cli import output
from crucible.documents import as_builtins, read_bytes, write_bytes
from crucible.errors import BadConfig

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Hidden exams: build, freeze, check, calibrate.")

ExamFile = Annotated[Path, typer.Argument(metavar="EXAM", help="An exam; it never leaves its owner's hands.")]


@app.callback()
def exam() -> None:
    """Hidden exams: build, freeze, check, calibrate."""


@app.command()
def build(
    seed_file: Annotated[Path, typer.Option(help="A file with at least 16 secret bytes, readable by its owner only.")],
    out: Annotated[Path, typer.Option(help="Where the exam goes: outside every git work tree.")],
    pack_folder: Annotated[
        Path | None,
        typer.Option("--pack", metavar="DIR", help="A folder of private families, outside every git work tree."),
    ] = None,
    questions: Annotated[int, typer.Option(help="How many questions.", min=1, max=100_000)] = 100,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="FAMILY=W", help="The weight of a family in its category (1 if not given, 0: none)."),
    ] = None,
    json: output.AsJson = False,
) -> None:
    """Build a hidden exam from a secret seed; the same seed gives the same exam. Then `freeze` it.

    Example: head -c 32 /dev/urandom > SECRET; chmod 600 SECRET; crucible ari exam build --seed-file SECRET --out EXAM
    """
    seed = read_seed(seed_file)
    known = pack.load(pack_folder) if pack_folder else FAMILIES
    version = tracks.load(tracks.BASE).protocol_version
    exams.save_secret(out, build_exam(seed, questions, version, known=known, weights=_weights(weight, set(known))))
    _described(out, exams.load(out), json, next_step=f"crucible ari exam freeze {out}")


@app.command()
def freeze(path: ExamFile, json: output.AsJson = False) -> None:
    """Make an exam read-only for its owner and print all that may be published of it; again gives the same.

    Example: crucible ari exam freeze EXAM --json
    """
    published, found = freezing.freeze(path)
    for departure in found:
        output.say(f"warning: {departure}")
    if json:
        output.json_document(published)
        return
    output.table(f"Exam {path}, frozen", ("category", "questions"), published.categories.items())
    output.out(f"{published.questions} questions, protocol {published.protocol_version}. Publish: {published.sha256}")


@app.command("import")
def take_in(
    path: Annotated[Path, typer.Argument(metavar="Q.jsonl", help="One question a line, as JSON.")],
    out: Annotated[Path, typer.Option(help="Where the exam goes: outside every git work tree.")],
    json: output.AsJson = False,
) -> None:
    """Make an exam of anyone's questions: {"id", "category", "family", "prompt", "answer"}, or prompt_b64 / answer_b64.

    Example: crucible ari exam import Q.jsonl --out EXAM
    """
    taken = freezing.take_in(path, out, tracks.load(tracks.BASE).protocol_version)
    for departure in departures(taken.questions):
        output.say(f"warning: {departure}")
    _described(out, taken, json, next_step=f"crucible ari exam freeze {out}")


@app.command()
def show(path: ExamFile, json: output.AsJson = False) -> None:
    """Show what kind of questions an exam holds and how many, never one of them.

    Example: crucible ari exam show EXAM
    """
    shown = exams.load(path)
    families = [question.family for question in shown.questions]
    prompts = [len(question.prompt) for question in shown.questions]
    answers = [len(question.answer) for question in shown.questions]
    mode = stat.S_IMODE(path.stat().st_mode)
    document: dict[str, Any] = {
        **_facts(path, shown),
        "families": {name: families.count(name) for name in sorted(set(families))},
        "prompt_bytes": {"mean": round(fmean(prompts), 1), "min": min(prompts), "max": max(prompts)},
        "answer_bytes": {"mean": round(fmean(answers), 1), "min": min(answers), "max": max(answers)},
        "salted": shown.header is not None,
        "mode": f"{mode:04o}",
        "frozen": mode == freezing.FROZEN,
        "departures": departures(shown.questions),
    }
    if json:
        output.json_document(document)
        return
    counts = {(question.category, question.family): families.count(question.family) for question in shown.questions}
    output.table(
        f"Exam {path}", ("category", "family", "questions"), [(*k, n) for k, n in sorted(counts.items())], left=2
    )
    rest = [(key, _flat(value)) for key, value in document.items() if key not in ("categories", "families")]
    output.table("", ("", ""), rest, left=2)


@app.command()
def check(
    path: ExamFile,
    public: Annotated[
        Path, typer.Option(metavar="FILE", help="A question set that agents see.", show_default="the shipped one")
    ] = tracks.PUBLIC,
    text: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Training text; can be given again.")] = None,
    max_overlap: Annotated[
        float, typer.Option(help="The largest share of 24-byte pieces that may be shared.", min=0, max=1)
    ] = overlap.Limits().ngram_share,
    json: output.AsJson = False,
) -> None:
    """Count how much of an exam stands in the public set and in the training text; exit 1 where it is too much.

    Example: crucible ari exam check EXAM --public public.jsonl --text text.txt
    """
    questions, limits = exams.load(path).questions, overlap.Limits(ngram_share=max_overlap)
    found = [overlap.with_questions(questions, exams.load(public).questions, public, limits)]
    for file in text or []:
        found.append(overlap.with_text(questions, read_bytes(file, "training text"), file, limits))
    too_much = [f"{one.file}: {name}" for one in found for name in one.too_much]
    if json:
        document = {"questions": len(questions), "ngram_bytes": overlap.PIECE, "limits": as_builtins(limits)}
        output.json_document({**document, "ok": not too_much, "too_much": too_much, "against": as_builtins(found)})
    else:
        columns = ("file", "shared pieces", "of", "share", "covered", "prompts", "answers")
        rows = [
            (o.file, o.ngrams_shared, o.ngrams, o.ngram_share, o.covered_questions, o.shared_prompts, o.shared_answers)
            for o in found
        ]
        output.table(f"What {len(questions)} questions share with", columns, rows)
    for one in found:
        if one.too_much:
            output.say(f"TOO MUCH: {path} shares too much with {one.file}: {', '.join(one.too_much)}")
    if too_much:
        raise typer.Exit(1)


@app.command()
def calibrate(path: ExamFile, json: output.AsJson = False) -> None:
    """Measure what programs that have learned nothing score on an exam, by family, with 95% Wilson intervals.

    Example: crucible ari exam calibrate EXAM --json
    """
    found = measure.calibrate(exams.load(path).questions)
    if json:
        output.json_document(found)
    else:
        names = list(found.baselines)
        first = found.baselines[names[0]]
        rows: list[tuple[object, ...]] = [
            (family, rate.questions, *(_percent(found.baselines[name].by_family[family].rate) for name in names))
            for family, rate in first.by_family.items()
        ]
        output.table("Right without learning, percent, by family", ("family", "n", *names), rows)
        overall = [(name, one.overall) for name, one in found.baselines.items()]
        shown = [
            (name, rate.passed, rate.questions, _percent(rate.rate), _interval(rate.ci95)) for name, rate in overall
        ]
        output.table("Overall", ("baseline", "passed", "questions", "percent", "95% interval"), shown)
    for name in found.above_limit:
        output.say(f"WARNING: {name} gets {found.limit:.0%} or more: this exam does not tell learning from copying")


@app.command()
def public(
    out: Annotated[Path, typer.Option(help="Where the set goes.")],
    json: output.AsJson = False,
) -> None:
    """Write the public validation set that comes with the package, from its published seed.

    Example: crucible ari exam public --out public.jsonl
    """
    write_bytes(out, public_set())
    _described(out, exams.load(out), json, next_step=None)


def _described(path: Path, made: exams.Exam, json: bool, *, next_step: str | None) -> None:
    if json:
        output.json_document(_facts(path, made))
    else:
        output.table(f"Exam {path}", ("category", "questions"), made.categories.items())
        output.out(f"{len(made.questions)} questions, SHA-256 {made.sha256}")
    if next_step:
        output.say(f"next: {next_step}")


def _facts(path: Path, made: exams.Exam) -> dict[str, Any]:
    return {
        "path": str(path),
        "sha256": made.sha256,
        "questions": len(made.questions),
        "categories": made.categories,
        "protocol_version": made.header.protocol_version if made.header else None,
    }


def _weights(given: list[str] | None, known: set[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for one in given or []:
        name, _, number = one.partition("=")
        if name not in known:
            raise BadConfig(f"--weight {one}: no family is called {name!r}", fix=f"One of: {', '.join(sorted(known))}.")
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = -1.0
        if not 0 <= weights[name] <= 1000:  # NaN is neither
            raise BadConfig(f"--weight {one}: {number!r} is not a number from 0 to 1000", fix="--weight FAMILY=2")
    return weights


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f}"


def _interval(ci95: tuple[float, float]) -> str:
    return f"{100 * ci95[0]:.1f} to {100 * ci95[1]:.1f}"


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return "; ".join(value) or "none" if isinstance(value, list) else value
