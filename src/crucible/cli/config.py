"""`crucible config validate | show | exposure`: a configuration file -> what is wrong with it, what it says, what it means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli import output
from crucible.cli.overrides import DEFAULT, EXTRA, configured
from crucible.cli.progress import progress
from crucible.contrast import encode, exposure, guardrails, settings
from crucible.contrast.config import Config
from crucible.contrast.train import items as training
from crucible.contrast.train.items import Items

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Check and show a configuration.")

File = Annotated[Path, typer.Argument(help="Configuration in YAML.", envvar="CRUCIBLE_CONFIG")]


@app.command(context_settings=EXTRA)
def validate(ctx: typer.Context, file: File = DEFAULT, json: output.AsJson = False) -> None:
    """Check a configuration: keys, values, files; exit 2 with every problem and the nearest known key.

    Example: crucible config validate crucible.yaml --training.steps 500
    """
    config = configured(file, ctx.args)
    settings.require_files(config)
    encode.by_name(config.model.encoder, config.device.type)
    found = {"file": str(file), "valid": True, "inputs": _inputs(config)}
    if json:
        output.json_document(found)
        return
    output.out(f"{file}: valid")
    for key, path in _inputs(config).items():
        output.out(f"  {key}: {path}")


@app.command(context_settings=EXTRA)
def show(
    ctx: typer.Context,
    file: File = DEFAULT,
    defaults: Annotated[bool, typer.Option("--defaults", help="Every key with its default; reads no file.")] = False,
    json: output.AsJson = False,
) -> None:
    """The configuration as training would see it: extended, substituted, overridden, with every default filled in.

    Example: crucible config show crucible.yaml --model.hidden 256
    """
    config = Config() if defaults else configured(file, ctx.args)
    if json:
        output.json_document(config)
    else:
        output.out(settings.dump(config).decode().rstrip())


@app.command("exposure", context_settings=EXTRA)
def exposure_(ctx: typer.Context, file: File = DEFAULT, json: output.AsJson = False) -> None:
    """How often training would show each item of each tier-3 pool, whether that is healthy, and what would make it so.

    Example: crucible config exposure crucible.yaml --training.steps 20000
    """
    config = configured(file, ctx.args)
    settings.require_files(config)
    items = _tiered(config)
    sizes = items.sizes()
    found = exposure.per_pool(config.curriculum, config.training, sizes)
    trips = guardrails.before(config, sizes, items.duplicates, items.without_metadata)
    if json:
        output.json_document({"groups": sizes, "exposure": found, "findings": trips, "notes": items.notes})
        return
    groups = ", ".join(f"{name} {count}" for name, count in sizes.items())
    output.out(f"{len(items)} training bundles: {groups}")
    output.table("", ("tier-3 pool", "items", "expected", "status"), _rows(found))
    for pool, one in found.items():
        if one.healthy_with:
            remedy = one.healthy_with
            ways = [f"training.steps {remedy.steps}"] if remedy.steps else []
            ways += [f"a ratio of {remedy.legacy_ratio:.3f}"] if remedy.legacy_ratio else []
            ways += [f"at most {remedy.legacy_pool} items"] if remedy.legacy_pool else []
            output.out(f"{pool} would be healthy with any one of: " + (", ".join(ways) or "nothing that can be set"))
    for finding in trips:
        output.say(f"guardrail {finding.guardrail} ({finding.level}): {finding.message}")


def _rows(found: Mapping[str, exposure.Exposure]) -> list[tuple[str, int, float, str]]:
    return [(pool, one.legacy_pool, one.expected, one.status) for pool, one in found.items()]


def _tiered(config: Config) -> Items:
    """The training items; only bundles without a tier need the encoder."""
    items = training.read(config.data)
    if not items.untiered:
        return items
    encoder = encode.by_name(config.model.encoder, config.device.type)
    with progress("encoding") as encoding:
        vectors, _ = encode.vectors_for(encoder, items.set.texts, encoding)
    return training.tiered(items, vectors, encoder.id)


def _inputs(config: Config) -> dict[str, str]:
    data = config.data
    named = [(f"data.bundles[{place}]", path) for place, path in enumerate(data.bundles)]
    named += [("data.frozen_eval", data.frozen_eval or ""), ("data.organic_eval", data.organic_eval or "")]
    return {key: path for key, path in named if path}
