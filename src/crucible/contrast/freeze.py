"""A bundle file -> the first version of an eval set; more bundles -> the next one. Never changes what is there.

Tiers are assigned by a named reference encoder, so that they never depend on the model under test. A later version keeps the
cut points of the first: an item's tier is decided once.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import encode, score, tiers
from crucible.contrast.bundle import Bundle, item_digest
from crucible.contrast.encode import Encoder
from crucible.contrast.evalset import (
    CHANGELOG,
    ITEMS,
    MANIFEST,
    PIN_KIND,
    Item,
    Manifest,
    Source,
    Version,
    fingerprint,
    history,
    items_of,
    show,
    textset_of,
)
from crucible.contrast.progress import Progress
from crucible.contrast.read import BundleFile, OnProblem
from crucible.contrast.textset import TextSet
from crucible.documents import new_folder, open_input, to_json, writing
from crucible.errors import BadConfig, BadData, IntegrityBroken, Mistake
from crucible.kernel import digest, ledger
from crucible.kernel.pin import Pin

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class _Kept:
    """A source as it lies in the eval set, and what the user called it: errors speak of that."""

    copy: Path
    given: str
    sha256: str


@dataclass(frozen=True)
class Naming:
    """What people call a version; the name is a note, version and seed are facts."""

    name: str
    version: str
    seed: int
    extends: str | None = None


def freeze(
    source: Path,
    *,
    name: str,
    version: str,
    encoder: Encoder,
    seed: int,
    out: Path,
    negatives: int | None = None,
    on_problem: OnProblem | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Writes DIR with its first version; either all of it is there afterwards or nothing.

    With `negatives`, every bundle keeps a seeded draw of that many: danger grows with their number, and a fixed one makes
    tiers comparable. With `on_problem`, bad lines go there and the good ones are kept as the set's own file.
    """
    check_version(version)
    with new_folder(out) as draft:
        folder = draft / version
        folder.mkdir()
        if negatives is not None:
            kept = _keep_drawn(BundleFile(source, on_problem), folder, negatives, seed)
        elif on_problem is not None:
            kept = _keep_bundles(BundleFile(source, on_problem), folder, 1, str(source))
        else:
            kept = _keep(source, folder, 1)
        manifest = _describe(folder, [kept], Naming(name, version, seed), encoder, None, progress)
        _write_manifest(folder, manifest)
        _log(draft / CHANGELOG, "evalset.frozen", folder, manifest, manifest.item_count, "")
    return manifest


def extend(
    folder: Path, more: Path, *, version: str, note: str, encoder: Encoder, progress: Progress | None = None
) -> Manifest:
    """Adds a version beside the old ones: their items unchanged and first, then the new ones."""
    check_version(version)
    old = show(folder)
    if version in {entry.version for entry in history(folder)}:
        raise Mistake(
            f"{folder} already has a version {version}", fix="Choose another --version: versions never change."
        )
    if encoder.digest != old.reference_encoder["digest"]:
        raise IntegrityBroken(
            f"the reference encoder is {encoder.id} with digest {encoder.digest[:16]}…, {old.version} was tiered by "
            f"{old.reference_encoder['id']} with {old.reference_encoder['digest'][:16]}…",
            fix="Install the same encoder, or freeze a new eval set.",
        )
    before = items_of(folder, old.version)
    _remove_unlogged(folder / version)
    with new_folder(folder / version) as draft:
        kept = [_keep(folder / old.version / source.file, draft, i) for i, source in enumerate(old.sources, 1)]
        if [copy.sha256 for copy in kept] != [source.sha256 for source in old.sources]:
            raise IntegrityBroken(f"a source of {old.version} was changed", fix="Restore the eval set from a copy.")
        kept.append(_keep(more, draft, len(kept) + 1))
        _refuse_known(kept[-1], before, len(before))
        naming = Naming(old.name, version, old.seed, old.version)
        manifest = _describe(draft, kept, naming, encoder, old.cut_points, progress)
        _prove_prefix(before, draft / ITEMS)
        _write_manifest(draft, manifest)
    added = manifest.item_count - old.item_count
    _log(folder / CHANGELOG, "evalset.extended", folder / version, manifest, added, note)
    return manifest


def check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise BadConfig(
            f"version {version!r} is not letters, digits, '.', '_' and '-' (at most 64)", fix="Try --version v1."
        )


