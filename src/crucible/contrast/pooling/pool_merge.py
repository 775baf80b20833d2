"""Several bundle files -> one pool file in which every bundle says its pool and where it came from. Drops only repetitions.

A bundle that asks the same question as an earlier one (equal signature) is left out and listed; an id that is already taken
by another question gets a new ending. Nested events are written if any input has them, flat strings with metadata otherwise;
a line of the format that is written keeps whatever else stands in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from crucible.contrast.bundle import signature
from crucible.contrast.pooling.poolfile import Entry, Manifest, PoolFile, Written, line_of, publish, require_outputs
from crucible.contrast.pooling.pools import POOLS, pool_of
from crucible.contrast.read import BundleFile, OnProblem
from crucible.errors import BadConfig, BadData

MAX_LISTED = 1000
"""Repetitions and new ids beyond this many are only counted."""


@dataclass
class _Merged:
    """What is known so far; `lines` fills it."""

    nested: bool
    pools: Mapping[Path, str]
    first: dict[str, str] = field(default_factory=dict)
    """Signature -> the id it was written with."""
    ids: set[str] = field(default_factory=set)
    of_pool: Counter[str] = field(default_factory=Counter)
    repeated: list[dict[str, Any]] = field(default_factory=list)
    renamed: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    new_ids: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    """File -> bundles whose own pool was overruled."""

    def lines(self, files: Sequence[PoolFile]) -> Iterator[tuple[int, bytes]]:
        for file in files:
            file.before = len(self.ids) + self.left_out.total()
            for entry in file:
                line = self._line(file, entry)
                if line is not None:
                    yield 0, line
        if not self.ids:
            listed = ", ".join(str(file.path) for file in files)
            raise BadData(
                f"no bundle in {listed}", fix="`crucible bundles check FILE` says what is wrong with each line."
            )

    def _line(self, file: PoolFile, entry: Entry) -> bytes | None:
        bundle = entry.bundle
        place = {"file": file.path.name, "line": entry.line, "id": bundle.id}
        sign = signature(bundle)
        if sign in self.first:
            self.left_out[str(file.path)] += 1
            if len(self.repeated) < MAX_LISTED:
                self.repeated.append(place | {"repeats": self.first[sign]})
            return None
        name = self._free(bundle.id)
        if name != bundle.id:
            self.new_ids += 1
            if len(self.renamed) < MAX_LISTED:
                self.renamed.append(place | {"new_id": name})
        self.ids.add(name)
        self.first[sign] = name
        pool = self.pools.get(file.path) or pool_of(bundle)
        if file.path in self.pools and bundle.metadata.get("pool") not in (None, pool):
            self.moved[str(file.path)] += 1
        self.of_pool[pool] += 1
        origin = {"file": file.path.name, "sha256": file.sha256, "line": entry.line, "id": bundle.id}
        earlier = bundle.metadata.get("provenance")
        about = {"pool": pool, "provenance": origin | ({"from": earlier} if earlier is not None else {})}
        return _written(entry, name, about, nested=self.nested)

    def _free(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self.ids:
            number += 1
            candidate = f"{name}~{number}"
        return candidate


def merge(
    inputs: Sequence[Path],
    output: Path,
    pools: Mapping[Path, str] | None = None,
    on_problem: OnProblem | None = None,
) -> Manifest:
    """`pools` names the pool of whole files; every other bundle is in the pool that its metadata implies."""
    named = dict(pools or {})
    _require_sensible(inputs, named)
    require_outputs([output], inputs)
    files = [PoolFile(path, on_problem) for path in inputs]
    merged = _Merged(nested=any(_format(path) == "events" for path in inputs), pools=named)
    return publish([output], merged.lines(files), lambda written: _manifest(files, merged, written))


def _require_sensible(inputs: Sequence[Path], pools: Mapping[Path, str]) -> None:
    for path, pool in pools.items():
        if pool not in POOLS:
            raise BadConfig(f"no pool is called {pool!r}", fix=f"Choose one of {', '.join(POOLS)}.")
        if path not in inputs:
            raise BadConfig(f"--as names {path}, which is none of the files", fix="Give it as a file, too.")
    twice = [path for path, count in Counter(path.resolve() for path in inputs).items() if count > 1]
    if twice:
        raise BadConfig(f"{twice[0]} is given twice", fix="Give every file once.")


def _format(path: Path) -> str:
    """By the first bundle; a file without one is found later, when it is read for good."""
    source = BundleFile(path, on_problem=lambda problem, raw: None)
    next(iter(source), None)
    return source.format


def _written(entry: Entry, name: str, about: dict[str, Any], *, nested: bool) -> bytes:
    """The bundle's own line with its id and metadata changed, where the format stays; a new line where it does not."""
    bundle = entry.bundle
    line = None if entry.raw is None else msgspec.json.decode(entry.raw)
    if isinstance(line, dict) and "anchor" in line and isinstance(line["anchor"], dict) == nested:
        line["bundle_id" if nested else "id"] = name
        line["metadata"] = (line.get("metadata") or {}) | about
        return msgspec.json.encode(line) + b"\n"
    changed = msgspec.structs.replace(bundle, id=name, metadata=bundle.metadata | about)
    return line_of(changed, nested=nested)


def _manifest(files: Sequence[PoolFile], merged: _Merged, written: Sequence[Written]) -> Manifest:
    notes = [f"{count} bundles of {file} were in another pool" for file, count in merged.moved.items()]
    notes += [f"{file.path} holds no bundle" for file in files if not file.bundles]
    if merged.left_out.total():
        notes.append(f"{merged.left_out.total()} bundles repeat an earlier one and were left out")
    if merged.new_ids:
        notes.append(f"{merged.new_ids} bundles have an id that an earlier one has, and got a new one")
    notes += [
        f"of those only the first {MAX_LISTED} are listed"
        for count in (merged.left_out.total(), merged.new_ids)
        if count > MAX_LISTED
    ]
    return Manifest(
        command="pool merge",
        inputs=[file.described() for file in files],
        outputs=list(written),
        settings={
            "as": {str(path): pool for path, pool in merged.pools.items()},
            "format": "events" if merged.nested else "flat",
        },
        counts={
            "bundles": sum(file.bundles for file in files),
            "written": written[0].bundles,
            **{pool: merged.of_pool[pool] for pool in POOLS},
        },
        duplicates={
            "signature": merged.left_out.total(),
            "by_file": dict(merged.left_out),
            "left_out": merged.repeated,
            "new_ids": merged.new_ids,
            "renamed": merged.renamed,
        },
        notes=notes,
    )
