"""`crucible eval`: a model and an eval set -> scoreboard, per-item results, a record in a ledger, a report to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.cli.progress import progress
from crucible.cli.report_page import report_page
from crucible.contrast import encode
from crucible.contrast import evalset as evalsets
from crucible.contrast.evaluate import Evaluation, Subject, caveats, evaluate, to_record, write
from crucible.contrast.quarantine import Quarantine
from crucible.contrast.scoreboard import Scoreboard
from crucible.contrast.versus import Comparison, compare_all, load
from crucible.documents import require_target, write_bytes
from crucible.errors import BadConfig, SubjectFailed
from crucible.kernel import ledger as ledgers
from crucible.kernel.record import to_builtins

app = typer.Typer(add_completion=False)


@app.command("eval")
def eval_(
    model: Annotated[str, typer.Option(help="hashing[:DIM], minilm, st:NAME_OR_PATH, onnx:PATH, npy:DIR or head:RUN.")],
    eval_set: Annotated[Path, typer.Option(help="Folder of a frozen eval set, or a bundle file.")],
    output_file: Annotated[Path, typer.Option("--output", help="Scoreboard JSON to write.")],
    items: Annotated[
        Path | None, typer.Option(help="Per-item results to write; beside the scoreboard if not given.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Ledger to append the record to.")] = None,
    html: Annotated[Path | None, typer.Option(help="Report to write: one self-contained HTML file.")] = None,
    version: Annotated[str | None, typer.Option(help="Version of the eval set; the latest if not given.")] = None,
    seed: Annotated[int | None, typer.Option(help="Eval seed of a bundle file that records none.")] = None,
    subject: Annotated[str | None, typer.Option(help="Name of the model whose seed this checkpoint is.")] = None,
    model_seed: Annotated[int | None, typer.Option(help="Training seed of this checkpoint.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Scoreboard to compare with.")] = None,
    regression_threshold: Annotated[
        float, typer.Option(help="Exit 1 if the tier-3 pass rate falls by more than this against --baseline.")
    ] = 0.02,
    allow_fingerprint_mismatch: Annotated[
        bool,
        typer.Option("--allow-fingerprint-mismatch", help="Look at a baseline on another eval set; never recorded."),
    ] = False,
    skip_invalid: output.SkipInvalid = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", envvar="CRUCIBLE_DEVICE")] = "auto",
    json: output.AsJson = False,
) -> None:
    """Evaluate a model on an eval set.

    Example: crucible eval --model hashing --eval-set evalsets/demo --output board.json --items items.jsonl --ledger runs.jsonl
    """
    items = items or output_file.with_name(f"{output_file.stem}.items.jsonl")
    for target in filter(None, (output_file, items, html)):
        require_target(target)
    if items.resolve() == output_file.resolve():
        raise BadConfig(f"--items and --output are both {items}", fix="Give them two different files.")
    if allow_fingerprint_mismatch and ledger:
        raise BadConfig("a mismatched comparison never enters a ledger", fix="Leave out --ledger, or the override.")
    encoder = encode.by_name(model, device)
    bad = Quarantine()
    frozen = evalsets.load(eval_set, version, seed, bad.add if skip_invalid else None)
    output.quarantined(bad.write(aside := output_file.with_name(f"{output_file.stem}.quarantine.jsonl")), aside)
    before = load(baseline) if baseline else None
    with progress("encoding") as encoding, progress("scoring") as scoring:
        result = evaluate(
            frozen, encoder, Subject(subject, model_seed), encoding=encoding, scoring=scoring, device=device
        )
    for warning in result.encoded.warnings:
        output.say(f"warning: {warning}")
    board = write(result, output_file, items)
    against = None
    if before:
        against = compare_all([before, load(output_file)], allow_mismatch=allow_fingerprint_mismatch)
    if ledger:
        ledgers.append(ledger, "record", to_builtins(to_record(result)))
    if html:
        write_bytes(html, report_page(result, against).encode())
    if json:
        output.json_document(board)
    else:
        _print(board, result)
    written = [str(path) for path in (output_file, items, html) if path]
    output.say(f"wrote {', '.join(written)}" + (f", recorded in {ledger}" if ledger else ""))
    if against:
        _judge(against, regression_threshold)


def _print(board: Scoreboard, result: Evaluation) -> None:
    header = board.eval_header
    named = f"{header.eval_set} {header.version}".strip()
    output.out(f"{header.subject} on {named}   EVAL_FINGERPRINT: {header.fingerprint}")
    columns = ("", "n", "pass rate", "mean margin", "median", "Q10", "Q90", "mean rank", "ties")
    rows = [
        (name, s.n, s.pass_rate, s.mean_margin, s.median_margin, s.q10_margin, s.q90_margin, s.mean_rank, s.n_ties)
        for name, s in {"overall": board.overall, **board.by_tier}.items()
    ]
    output.table("", columns, rows)
    done = result.encoded
    output.say(
        f"{done.unique} unique texts: {done.cached} from the cache, {done.encoded} encoded in {done.seconds:.1f} s"
    )
    if header.recorded:
        found = header.recorded
        output.out(f"recorded dangers: {found['items']:.0f} compared, largest difference {found['max_difference']:.6f}")
    for caveat in caveats(result):
        output.say(f"note: {caveat}")


def _judge(against: Comparison, threshold: float) -> None:
    """The baseline's sentence, and exit 1 where the new model lost more of tier 3 than allowed."""
    output.say(against.sentence)
    change = against.comparisons[0].groups["tier3_adversarial"].delta_pass_rate
    if against.comparable and change is not None and change < -threshold:
        raise SubjectFailed(
            f"regression: the tier-3 pass rate fell by {-change:.4f}, more than {threshold}",
            fix="Look at the lost items: crucible compare BASELINE NEW --flips 20.",
            facts={"tier3_change": change, "threshold": threshold},
        )
