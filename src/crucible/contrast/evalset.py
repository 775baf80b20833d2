"""A folder -> a frozen, versioned eval set: its manifest, its bundles as arrays, its tiers. Making one is in `freeze.py`.

    DIR/
      changelog.jsonl         a ledger: one line a version, with the digest of its manifest
      v1/
        evalset.json          the manifest: name, seed, reference encoder, cut points, tier counts, pin, digests
        source-1.jsonl        the bundle file, byte for byte
        items.jsonl           {"id", "digest", "tier", "danger"} of every bundle, in order
      v2/                     everything v1 has, unchanged, and source-2.jsonl

Nothing in an eval set is ever rewritten; it holds no path and no host, so it can be moved anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import cache, idform, textset, tiers
from crucible.contrast.read import BundleFile, OnProblem, require_file
from crucible.contrast.textset import NO_TIER, TextSet
from crucible.documents import open_input, read_json
from crucible.errors import BadData, IntegrityBroken
from crucible.kernel import digest, ledger
from crucible.kernel.pin import Difference, Pin

CHANGELOG, MANIFEST, ITEMS = "changelog.jsonl", "evalset.json", "items.jsonl"
PIN_KIND = "contrast.evalset"


class Source(msgspec.Struct, frozen=True):
    """One file of an eval set, as it was given."""

    file: str
    sha256: str
    format: str
    items: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `evalset show` prints; field names of the metrics reference where it has them."""

    schema: int
    name: str
    version: str
    fingerprint: str
    source_hash: str
    source_sha256: str
    """Of the source files behind each other: `cat source-* | sha256sum`."""
    seed: int
    item_count: int
    tier_distribution: dict[str, int]
    tier_thresholds: tuple[float, float]
    cut_points: tuple[float, float]
    reference_encoder: dict[str, str]
    negatives_per_bundle: dict[str, float]
    """Mean number of negatives by tier: danger grows with it, so tiers partly measure it."""
    warnings: list[str]
    sources: list[Source]
    extends: str | None
    """The version whose items are the first ones of this."""
    pin: Pin
    files: dict[str, str]


class Item(msgspec.Struct, frozen=True, gc=False):
    """One line of items.jsonl."""

    id: str
    digest: str
    tier: str
    danger: float


class Version(msgspec.Struct, frozen=True):
    """One line of the changelog."""

    version: str
    manifest_sha256: str
    fingerprint: str
    items: int
    added: int
    note: str


@dataclass(frozen=True)
class EvalSet:
    """What a model is evaluated on: the bundles as arrays, the tier of each, and the pin that says what this is."""

    name: str
    version: str
    seed: int
    source_sha256: str
    tier_distribution: dict[str, int]
    pin: Pin
    items: TextSet
    tier: npt.NDArray[np.int8]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.source_sha256, self.seed, len(self.items))


def fingerprint(source_sha256: str, seed: int, item_count: int) -> str:
    """For people, exactly as the reference writes it; comparisons use the whole pin."""
    return f"{source_sha256[:16]}|{seed}|{item_count}"


def load(
    path: Path, version: str | None = None, seed: int | None = None, on_problem: OnProblem | None = None
) -> EvalSet:
    """A frozen eval set, or a plain bundle file with the tiers its rows carry; every digest is checked first.

    `on_problem` is for plain files: bad lines go there, and their number is a fact of the pin.
    """
    if path.is_dir() and (path / CHANGELOG).is_file():
        return _load_frozen(path, version)
    if path.is_dir() and not any(path.glob("*.arrow")) and not any(path.glob("*.parquet")):
        raise not_an_eval_set(path)
    return _load_file(path, seed, on_problem)


def show(folder: Path, version: str | None = None) -> Manifest:
    """The manifest alone, checked against the changelog."""
    listed = {entry.version: entry for entry in history(folder)}
    wanted = version if version is not None else next(reversed(listed))
    if wanted not in listed:
        raise BadData(f"{folder} has no version {wanted!r}", fix=f"It has: {', '.join(listed)}.")
    path = folder / wanted / MANIFEST
    _check(path, listed[wanted].manifest_sha256, "the changelog")
    return read_json(path, Manifest, "an eval set's manifest", "Freeze the eval set again with this crucible.")


def history(folder: Path) -> list[Version]:
    """The changelog, oldest version first."""
    if not (folder / CHANGELOG).is_file():
        raise not_an_eval_set(folder)
    found = [
        msgspec.convert(line.entry.body, type=Version) for line in ledger.read(folder / CHANGELOG) if _is_version(line)
    ]
    if not found:
        raise IntegrityBroken(f"{folder / CHANGELOG} names no version", fix="Restore the eval set from a copy.")
    return found


def items_of(folder: Path, version: str) -> list[Item]:
    """The per-item digests, tiers and dangers of a version, checked against its manifest."""
    manifest = show(folder, version)
    path = folder / version / ITEMS
    _check(path, manifest.files[ITEMS], "its manifest")
    return list(_read_items(path))


