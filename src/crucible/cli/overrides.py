"""`--section.key VALUE` at the end of a command line, and a configuration file -> the settings of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crucible.contrast import settings
from crucible.contrast.config import Config
from crucible.errors import BadConfig

EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of a command that takes dotted options; `dotted(ctx.args)` reads them."""

ConfigFile = Annotated[Path, typer.Option("--config", help="Settings in YAML.", envvar="CRUCIBLE_CONFIG")]
DEFAULT = Path("crucible.yaml")
_CACHE = "CRUCIBLE_CACHE_DIR"


def dotted(extra: Sequence[str]) -> dict[str, str]:
    """`["--training.steps", "500", "--model.hidden=0"]` -> {"training.steps": "500", "model.hidden": "0"}."""
    found: dict[str, str] = {}
    rest = list(extra)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or "." not in name:
            raise BadConfig(
                f"{word!r} is no option of this command",
                fix="See --help; a setting is overridden as --section.key VALUE, for example --training.steps 500.",
            )
        if not equals:
            if not rest or (rest[0].startswith("--") and "." in rest[0]):
                raise BadConfig(f"--{name} has no value", fix=f"--{name} VALUE, or --{name}=VALUE.")
            value = rest.pop(0)
        if name in found:
            raise BadConfig(f"--{name} is given twice, as {found[name]!r} and {value!r}", fix="Give it once.")
        found[name] = value
    return found


def configured(path: Path, extra: Sequence[str]) -> Config:
    """The settings of a file with the overrides of a command line; says where vectors are kept, for this process and its
    children. The environment wins over the file, the command line over both."""
    overrides = dotted(extra)
    if not path.exists():
        raise BadConfig(
            f"{path}: there is no such configuration",
            fix="Give --config FILE, set CRUCIBLE_CONFIG, or make one: crucible init DIR",
        )
    config = settings.load(path, overrides)
    place = config.data.embeddings_cache
    if place and ("data.embeddings_cache" in overrides or not os.environ.get(_CACHE)):
        os.environ[_CACHE] = place
    return config
