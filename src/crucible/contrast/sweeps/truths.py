"""A configuration -> both eval sets, loaded and encoded, before several runs start from it. Evaluates nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crucible.contrast import encode, evalset, settings
from crucible.contrast.config import Config
from crucible.contrast.evalset import EvalSet
from crucible.contrast.progress import Progress
from crucible.contrast.tiers import TIERS
from crucible.contrast.train import items
from crucible.errors import BadConfig

_TIER3 = TIERS.index("tier3_adversarial")


def require_truths(config: Config) -> dict[str, EvalSet]:
    """Both eval sets, the frozen one with a tier 3: a sweep that measures one truth would recommend blindly."""
    settings.require_files(config)
    frozen, organic = config.data.frozen_eval, config.data.organic_eval
    fixes = {
        "data.frozen_eval": "crucible evalset freeze BUNDLES --name N --version v1 --encoder minilm --seed 42 --out DIR",
        "data.organic_eval": "crucible mine … --output MINED, then crucible pool split --input MINED "
        "--output-train TRAIN --output-holdout HOLDOUT",
    }
    missing = [key for key, given in zip(fixes, (frozen, organic), strict=True) if not given]
    if missing or frozen is None or organic is None:
        raise BadConfig(
            f"both truths must be measured, and {' and '.join(missing)} is not set",
            fix="Make and set it: " + "; ".join(fixes[key] for key in missing) + ".",
        )
    held = {"frozen": evalset.load(Path(frozen)), "organic": evalset.load(Path(organic))}
    if not item_counts(held)["frozen_tier3"]:
        raise BadConfig(
            f"data.frozen_eval: {frozen} has no item in tier 3, so there is nothing that could be lost",
            fix=f"Freeze one with tiers: {fixes['data.frozen_eval']}.",
        )
    return held


def item_counts(truths: Mapping[str, EvalSet]) -> dict[str, int]:
    """Behind each of the two pass rates, under its name."""
    return {
        "frozen_tier3": int((truths["frozen"].tier == _TIER3).sum()),
        "organic_holdout": len(truths["organic"].items),
    }


def encode_once(config: Config, truths: Mapping[str, EvalSet], progress: Progress | None) -> None:
    """Puts every vector that the workers will ask for into the cache, with all cores of this process."""
    encoder = encode.by_name(config.model.encoder, config.device.type)
    if encoder.cheap:
        return
    groups = [held.items.texts for held in truths.values()]
    if config.model.train == "head":
        groups.append(items.read(config.data).set.texts)
    for texts in groups:
        encode.vectors_for(encoder, texts, progress)


def caveats(config: Config, truths: Mapping[str, EvalSet]) -> list[str]:
    found = []
    encoder = encode.by_name(config.model.encoder, config.device.type)
    if truths["frozen"].pin.facts.get("reference_encoder") == encoder.digest:
        found.append(
            f"{encoder.id} itself tiered the frozen set: tier 3 is what it fails, so its own number there is low by "
            "construction, and a gain over it on frozen tier 3 is no evidence"
        )
    return found