def _describe(
    folder: Path,
    kept: list[_Kept],
    naming: Naming,
    encoder: Encoder,
    cuts: tuple[float, float] | None,
    progress: Progress | None,
) -> Manifest:
    """Reads the kept sources, tiers them, writes items.jsonl and returns the manifest."""
    paths = [source.copy for source in kept]
    digests, sources = _item_digests(kept)
    source_sha256 = digest.of_chunks(chunk for path in paths for chunk in _chunks(path))
    items = textset_of(source_sha256, paths)
    vectors, _ = encode.vectors_for(encoder, items.texts, progress=progress)
    dangers = score.score(items, vectors).danger
    cuts = cuts or tiers.cut_points(dangers)
    tier = tiers.assign(dangers, cuts)
    _write_items(folder / ITEMS, items.ids, digests, tier, dangers)
    reference = {"id": encoder.id, "digest": encoder.digest}
    counts = tiers.counts(tier)
    facts = {
        "source_sha256": source_sha256,
        "items_sha256": digest.of_chunks(own.encode() for own in digests),
        "item_count": len(items),
        "eval_seed": naming.seed,
        "version": naming.version,
        "tier_distribution": counts,
        "tier_thresholds": list(tiers.THRESHOLDS),
        "cut_points": list(cuts),
        "reference_encoder": encoder.digest,
    }
    return Manifest(
        schema=1,
        name=naming.name,
        version=naming.version,
        fingerprint=fingerprint(source_sha256, naming.seed, len(items)),
        source_hash=source_sha256[:16],
        source_sha256=source_sha256,
        seed=naming.seed,
        item_count=len(items),
        tier_distribution=counts,
        tier_thresholds=tiers.THRESHOLDS,
        cut_points=cuts,
        reference_encoder=reference,
        negatives_per_bundle=_negatives_by_tier(items, tier),
        warnings=_warnings(items, counts),
        sources=sources,
        extends=naming.extends,
        pin=Pin(PIN_KIND, facts, {"name": naming.name, "reference_encoder": encoder.id}),
        files={source.file: source.sha256 for source in sources} | {ITEMS: digest.of_file(folder / ITEMS)},
    )


def _item_digests(kept: list[_Kept]) -> tuple[list[str], list[Source]]:
    """The identity of every bundle in order, and the sources with their counts; reads carefully, so it also names faults."""
    digests: list[str] = []
    known: dict[str, int] = {}
    described: list[Source] = []
    for source in kept:
        reader = BundleFile(source.copy, before=len(digests), first_line=known)
        count = len(digests)
        try:
            digests += [item_digest(bundle) for bundle in reader]
        except BadData as error:
            raise _about(error, source) from None
        described.append(Source(source.copy.name, source.sha256, reader.format, len(digests) - count))
    return digests, described


def _about(error: BadData, source: _Kept) -> BadData:
    """The same error about the file the user gave instead of the copy."""
    message = error.message.replace(str(source.copy), source.given, 1)
    return BadData(message, fix=error.fix, facts={**error.facts, "file": source.given})


def _write_items(
    path: Path,
    ids: Iterable[str],
    digests: Sequence[str],
    tier: npt.NDArray[np.int8],
    dangers: npt.NDArray[np.float64],
) -> None:
    encoder = msgspec.json.Encoder()
    with writing(path) as stream:
        for own, content, place, danger in zip(ids, digests, tier.tolist(), dangers.tolist(), strict=True):
            stream.write(encoder.encode(Item(own, content, tiers.TIERS[place], danger)) + b"\n")


def _keep(source: Path, folder: Path, number: int) -> _Kept:
    """Copies the file byte for byte; what is hashed is what will be parsed, whoever writes to the original meanwhile."""
    if source.is_dir():  # a folder of columns has no bytes of its own: its bundles are kept as flat lines
        return _keep_bundles(BundleFile(source), folder, number, str(source))
    ending = re.search(r"(\.[a-z]{1,8}){1,2}$", source.name)
    target = folder / f"source-{number}{ending[0] if ending else '.jsonl'}"
    running = hashlib.sha256()
    with writing(target) as copy:
        for chunk in _chunks(source):
            running.update(chunk)
            copy.write(chunk)
    return _Kept(target, str(source), running.hexdigest())


