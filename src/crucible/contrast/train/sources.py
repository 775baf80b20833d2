"""Bundle files and frozen eval sets -> their bundles in order, each with its tier, and a digest of every input. No vectors."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from crucible.contrast import evalset
from crucible.contrast.bundle import Bundle
from crucible.contrast.config import Data
from crucible.contrast.pooling import pools
from crucible.contrast.read import BundleFile, require_file
from crucible.errors import BadData, IntegrityBroken
from crucible.kernel import digest


class Sourced(NamedTuple):
    bundle: Bundle
    tier: str | None
    """Frozen, or else as the row says; none where nobody says."""


def read(path: Path, before: int = 0) -> list[Sourced]:
    """`before` is how many bundles came before this file: ids by position go on counting."""
    if _is_frozen(path):
        return _frozen(path)
    return [Sourced(bundle, pools.tier_of(bundle)) for bundle in BundleFile(path, before=before)]


def digests(data: Data) -> dict[str, str]:
    """Of every input, in the order of the settings."""
    return {name: _digest(Path(name)) for name in (*data.bundles, data.frozen_eval, data.organic_eval) if name}


def _digest(path: Path) -> str:
    """A frozen eval set is what its manifest says: the manifest holds the digests of everything else."""
    if _is_frozen(path):
        return digest.of_file(path / evalset.show(path).version / evalset.MANIFEST)
    if path.is_dir():
        return digest.of_tree(path)
    if not path.exists():
        raise BadData.at(path, "no such file", fix="Check the paths of the data block.")
    require_file(path)
    return digest.of_file(path)


def _is_frozen(path: Path) -> bool:
    return (path / evalset.CHANGELOG).is_file()


def _frozen(folder: Path) -> list[Sourced]:
    manifest = evalset.show(folder)
    home = folder / manifest.version
    bundles: list[Bundle] = []
    known: dict[str, int] = {}
    for source in manifest.sources:
        file = home / source.file
        if (actual := digest.of_file(file)) != manifest.files[source.file]:
            raise IntegrityBroken(
                f"{file} has the digest {actual[:16]}…, its manifest says {manifest.files[source.file][:16]}…",
                fix="Restore the eval set from a copy.",
                facts={"file": str(file)},
            )
        bundles += BundleFile(file, before=len(bundles), first_line=known)
    tiers = [item.tier for item in evalset.items_of(folder, manifest.version)]
    return [Sourced(bundle, tier) for bundle, tier in zip(bundles, tiers, strict=True)]
