"""`crucible corpus wordnet`: an installed WordNet -> a folder of events and bundles, with counts and licence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import bundles, output
from crucible.cli.progress import progress
from crucible.contrast.corpus import publish
from crucible.contrast.corpus.build import Plan

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Build real events and bundles from public resources."
)


@app.callback()
def corpus() -> None:
    """Build real events and bundles from public resources that are installed here."""


@app.command()
def wordnet(
    out: Annotated[Path, typer.Option(help="Folder to make; must not exist yet.")],
    style: bundles.StyleOption = "examples",
    limit: bundles.Limit = None,
    seed: bundles.Seed = 42,
    wordnet: Annotated[
        Path | None, typer.Option(help="Folder with data.noun and the others; Debian's if not given.")
    ] = None,
    within: bundles.Within = 8,
    sibling: bundles.Sibling = 3,
    cross_lemma: bundles.CrossLemma = 3,
    json: output.AsJson = False,
) -> None:
    """Build events and bundles from an installed WordNet: examples of word senses against those of other senses.

    Example: crucible corpus wordnet --out corpora/wordnet --style examples --limit 2000
    """
    plan = Plan(style=style, within=within, sibling=sibling, cross_lemma=cross_lemma, seed=seed)
    made = publish.wordnet_corpus(out, plan, progress, folder=wordnet, limit=limit)
    if json:
        output.json_document(made)
    else:
        output.out(f"WordNet {made.version}: {sum(made.synsets.values())} synsets, {made.examples} examples")
        bundles.print_stats(made.build)
    output.say(f"events.jsonl, bundles.jsonl, stats.json and NOTICE are in {out}")
    output.say(made.licence)