def _keep_bundles(bundles: Iterable[Bundle], folder: Path, number: int, given: str) -> _Kept:
    target = folder / f"source-{number}.jsonl"
    encoder = msgspec.json.Encoder()
    with writing(target) as stream:
        for item in bundles:
            line = {"id": item.id, "anchor": item.anchor, "positive": item.positive, "negatives": item.negatives}
            if item.sense is not None:
                line["sense"] = item.sense
            stream.write(encoder.encode(line) + b"\n")
    return _Kept(target, given, digest.of_file(target))


def _keep_drawn(source: BundleFile, folder: Path, count: int, seed: int) -> _Kept:
    """Every bundle with `count` of its negatives, drawn by seed and id, so that the draw depends on nothing else."""
    if count < 1:
        raise BadConfig(f"--negatives {count} leaves nothing to compare with", fix="Give 1 or more.")

    def drawn() -> Iterable[Bundle]:
        for item in source:
            if len(item.negatives) < count:
                raise BadData(
                    f"{source.path}: bundle {item.id!r} has {len(item.negatives)} negatives, --negatives asks for {count}",
                    fix="Ask for fewer, or remove the bundles that have too few.",
                )
            order = random.Random(f"{seed}:{item.id}")
            places = sorted(range(len(item.negatives)), key=lambda place: (order.random(), place))[:count]
            yield msgspec.structs.replace(item, negatives=tuple(item.negatives[place] for place in sorted(places)))

    return _keep_bundles(drawn(), folder, 1, str(source.path))


def _refuse_known(kept: _Kept, before: Sequence[Item], offset: int) -> None:
    """An id that is already there is an edit or a repetition; neither is an addition."""
    known = {item.id: item.digest for item in before}
    for item in BundleFile(kept.copy, before=offset):
        if item.id in known:
            same = known[item.id] == item_digest(item)
            raise Mistake(
                f"{kept.given}: bundle {item.id!r} is already in the eval set" + ("" if same else ", with other texts"),
                fix="An eval set is append-only: give new bundles with new ids, or freeze a new eval set.",
                facts={"id": item.id, "edited": not same},
            )


def _prove_prefix(before: Sequence[Item], path: Path) -> None:
    """The old items are the first of the new ones, unchanged in content and tier."""
    decode = msgspec.json.Decoder(Item).decode
    with path.open("rb") as stream:
        for old, line in zip(before, stream, strict=False):
            new = decode(line)
            if (new.id, new.digest, new.tier) != (old.id, old.digest, old.tier):
                raise IntegrityBroken(
                    f"item {old.id!r} would change from {old.tier} to {new.tier}: the reference encoder gives other vectors here",
                    fix="Extend on a machine where it reproduces the frozen dangers, or freeze a new eval set.",
                )


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with writing(folder / MANIFEST) as stream:
        stream.write(to_json(manifest))


def _log(changelog: Path, kind: str, folder: Path, manifest: Manifest, added: int, note: str) -> None:
    entry = Version(
        manifest.version, digest.of_file(folder / MANIFEST), manifest.fingerprint, manifest.item_count, added, note
    )
    ledger.append(changelog, kind, entry)


def _remove_unlogged(folder: Path) -> None:
    """A crash between a version's folder and its line in the changelog leaves a folder nobody can load: it goes."""
    shutil.rmtree(folder, ignore_errors=True)


def _negatives_by_tier(items: TextSet, tier: npt.NDArray[np.int8]) -> dict[str, float]:
    counts = np.diff(items.offsets)
    present = [i for i in range(len(tiers.TIERS)) if (tier == i).any()]
    return {tiers.TIERS[i]: float(counts[tier == i].mean()) for i in present}


def _warnings(items: TextSet, counts: dict[str, int]) -> list[str]:
    small = {name: n for name, n in counts.items() if n < tiers.SMALL_TIER}
    found = [f"{name} holds {n} items; below {tiers.SMALL_TIER}, quantiles are optimistic" for name, n in small.items()]
    owner = np.repeat(np.arange(len(items)), np.diff(items.offsets))
    same = np.unique(owner[items.negatives == items.positives[owner]])
    if same.size:
        first = items.ids[int(same[0])]
        found.append(
            f"{same.size} bundles have a negative identical to the positive, the first is {first!r}: they always tie"
        )
    return found


def _chunks(path: Path) -> Iterator[bytes]:
    with open_input(path, "a bundle file") as stream:
        while chunk := stream.read(1 << 20):
            yield chunk
