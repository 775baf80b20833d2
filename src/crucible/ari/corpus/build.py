"""A tier -> one text file with its digest, and a list of the licences beside it. Trains nothing.

    for every source of the tier:   provide (pinned file) -> members -> reader -> clean text
    core, plus                      the texts one after another
    tiny                            a slice of the sources in the public domain, mixed so that any beginning of it is a fair one

The tiny tier ships with the package; it is built anew only where its inputs are given, and must then be the same.
"""

from __future__ import annotations

import lzma
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crucible.ari.corpus import fetch, packages, readers
from crucible.ari.corpus.sources import TIERS, Source, Tier
from crucible.documents import read_bytes, require_target, write_bytes
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest

SHIPPED = Path(__file__).parent / "tiny.txt.xz"
NOTICE = Path(__file__).parent / "NOTICE"
Progress = Callable[[int, int], None]

_PIECE = 24_000
_SHARES = {"sotu": 900_000, "moby-dick": 600_000, "factbook": 700_000, "jargon": 500_000, "devil": 300_000}
"""What the tiny tier takes of each source, about."""


class Input(msgspec.Struct, frozen=True):
    """One source as a build used it; `text_bytes` is what it gave, before slicing."""

    name: str
    package: str
    version: str
    file: str
    sha256: str
    licence: str
    text_bytes: int | None


class Built(msgspec.Struct, frozen=True):
    """What a build wrote."""

    tier: str
    path: str
    bytes: int
    sha256: str
    licences: str
    inputs: list[Input]


@dataclass(frozen=True)
class _Made:
    text: bytes
    licences: bytes
    sizes: dict[str, int]


def tier_named(name: str) -> Tier:
    if name not in TIERS:
        raise BadConfig(f"no tier {name!r}", fix=f"Give one of: {', '.join(TIERS)}.")
    return TIERS[name]


def build(tier: Tier, out: Path, inputs: Path | None = None, progress: Progress = lambda done, total: None) -> Built:
    """Writes the text to `out` and the licences beside it; both appear only if everything was right."""
    beside = out.with_name(out.name + ".licences")
    for path in (out, beside):
        require_target(path)
    if tier.name == "tiny" and inputs is None:
        made = _Made(shipped(), read_bytes(NOTICE, "the notice of the shipped text"), {})
    elif inputs is None:
        with tempfile.TemporaryDirectory(prefix="ari-corpus-") as folder:
            made = _assembled(tier, Path(folder), progress)
    else:
        _require_folder(inputs)
        made = _assembled(tier, inputs, progress)
    sha256 = digest.of_bytes(made.text)
    _require_tier(tier, sha256)
    write_bytes(beside, made.licences)
    write_bytes(out, made.text)
    used = [
        Input(one.name, one.package, one.version, one.file, one.sha256, one.licence, made.sizes.get(one.name))
        for one in tier.sources
    ]
    return Built(tier.name, str(out), len(made.text), sha256, str(beside), used)


def shipped() -> bytes:
    """The tiny tier as it comes with the package."""
    return lzma.decompress(read_bytes(SHIPPED, "the shipped text"))


def beginning(text: bytes, most: int) -> bytes:
    """At most `most` bytes of a text, up to the end of a paragraph."""
    return text if len(text) <= most else text[: text.rindex(b"\n\n", 0, most) + 1]


# --- from the packages -------------------------------------------------------------------------------------------------


def _assembled(tier: Tier, folder: Path, progress: Progress) -> _Made:
    texts: dict[str, str] = {}
    notices: dict[str, str] = {}
    total = 2 * len(tier.sources)
    paths = []
    for done, source in enumerate(
        tier.sources, 1
    ):  # all of them before the first is read: a changed one is said at once
        paths.append(fetch.provide(source, folder))
        progress(done, total)
    for done, (source, path) in enumerate(zip(tier.sources, paths, strict=True), 1 + len(tier.sources)):
        texts[source.name], notices[source.name] = _read(source, path)
        progress(done, total)
    text = _mixed(texts) if tier.name == "tiny" else "\n".join(texts.values())
    return _Made(text.encode(), _licences(tier, notices), {name: len(text.encode()) for name, text in texts.items()})


def _licences(tier: Tier, notices: Mapping[str, str]) -> bytes:
    """Every source with its licence, and the notice that came with it."""
    parts = [f"The text of the tier {tier.name} is made of these packages."]
    for one in tier.sources:
        parts.append(f"{'=' * 80}\n{one.package} {one.version}\n{one.file} {one.sha256}\nLicence: {one.licence}")
        parts.append(f"From its file {one.notice}:\n\n{notices[one.name]}")
    return "\n\n".join(parts).encode()


def _read(source: Source, path: Path) -> tuple[str, str]:
    """The clean text of a package and its notice."""
    pattern, reader = readers.READERS[source.name]
    files = packages.members(path, lambda name: name == source.notice or re.fullmatch(pattern, name) is not None)
    try:
        notice = readers.clean(files.pop(source.notice).decode(errors="replace"))
        section = re.search(r"^## License\n(.*?)^<!--", notice, re.MULTILINE | re.DOTALL)  # of a README
        return readers.clean(reader(files)), readers.clean(section[1]) if section else notice
    except (LookupError, ValueError, TypeError, AttributeError, struct.error, zlib.error, OSError) as error:
        raise BadData(
            f"{source.file}: does not hold what {source.package} {source.version} holds: {type(error).__name__}: {error}",
            fix="Its SHA-256 is the pinned one, so this is a fault of the reader: please report it.",
        ) from error


def _mixed(texts: Mapping[str, str]) -> str:
    """Pieces taken evenly from all of each source, laid so that every source is spread over the whole."""
    laid = []
    for order, (name, text) in enumerate(texts.items()):
        pieces = _pieces(text)
        count = max(1, min(len(pieces), _SHARES[name] // _PIECE))
        for i in range(count):
            laid.append(((i + 0.5) / count, order, pieces[i * len(pieces) // count]))
    return "\n".join(piece for _, _, piece in sorted(laid))


def _pieces(text: str) -> list[str]:
    """Whole sentences or lines, about as long as one piece each."""
    pieces, at = [], 0
    while at < len(text):
        end = re.compile(r"\n|(?<=[.!?]) ").search(text, min(at + _PIECE, len(text)))
        stop = end.end() if end else len(text)
        pieces.append(text[at:stop].strip() + "\n")
        at = stop
    return pieces


def _require_tier(tier: Tier, sha256: str) -> None:
    if tier.sha256 is not None and sha256 != tier.sha256:
        raise IntegrityBroken(
            f"the tier {tier.name} has the SHA-256 {sha256} as built here, {tier.sha256} is published",
            fix="Please report it with your Python's version: the same inputs must give the same text.",
            facts={"tier": tier.name, "sha256": sha256, "published": tier.sha256},
        )


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise BadConfig(f"{folder}: there is no such folder of inputs", fix=f"Make it first: mkdir -p {folder}")