class Diff(msgspec.Struct, frozen=True):
    """How B differs from A, by item id and by fact of the pin."""

    a: str
    b: str
    same: bool
    added: list[str]
    removed: list[str]
    changed: list[str]
    retiered: list[str]
    append_only: bool
    """Whether A's items are B's first ones, unchanged."""
    tier_distribution: tuple[dict[str, int], dict[str, int]]
    facts: list[Difference]


def diff(a: Path, a_version: str | None, b: Path, b_version: str | None) -> Diff:
    one, two = show(a, a_version), show(b, b_version)
    left, right = items_of(a, one.version), items_of(b, two.version)
    before, after = ({item.id: item for item in side} for side in (left, right))
    shared = [name for name in before if name in after]
    differences = list(one.pin.differences(two.pin))
    return Diff(
        a=f"{one.name} {one.version}",
        b=f"{two.name} {two.version}",
        same=not differences,
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
        changed=[name for name in shared if before[name].digest != after[name].digest],
        retiered=[name for name in shared if before[name].tier != after[name].tier],
        append_only=[item.digest for item in left] == [item.digest for item in right[: len(left)]],
        tier_distribution=(one.tier_distribution, two.tier_distribution),
        facts=differences,
    )


def not_an_eval_set(folder: Path) -> BadData:
    return BadData.at(
        folder,
        "is not an eval set",
        fix=f"Make one: crucible evalset freeze BUNDLES --name N --version v1 --out {folder}",
    )


def textset_of(source_sha256: str, files: list[Path]) -> TextSet:
    """The bundles as arrays, from the id form if this content was read before."""
    folder = idform.folder_for(cache.location(), source_sha256)
    known = idform.load(folder)
    if known is None:
        known = textset.from_files(files)
        idform.save(folder, known)
    return known


def _load_frozen(folder: Path, version: str | None) -> EvalSet:
    manifest = show(folder, version)
    home = folder / manifest.version
    for file, expected in manifest.files.items():
        _check(home / file, expected, "its manifest")
    items = textset_of(manifest.source_sha256, [home / source.file for source in manifest.sources])
    place = {name: index for index, name in enumerate(tiers.TIERS)}
    tier = np.fromiter((place[item.tier] for item in _read_items(home / ITEMS)), dtype=np.int8)
    return EvalSet(
        manifest.name,
        manifest.version,
        manifest.seed,
        manifest.source_sha256,
        manifest.tier_distribution,
        manifest.pin,
        items,
        tier,
    )


def _load_file(path: Path, seed: int | None, on_problem: OnProblem | None) -> EvalSet:
    """A bundle file that nobody froze: tiers only where its rows carry them, and a pin of another kind."""
    if not path.is_dir():
        require_file(path)
    source_sha256 = digest.of_tree(path) if path.is_dir() else digest.of_chunks(_chunks_of(path))
    items = textset_of(source_sha256, [path]) if on_problem is None else _tolerant(path, on_problem)
    recorded = items.header.eval_seed if items.header else None
    eval_seed = seed if seed is not None else recorded if recorded is not None else 42
    tier = np.asarray(items.tier, dtype=np.int8)
    counts = tiers.counts(tier)
    facts = {
        "source_sha256": source_sha256,
        "item_count": len(items),
        "eval_seed": eval_seed,
        "tier_distribution": counts,
        "untiered": int(np.count_nonzero(tier == NO_TIER)),
    }
    return EvalSet(path.name, "", eval_seed, source_sha256, counts, Pin("contrast.file", facts), items, tier)


def _tolerant(path: Path, on_problem: OnProblem) -> TextSet:
    source = BundleFile(path, on_problem)
    items = textset.build(source)
    if not len(items):
        raise BadData.at(path, "holds no valid bundle", fix=f"See what is wrong: crucible bundles check {path}")
    return dataclasses.replace(items, header=source.header)


def _chunks_of(path: Path) -> Iterator[bytes]:
    with open_input(path, "a bundle file or an eval set") as stream:
        while chunk := stream.read(1 << 20):
            yield chunk


def _check(path: Path, expected: str, who: str) -> None:
    actual = digest.of_file(path)
    if actual != expected:
        raise IntegrityBroken(
            f"{path} has the digest {actual[:16]}…, {who} says {expected[:16]}…: it was changed",
            fix="Restore the eval set from a copy, or freeze a new one.",
            facts={"file": str(path)},
        )


def _read_items(path: Path) -> Iterator[Item]:
    decode = msgspec.json.Decoder(Item).decode
    with open_input(path, "the items of an eval set") as stream:
        for line in stream:
            yield decode(line)


def _is_version(line: ledger.Line) -> bool:
    return line.entry.kind in ("evalset.frozen", "evalset.extended")
