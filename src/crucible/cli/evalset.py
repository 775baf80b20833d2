"""`crucible evalset freeze | extend | show | list | diff`: bundle files -> frozen eval sets, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.cli.progress import progress
from crucible.contrast import encode
from crucible.contrast import evalset as evalsets
from crucible.contrast import freeze as freezing
from crucible.contrast.evalset import Diff, Manifest
from crucible.contrast.quarantine import Quarantine
from crucible.contrast.tiers import TIERS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Freeze, extend, show and compare evaluation sets.")

Folder = Annotated[Path, typer.Argument(help="Folder of the eval set.")]
OneVersion = Annotated[str | None, typer.Option(help="A version; the latest if not given.")]


@app.command()
def freeze(
    bundles: Annotated[Path, typer.Argument(help="Bundle file in any accepted format.")],
    name: Annotated[str, typer.Option(help="What people call it.")],
    version: Annotated[str, typer.Option(help="Version label, e.g. v1.")],
    out: Annotated[Path, typer.Option(help="Folder to make; must not exist yet.")],
    encoder: Annotated[str, typer.Option(help="Reference encoder that assigns the tiers, once.")] = "hashing",
    seed: Annotated[int, typer.Option(help="Eval seed; part of the fingerprint.")] = 42,
    negatives: Annotated[
        int | None, typer.Option(help="Keep a seeded draw of this many negatives of every bundle.")
    ] = None,
    skip_invalid: output.SkipInvalid = False,
    json: output.AsJson = False,
) -> None:
    """Tier a bundle file with a named reference encoder and freeze it under a fingerprint.

    Example: crucible evalset freeze bundles.jsonl --name demo --version v1 --encoder hashing --seed 42 --out evalsets/demo
    """
    bad = Quarantine()
    with progress("encoding") as advance:
        manifest = freezing.freeze(
            bundles,
            name=name,
            version=version,
            encoder=encode.by_name(encoder),
            seed=seed,
            out=out,
            negatives=negatives,
            on_problem=bad.add if skip_invalid else None,
            progress=advance,
        )
    output.quarantined(bad.write(aside := out.with_name(f"{out.name}.quarantine.jsonl")), aside)
    _print(manifest, json)
    output.say(f"frozen in {out}")


@app.command()
def extend(
    folder: Folder,
    more: Annotated[Path, typer.Argument(help="Bundle file with the new bundles.")],
    version: Annotated[str, typer.Option(help="Label of the new version, e.g. v2.")],
    note: Annotated[str, typer.Option(help="Why; goes into the changelog.")],
    encoder: Annotated[
        str | None,
        typer.Option(help="The reference encoder here; by the name it was frozen with if not given."),
    ] = None,
    json: output.AsJson = False,
) -> None:
    """Add bundles as a new version beside the old ones; nothing that is there changes.

    Example: crucible evalset extend evalsets/demo more.jsonl --version v2 --note "harder senses"
    """
    reference = encode.by_name(encoder or evalsets.show(folder).reference_encoder["id"])
    with progress("encoding") as advance:
        manifest = freezing.extend(folder, more, version=version, note=note, encoder=reference, progress=advance)
    _print(manifest, json)
    output.say(f"extended {folder}: {manifest.extends} -> {manifest.version}")


@app.command()
def show(folder: Folder, version: OneVersion = None, json: output.AsJson = False) -> None:
    """Print name, version, fingerprint, tiers and reference encoder.

    Example: crucible evalset show evalsets/demo
    """
    _print(evalsets.show(folder, version), json)


@app.command("list")
def list_(folder: Folder, json: output.AsJson = False) -> None:
    """List the versions of an eval set, oldest first, with the changelog.

    Example: crucible evalset list evalsets/demo
    """
    found = evalsets.history(folder)
    if json:
        output.json_document(found)
        return
    rows = [(v.version, v.fingerprint, v.note, v.items, v.added) for v in found]
    output.table(str(folder), ("version", "fingerprint", "note", "items", "added"), rows, left=3)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="Eval set, as FOLDER or FOLDER@VERSION.")],
    b: Annotated[str, typer.Argument(help="Eval set, as FOLDER or FOLDER@VERSION.")],
    json: output.AsJson = False,
) -> None:
    """Say which items were added, removed, changed or moved to another tier between two eval sets.

    Example: crucible evalset diff evalsets/demo@v1 evalsets/demo@v2
    """
    result = evalsets.diff(*_at(a), *_at(b))
    if json:
        output.json_document(result)
    else:
        _print_diff(result)


def _at(text: str) -> tuple[Path, str | None]:
    folder, at, version = text.rpartition("@")
    return (Path(folder), version) if at and not Path(text).exists() else (Path(text), None)


def _print(manifest: Manifest, json: bool) -> None:
    if json:
        output.json_document(manifest)
        return
    by = manifest.reference_encoder["id"]
    output.out(f"{manifest.name} {manifest.version}: {manifest.item_count} bundles, tiers by {by}")
    output.out(f"EVAL_FINGERPRINT: {manifest.fingerprint}")
    rows = [
        (tier, count, count / manifest.item_count, manifest.negatives_per_bundle.get(tier))
        for tier, count in zip(TIERS, manifest.tier_distribution.values(), strict=True)
    ]
    output.table("", ("tier", "items", "share", "negatives a bundle"), rows)
    for warning in manifest.warnings:
        output.say(f"warning: {warning}")


def _print_diff(result: Diff) -> None:
    kinds = ("added", "removed", "changed", "retiered")
    rows = [(kind, len(ids), ", ".join(ids[:5])) for kind in kinds if (ids := getattr(result, kind)) or kind == "added"]
    output.table(f"{result.a} -> {result.b}", ("items", "count", "the first"), rows)
    output.out(
        "append-only: the items of the first are the first items of the second"
        if result.append_only
        else "not append-only"
    )
    for difference in result.facts:
        output.out(f"  {difference}")
