"""A bundle file -> a frozen, versioned eval set with a pin and a fingerprint; and back. Evaluates no model but the reference.

    DIR/
      changelog.jsonl       a ledger: one line a version, with the digest of its manifest
      v1/
        evalset.json        the manifest: name, seed, reference encoder, cut points, tier counts, pin, digests
        source.jsonl        the bundle file, byte for byte
        items.jsonl         {"id", "digest", "tier", "danger"} of every bundle, in order

Tiers are assigned once, here, by a named reference encoder, so that they never depend on the model under test. Nothing in
an eval set is ever rewritten; it holds no path, so it can be moved anywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import bundle, encode, score, textset, tiers
from crucible.contrast.bundle import Bundle
from crucible.contrast.encode import Encoder
from crucible.contrast.textset import TextSet
from crucible.documents import new_folder, open_input, read_json, to_json, writing
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest, ledger
from crucible.kernel.pin import Pin

CHANGELOG, MANIFEST, SOURCE, ITEMS = "changelog.jsonl", "evalset.json", "source.jsonl", "items.jsonl"
PIN_KIND = "contrast.evalset"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `evalset show` prints; field names of the metrics reference where it has them."""

    schema: int
    name: str
    version: str
    fingerprint: str
    source_hash: str
    source_sha256: str
    seed: int
    item_count: int
    tier_distribution: dict[str, int]
    tier_thresholds: tuple[float, float]
    cut_points: tuple[float, float]
    reference_encoder: dict[str, str]
    negatives_per_bundle: dict[str, float]
    """Mean number of negatives by tier: danger grows with it, so tiers partly measure it."""
    warnings: list[str]
    pin: Pin
    files: dict[str, str]


class Item(msgspec.Struct, frozen=True):
    """One line of items.jsonl."""

    id: str
    digest: str
    tier: str
    danger: float


@dataclass(frozen=True)
class EvalSet:
    """A loaded and verified eval set: the bundles as arrays and the tier of each."""

    manifest: Manifest
    items: TextSet
    tier: npt.NDArray[np.int8]


def fingerprint(source_sha256: str, seed: int, item_count: int) -> str:
    """For people, exactly as the reference writes it; comparisons use the whole pin."""
    return f"{source_sha256[:16]}|{seed}|{item_count}"


def freeze(source: Path, *, name: str, version: str, encoder: Encoder, seed: int, out: Path) -> Manifest:
    """Writes DIR with its first version; either all of it is there afterwards or nothing."""
    _check_version(version)
    with new_folder(out) as draft:
        folder = draft / version
        folder.mkdir()
        source_sha256 = _copy(source, folder / SOURCE)
        # The copy is read, not the original: what was hashed is what is parsed, whoever writes to the original meanwhile.
        bundles = _read_copy(folder / SOURCE, source)
        manifest = _describe(bundles, folder, name, version, encoder, seed, source_sha256)
        data = to_json(manifest)
        with writing(folder / MANIFEST) as stream:
            stream.write(data)
        entry = {"version": version, "manifest_sha256": digest.of_bytes(data), "fingerprint": manifest.fingerprint}
        ledger.append(draft / CHANGELOG, "evalset.frozen", entry)
    return manifest


def load(folder: Path, version: str | None = None) -> EvalSet:
    """The latest version, or a named one; every digest is checked first."""
    manifest = show(folder, version)
    home = folder / manifest.version
    for file, expected in manifest.files.items():
        actual = digest.of_file(home / file)
        if actual != expected:
            raise IntegrityBroken(
                f"{home / file} has the digest {actual[:16]}…, its manifest says {expected[:16]}…: it was changed",
                fix="Restore the eval set from a copy, or freeze a new one.",
                facts={"file": str(home / file)},
            )
    tier = np.fromiter((tiers.TIERS.index(item.tier) for item in _read_items(home / ITEMS)), dtype=np.int8)
    return EvalSet(manifest, textset.build(bundle.read(home / SOURCE)), tier)


def show(folder: Path, version: str | None = None) -> Manifest:
    """The manifest alone, checked against the changelog."""
    listed = versions(folder)
    wanted = version if version is not None else next(reversed(listed))
    if wanted not in listed:
        raise BadData(f"{folder} has no version {wanted!r}", fix=f"It has: {', '.join(listed)}.")
    path = folder / wanted / MANIFEST
    actual = digest.of_file(path)
    if actual != listed[wanted]:
        raise IntegrityBroken(
            f"{path} has the digest {actual[:16]}…, the changelog says {listed[wanted][:16]}…: it was changed",
            fix="Restore the eval set from a copy, or freeze a new one.",
            facts={"file": str(path)},
        )
    return read_json(path, Manifest, "an eval set's manifest", "Freeze the eval set again with this crucible.")


