"""`crucible pool merge | split | filter | stats`: pool files -> pool files with a manifest beside each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from crucible.cli import output
from crucible.contrast.pooling import pool_filter, pool_merge, pool_split
from crucible.contrast.pooling.pool_stats import PoolStats
from crucible.contrast.pooling.pool_stats import stats as stats_of
from crucible.contrast.pooling.poolfile import Manifest
from crucible.contrast.quarantine import Quarantine
from crucible.errors import BadConfig

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Merge, split, filter and count pools of training bundles."
)

Input = Annotated[Path, typer.Option("--input", help="Bundle file in any accepted format.")]
Output = Annotated[Path, typer.Option("--output", help="Bundle file to write; a manifest is written beside it.")]


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="Bundle files in any accepted format; the first has precedence.")],
    target: Output,
    pools: Annotated[
        list[str] | None,
        typer.Option(
            "--as", metavar="POOL=FILE", help="All bundles of this file belong to legacy, organic or expanded."
        ),
    ] = None,
    skip_invalid: output.SkipInvalid = False,
    json: output.AsJson = False,
) -> None:
    """Merge bundle files into one; every bundle says its pool and its file, line and id. Repetitions are left out, and listed.

    Example: crucible pool merge legacy.jsonl mined.jsonl --output tier3.jsonl --as organic=mined.jsonl
    """
    bad = Quarantine()
    made = pool_merge.merge(files, target, _assigned(pools or []), bad.add if skip_invalid else None)
    _shown(made, json, bad, target)


@app.command()
def split(
    source: Input,
    train: Annotated[Path, typer.Option("--output-train", help="Training bundles to write.")],
    holdout: Annotated[Path, typer.Option("--output-holdout", help="Holdout bundles to write.")],
    fraction: Annotated[float, typer.Option("--holdout-fraction", help="Share of the bundles for the holdout.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the draw: same seed, same split, whatever the order.")] = 42,
    by: Annotated[Literal["sense", "lemma"], typer.Option(help="What must not be on both sides.")] = "sense",
    allow_shared_senses: Annotated[
        bool, typer.Option("--allow-shared-senses", help="Draw single bundles; texts are still on one side only.")
    ] = False,
    skip_invalid: output.SkipInvalid = False,
    json: output.AsJson = False,
) -> None:
    """Split a bundle file into training and holdout that share no sense and no anchor or positive. Lines stay as they are.

    Example: crucible pool split --input mined.jsonl --holdout-fraction 0.2 --output-train a.jsonl --output-holdout b.jsonl
    """
    bad = Quarantine()
    request = pool_split.Request(fraction, seed, by, allow_shared_senses)
    made = pool_split.split(source, train, holdout, request, bad.add if skip_invalid else None)
    _shown(made, json, bad, train)


@app.command(name="filter")
def filter_(
    source: Input,
    target: Output,
    where: Annotated[
        str | None, typer.Option(help="What must hold of a bundle, e.g. \"passes >= 8 and strength == 'ultra'\".")
    ] = None,
    without_senses_of: Annotated[
        Path | None, typer.Option(help="Leave out what shares a sense, an anchor or a positive with this file.")
    ] = None,
    skip_invalid: output.SkipInvalid = False,
    json: output.AsJson = False,
) -> None:
    """Keep the bundles that a filter holds for, and that share nothing with another file. Lines stay as they are.

    Fields: id, sense, lemma, tier, danger, pool, source, negatives (how many), anchor, positive, and any key of the metadata
    (a.b for an inner one). Operators: == != < <= > >= in, not in, contains; and, or, not, parentheses.

    Example: crucible pool filter --input mined.jsonl --where "passes >= 8" --output strong.jsonl
    """
    bad = Quarantine()
    made = pool_filter.keep(
        source,
        target,
        where=where,
        without_senses_of=without_senses_of,
        on_problem=bad.add if skip_invalid else None,
    )
    _shown(made, json, bad, target)


@app.command()
def stats(
    file: Annotated[Path, typer.Argument(help="Bundle file in any accepted format.")],
    json: output.AsJson = False,
) -> None:
    """Count a bundle file by pool, tier, strength, passes, sense and lemma; show its dangers and repetitions.

    Example: crucible pool stats tier3.jsonl --json
    """
    made = stats_of(file)
    if json:
        output.json_document(made)
    else:
        _print_stats(made)


def _assigned(given: list[str]) -> dict[Path, str]:
    found: dict[Path, str] = {}
    for text in given:
        pool, sign, file = text.partition("=")
        if not sign or not file:
            raise BadConfig(f"--as {text} is not POOL=FILE", fix="Write for instance --as organic=mined.jsonl.")
        if found.setdefault(Path(file), pool) != pool:
            raise BadConfig(f"--as puts {file} into {found[Path(file)]} and {pool}", fix="Choose one of them.")
    return found


def _shown(made: Manifest, json: bool, bad: Quarantine, beside: Path) -> None:
    if json:
        output.json_document(made)
    else:
        total = max(made.counts["bundles"], 1)
        rows = [(written.file, written.bundles, f"{written.bundles / total:.1%}") for written in made.outputs]
        output.table("", ("written", "bundles", "of the input"), rows)
        if made.command == "pool merge":
            output.out("pools: " + _counts({name: made.counts[name] for name in ("legacy", "organic", "expanded")}))
        if made.leaks is not None:
            output.out(_leaks(made.leaks))
    for note in made.notes:
        output.say(note)
    output.quarantined(bad.write(aside := beside.with_name(f"{beside.name}.quarantine.jsonl")), aside)


def _leaks(leaks: dict[str, Any]) -> str:
    """Negatives are only counted: one on the other side gives no answer away, but it is no unseen text either."""
    both = f"{leaks['shared_senses']} shared senses, {leaks['shared_texts']} shared anchors or positives"
    crossing = {
        "train_negatives_in_holdout": "{} training bundles have a negative that is one of the holdout's",
        "holdout_negatives_in_train": "{} holdout bundles one of the training's",
        "bundles_with_a_negative_in_other": "{} bundles have a negative that is one of the other file's",
    }
    for name, sentence in crossing.items():
        if name in leaks:
            found = leaks[name]
            both += "; " + sentence.format(found["bundles"] if isinstance(found, dict) else found)
    return "leak check: " + both


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _print_stats(made: PoolStats) -> None:
    output.out(f"{made.file}: {made.bundles} bundles, format {made.format}, sha256 {made.sha256[:16]}…")
    rows = [(pool, made.pools[pool], *by_tier.values()) for pool, by_tier in made.pools_by_tier.items()]
    output.table("", ("pool", "bundles", *made.tiers), [*rows, ("all", made.bundles, *made.tiers.values())])
    if made.strength:
        output.out(f"strength: {_counts(made.strength)}")
    if made.passes:
        output.out(f"passes: {_counts(made.passes)}")
    lacking = f", {made.without_sense} bundles have none" if made.without_sense else ""
    spread = made.bundles_a_sense
    each = f", {spread.min} to {spread.max} bundles each, on average {spread.mean:.2f}" if spread else ""
    output.out(f"senses: {made.senses}{each}{lacking}; lemmas: {made.lemmas}")
    output.out(
        f"negatives a bundle: {made.negatives.min} to {made.negatives.max}, on average {made.negatives.mean:.2f}"
    )
    if made.danger:
        quantiles = ", ".join(f"{name} {value:.4f}" for name, value in made.danger.quantiles.items())
        output.out(f"danger, recorded for {made.danger.recorded}: {quantiles}")
    if made.duplicates.bundles:
        some = ", ".join(made.duplicates.ids[:5])
        output.out(f"warning: {made.duplicates.bundles} bundles repeat an earlier one: {some}")
