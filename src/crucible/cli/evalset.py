"""`crucible evalset freeze | show`: a bundle file -> a frozen eval set, and what is in one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.contrast import encode
from crucible.contrast import evalset as evalsets
from crucible.contrast.evalset import Manifest
from crucible.contrast.tiers import TIERS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Freeze and show evaluation sets.")


@app.command()
def freeze(
    bundles: Annotated[Path, typer.Argument(help="Bundle file, one JSON object a line.")],
    name: Annotated[str, typer.Option(help="What people call it.")],
    version: Annotated[str, typer.Option(help="Version label, e.g. v1.")],
    out: Annotated[Path, typer.Option(help="Folder to make; must not exist yet.")],
    encoder: Annotated[str, typer.Option(help="Reference encoder that assigns the tiers, once.")] = "hashing",
    seed: Annotated[int, typer.Option(help="Eval seed; part of the fingerprint.")] = 42,
    json: output.AsJson = False,
) -> None:
    """Tier a bundle file with a named reference encoder and freeze it under a fingerprint.

    Example: crucible evalset freeze bundles.jsonl --name demo --version v1 --encoder hashing --seed 42 --out evalsets/demo
    """
    manifest = evalsets.freeze(bundles, name=name, version=version, encoder=encode.by_name(encoder), seed=seed, out=out)
    _print(manifest, json)
    output.say(f"frozen in {out}")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder of the eval set.")],
    version: Annotated[str | None, typer.Option(help="A version; the latest if not given.")] = None,
    json: output.AsJson = False,
) -> None:
    """Print name, version, fingerprint, tiers and reference encoder.

    Example: crucible evalset show evalsets/demo
    """
    _print(evalsets.show(folder, version), json)


def _print(manifest: Manifest, json: bool) -> None:
    if json:
        output.json_document(manifest)
        return
    output.out(
        f"{manifest.name} {manifest.version}: {manifest.item_count} bundles, tiers by {manifest.reference_encoder['id']}"
    )
    output.out(f"EVAL_FINGERPRINT: {manifest.fingerprint}")
    rows = [
        (tier, count, count / manifest.item_count, manifest.negatives_per_bundle.get(tier))
        for tier, count in zip(TIERS, manifest.tier_distribution.values(), strict=True)
    ]
    output.table("", ("tier", "items", "share", "negatives a bundle"), rows)
    for warning in manifest.warnings:
        output.say(f"warning: {warning}")