def versions(folder: Path) -> dict[str, str]:
    """Every version in order with the digest of its manifest."""
    if not (folder / CHANGELOG).is_file():
        raise BadData.at(
            folder,
            "is not an eval set",
            fix=f"Make one: crucible evalset freeze BUNDLES --name N --version v1 --out {folder}",
        )
    return {line.entry.body["version"]: line.entry.body["manifest_sha256"] for line in ledger.read(folder / CHANGELOG)}


def item_digest(item: Bundle) -> str:
    """Identity of a bundle's content: its id and every text, in order."""
    return digest.of_json(item)


def _describe(
    bundles: Sequence[Bundle], folder: Path, name: str, version: str, encoder: Encoder, seed: int, source_sha256: str
) -> Manifest:
    items = textset.build(bundles)
    dangers = score.score(items, encode.unit_vectors(encoder, items.texts)).danger
    cuts = tiers.cut_points(dangers)
    tier = tiers.assign(dangers, cuts)
    digests = [item_digest(item) for item in bundles]
    with writing(folder / ITEMS) as stream:
        for item, own, place, danger in zip(bundles, digests, tier, dangers, strict=True):
            stream.write(msgspec.json.encode(Item(item.id, own, tiers.TIERS[place], float(danger))) + b"\n")
    reference = {"id": encoder.id, "digest": encoder.digest}
    counts = tiers.counts(tier)
    facts = {
        "source_sha256": source_sha256,
        "items_sha256": digest.of_chunks(own.encode() for own in digests),
        "item_count": len(bundles),
        "eval_seed": seed,
        "version": version,
        "tier_distribution": counts,
        "tier_thresholds": list(tiers.THRESHOLDS),
        "cut_points": list(cuts),
        "reference_encoder": reference,
    }
    return Manifest(
        schema=1,
        name=name,
        version=version,
        fingerprint=fingerprint(source_sha256, seed, len(bundles)),
        source_hash=source_sha256[:16],
        source_sha256=source_sha256,
        seed=seed,
        item_count=len(bundles),
        tier_distribution=counts,
        tier_thresholds=tiers.THRESHOLDS,
        cut_points=cuts,
        reference_encoder=reference,
        negatives_per_bundle=_negatives_by_tier(items, tier),
        warnings=_warnings(items, counts),
        pin=Pin(PIN_KIND, facts, {"name": name}),
        files={SOURCE: source_sha256, ITEMS: digest.of_file(folder / ITEMS)},
    )


def _negatives_by_tier(items: TextSet, tier: npt.NDArray[np.int8]) -> dict[str, float]:
    counts = np.diff(items.offsets)
    present = [i for i in range(len(tiers.TIERS)) if (tier == i).any()]
    return {tiers.TIERS[i]: float(counts[tier == i].mean()) for i in present}


def _warnings(items: TextSet, counts: dict[str, int]) -> list[str]:
    found = [
        f"{name} holds {n} items: quantiles below {tiers.SMALL_TIER} are optimistic"
        for name, n in counts.items()
        if n < tiers.SMALL_TIER
    ]
    owner = np.repeat(np.arange(len(items)), np.diff(items.offsets))
    same = np.unique(owner[items.negatives == items.positives[owner]])
    if same.size:
        first = items.ids[int(same[0])]
        found.append(
            f"{same.size} bundles have a negative identical to the positive, the first is {first!r}: they always tie"
        )
    return found


def _copy(source: Path, target: Path) -> str:
    running = hashlib.sha256()
    with open_input(source, "a bundle file") as stream, writing(target) as copy:
        while chunk := stream.read(1 << 20):
            running.update(chunk)
            copy.write(chunk)
    return running.hexdigest()


def _read_copy(copy: Path, source: Path) -> list[Bundle]:
    """The bundles of the copy; an error names the file the user gave."""
    try:
        return list(bundle.read(copy))
    except BadData as error:
        facts = {**error.facts, "file": str(source)}
        raise BadData(error.message.replace(str(copy), str(source), 1), fix=error.fix, facts=facts) from None


def _read_items(path: Path) -> Iterator[Item]:
    with open_input(path, "the items of an eval set") as stream:
        for line in stream:
            yield msgspec.json.decode(line, type=Item)


def _check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise BadConfig(
            f"version {version!r} is not letters, digits, '.', '_' and '-' (at most 64)", fix="Try --version v1."
        )
