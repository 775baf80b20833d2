"""`crucible mine`: events and a model -> organic tier-3 bundles that several lineups agree on, a quarantine and stats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.cli.bundles import Seed
from crucible.cli.progress import progress
from crucible.contrast import encode
from crucible.contrast.mining.mine import mine as mine_events
from crucible.contrast.mining.mined import MiningStats, Settings, Targets, targets

app = typer.Typer(add_completion=False)

_USUAL = Settings()
_MODELS = "hashing[:DIM], minilm, st:NAME_OR_PATH, onnx:PATH, npy:DIR or head:CHECKPOINT."
_KNOWN = "A bundle file or frozen eval set: tier 3 to calibrate on, and not to find again."
_STYLES = "examples or glosses, as in `bundles build`; examples if a sense has two of them."

Within = Annotated[
    int, typer.Option(help="Negatives from other senses of the word in a lineup, at most; 0 needs none.")
]
Sibling = Annotated[int, typer.Option(help="Negatives from related senses in a lineup, at most.")]
CrossLemma = Annotated[int, typer.Option(help="Negatives from other words in a lineup.")]
TopKWithin = Annotated[int, typer.Option(help="Nearest texts that form the within-lemma pool.")]
TopKSibling = Annotated[int, typer.Option(help="Nearest texts that form the sibling pool.")]
TopKCross = Annotated[int, typer.Option(help="Nearest texts that form the cross-lemma pool.")]
PerSense = Annotated[int, typer.Option(help="At most this many (anchor, positive) pairs of a sense.")]
MaxCandidates = Annotated[int | None, typer.Option(help="Test a seeded sample of this many candidates.")]
MaxOutput = Annotated[int | None, typer.Option(help="Write at most this many, the hardest first.")]
Threshold = Annotated[float | None, typer.Option(help="A lineup passes at this danger or above.")]
CalibrateTo = Annotated[float | None, typer.Option(help="Threshold = this quantile of the existing tier 3's dangers.")]
KnownSenses = Annotated[
    bool, typer.Option("--allow-known-senses", help="Also mine senses that the existing tier 3 holds.")
]
Low = Annotated[Path | None, typer.Option(help="Candidates with too few passes; OUTPUT.quarantine.jsonl if not given.")]
StatsFile = Annotated[Path | None, typer.Option(help="What happened, as JSON; OUTPUT.stats.json if not given.")]


@app.command("mine")
def mine(
    events: Annotated[Path, typer.Option(help="Events to mine, as `crucible corpus wordnet` writes them.")],
    model: Annotated[str, typer.Option(help=_MODELS)],
    output_file: Annotated[Path, typer.Option("--output", help="Bundle file to write.")],
    existing_tier3: Annotated[Path | None, typer.Option(help=_KNOWN)] = None,
    threshold: Threshold = None,
    calibrate_to: CalibrateTo = None,
    lineups: Annotated[int, typer.Option(help="Lineups drawn for every candidate.")] = _USUAL.lineups,
    min_passes: Annotated[int, typer.Option(help="Passes that make a candidate accepted.")] = _USUAL.min_passes,
    style: Annotated[str | None, typer.Option(help=_STYLES)] = None,
    candidates_per_sense: PerSense = _USUAL.candidates_per_sense,
    within: Within = _USUAL.within,
    sibling: Sibling = _USUAL.sibling,
    cross_lemma: CrossLemma = _USUAL.cross_lemma,
    top_k_within: TopKWithin = _USUAL.top_k_within,
    top_k_sibling: TopKSibling = _USUAL.top_k_sibling,
    top_k_cross: TopKCross = _USUAL.top_k_cross,
    max_candidates: MaxCandidates = None,
    max_output: MaxOutput = None,
    allow_known_senses: KnownSenses = False,
    quarantine: Low = None,
    stats: StatsFile = None,
    seed: Seed = 42,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", envvar="CRUCIBLE_DEVICE")] = "auto",
    json: output.AsJson = False,
) -> None:
    """Mine hard bundles: candidates that are dangerous in several independent lineups of their nearest negatives.

    A pass is a lineup whose danger reaches the threshold. Without --threshold it is calibrated to the median of the existing
    tier 3, and without that it is 0. A run that was interrupted goes on where it was when it is called again.

    Example: crucible mine --events events.jsonl --model minilm --existing-tier3 t3.jsonl --output organic.jsonl --seed 42
    """
    settings = Settings(
        threshold=threshold,
        calibrate_to=calibrate_to,
        lineups=lineups,
        min_passes=min_passes,
        within=within,
        sibling=sibling,
        cross_lemma=cross_lemma,
        top_k_within=top_k_within,
        top_k_sibling=top_k_sibling,
        top_k_cross=top_k_cross,
        candidates_per_sense=candidates_per_sense,
        max_candidates=max_candidates,
        max_output=max_output,
        allow_known_senses=allow_known_senses,
        style=style,
        seed=seed,
    )
    files = targets(output_file, quarantine, stats)
    found = mine_events(events, encode.by_name(model, device), settings, files, progress, existing=existing_tier3)
    if json:
        output.json_document(found)
    else:
        _print(found)
    _say(found, files)


def _say(found: MiningStats, files: Targets) -> None:
    for note in found.notes:
        output.say(f"note: {note}")
    if found.threshold_source.startswith("default"):
        output.say(f"note: no threshold was given: {_threshold(found)}")
    output.say(f"wrote {files.output}, {files.quarantine} and {files.stats}")


def _print(found: MiningStats) -> None:
    output.out(
        f"{found.encoder['id']} on {found.events} events of {found.senses} senses, style {found.style}, seed {found.seed}"
    )
    output.out(f"threshold {_threshold(found)}")
    output.table(
        "",
        ("", "candidates", "share of tested"),
        [
            ("candidates", found.candidates, None),
            ("tested", found.tested, 1.0),
            ("accepted", found.accepted, found.mining_pass_rate),
            *((f"  {name}", count, count / found.tested) for name, count in found.strength.items()),
            ("quarantined", found.quarantined, found.quarantined / found.tested),
            ("written", found.written, None),
        ],
    )
    shown = ", ".join(f"{passes}: {count}" for passes, count in found.pass_distribution.items())
    output.out(f"candidates by passes of {found.lineups} lineups: {shown}")
    effective = found.effective_lineups
    output.out(f"distinct lineups a candidate: {effective['mean']:.2f} on average, at least {effective['min']:.0f}")
    rows = [
        (source, pool.top_k, pool.in_lineup, pool.candidates_with, pool.mean, pool.max)
        for source, pool in found.pools.items()
    ]
    output.table("", ("pool", "nearest", "in a lineup", "candidates with one", "mean size", "largest"), rows)
    for title, counts in (
        ("not accepted", found.rejected),
        ("duplicates", found.duplicates),
        ("left out", found.left_out),
    ):
        told = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items() if count)
        if told:
            output.out(f"{title}: {told}")
    output.out(f"{found.duration_s:.1f} s")


def _threshold(found: MiningStats) -> str:
    if found.calibration is None:
        return f"{found.threshold:.4f} ({found.threshold_source})"
    quantile, bundles = found.calibration.quantile, found.calibration.bundles
    return f"{found.threshold:.4f}, the {quantile} quantile of {bundles} existing tier-3 dangers"
