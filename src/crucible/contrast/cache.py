"""Vectors <-> disk, by encoder digest and text digest, and what is there and what may go. Encodes nothing.

    LOCATION/embeddings/<encoder digest>/
      encoder.json      what a person calls the encoder; its time of change is when the vectors were last used
      <name>.seg        a segment: written whole, then never touched
      <name>.damaged    a segment that failed its checks; nobody reads it again
      lock              held while small segments are merged

Writers never meet: each writes files of its own, and the same text in two of them is harmless. A process that is killed
leaves a draft that nobody reads. Everything here is derived and can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import segments
from crucible.contrast.segments import Keys, Segment, Vectors
from crucible.documents import write_bytes
from crucible.errors import BadConfig, MachineryFailed

DAMAGED, ABOUT, LOCK = ".damaged", "encoder.json", "lock"
_SMALL, _MANY = 1 << 16, 16
"""More than _MANY segments of fewer than _SMALL rows are merged into one."""
_DAY = 86400.0


class About(msgspec.Struct, frozen=True):
    """What encoder.json says."""

    id: str


def location() -> Path:
    """Where everything derived is kept."""
    env = os.environ
    if env.get("CRUCIBLE_CACHE_DIR"):
        return Path(env["CRUCIBLE_CACHE_DIR"])
    return Path(env.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "crucible"


def embeddings() -> Path:
    return location() / "embeddings"


class Store:
    """The stored vectors of one encoder. `warnings` says, once each, what went wrong without stopping anybody."""

    def __init__(self, encoder_id: str, encoder_digest: str) -> None:
        self.folder = embeddings() / encoder_digest
        self.warnings: list[str] = []
        self._about = About(encoder_id)
        self._storing = True
        self._segments = self._open_all()

    @property
    def dim(self) -> int | None:
        """Of the stored vectors; None where there are none."""
        return self._segments[0].dim if self._segments else None

    def load(self, keys: Keys, out: Vectors) -> npt.NDArray[np.bool_]:
        """Writes the vectors that are there into their rows of `out`; says which those are."""
        found = np.zeros(len(keys), dtype=bool)
        for segment in self._segments:
            missing = np.flatnonzero(~found)
            places = segment.index.find(keys[missing])
            missing, places = missing[places >= 0], places[places >= 0]
            damaged = 0
            for start in range(0, len(places), segments.ROWS_AT_ONCE):
                part = slice(start, start + segments.ROWS_AT_ONCE)
                vectors, intact = segment.read(places[part])
                out[missing[part][intact]] = vectors[intact]
                found[missing[part][intact]] = True
                damaged += len(intact) - int(intact.sum())
            if damaged:
                self._set_aside(segment.path, f"{damaged} vectors do not match their checksums")
                with self._disk_faults_end_storing():
                    segments.merge(self.folder, [segment])
        if found.any():
            with contextlib.suppress(OSError):
                os.utime(self.folder / ABOUT)
        return found

    def put(self, keys: Keys, vectors: Vectors) -> None:
        """Stores vectors in a file of their own. A full disk costs the storing, never the vectors."""
        if not self._storing or not len(keys):
            return
        with self._disk_faults_end_storing():
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / ABOUT).exists():
                write_bytes(self.folder / ABOUT, msgspec.json.encode(self._about))
            segments.write(self.folder, keys, vectors)
            self._merge_small(vectors.shape[1])

    @contextlib.contextmanager
    def _disk_faults_end_storing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, MachineryFailed) as error:
            self._storing = False
            said = error.message if isinstance(error, MachineryFailed) else f"{self.folder}: {error.strerror}"
            self.warnings.append(f"vectors are not kept for the next time: {said}")

    def _open_all(self) -> list[Segment]:
        found: dict[Path, Segment | None] = {}
        gone = True
        while gone:
            gone = False
            for path in sorted(self.folder.glob(f"*{segments.SUFFIX}")):
                try:
                    found.setdefault(path, None if path in found else self._opened(path))
                except FileNotFoundError:  # merged into another one since the list was made: look again
                    gone = True
        opened = [segment for segment in found.values() if segment]
        for segment in [one for one in opened if one.dim != opened[0].dim]:
            self._set_aside(segment.path, f"its vectors have {segment.dim} numbers, others have {opened[0].dim}")
            opened.remove(segment)
        return opened

    def _opened(self, path: Path) -> Segment | None:
        try:
            return Segment(path)
        except FileNotFoundError:
            raise
        except (ValueError, OSError) as error:
            self._set_aside(path, str(error))
            return None

    def _set_aside(self, path: Path, why: str) -> None:
        self.warnings.append(f"{path} is damaged ({why}): set aside, what is lost is encoded again")
        with contextlib.suppress(OSError):  # a cache that cannot be written can still be read
            path.rename(path.with_suffix(DAMAGED))

    def _merge_small(self, dim: int) -> None:
        """Many small segments become one, by whoever comes first; the others go on."""
        with (self.folder / LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            limit = segments.file_size(_SMALL, dim)
            small = [path for path in self.folder.glob(f"*{segments.SUFFIX}") if path.stat().st_size < limit]
            if len(small) <= _MANY:
                return
            opened = [segment for path in sorted(small) if (segment := self._opened(path)) and segment.dim == dim]
            segments.merge(self.folder, opened)
            for segment in opened:
                segment.path.unlink(missing_ok=True)


# --- what is there, and what may go ------------------------------------------------------------------------------------


class EncoderStats(msgspec.Struct, frozen=True):
    """What is stored for one encoder; a text stored by two processes at once counts twice until segments are merged."""

    id: str
    digest: str
    texts: int
    bytes: int
    segments: int
    damaged: int
    last_used: str


class Pruned(msgspec.Struct, frozen=True):
    removed: list[EncoderStats]
    kept: list[EncoderStats]
    freed_bytes: int
    dry_run: bool


def stats() -> list[EncoderStats]:
    """Every encoder with stored vectors, the most recently used first."""
    return [found for _, _, found in sorted(_encoders(), key=lambda entry: -entry[1])]


def prune(
    *,
    older_than_days: float | None = None,
    encoder: str | None = None,
    max_bytes: int | None = None,
    everything: bool = False,
    dry_run: bool = False,
) -> Pruned:
    """Removes whole encoders: those not used for that long, then the longest unused until the rest fits into `max_bytes`.

    `encoder` (an id, or the beginning of a digest) limits it to one, and alone removes it. Drafts of killed processes and
    damaged segments go in any case.
    """
    candidates = sorted(_encoders(), key=lambda entry: entry[1])
    kept = [found for _, _, found in candidates]
    if encoder is not None:
        candidates = [entry for entry in candidates if _is_called(entry[2], encoder)]
        if not candidates:
            known = ", ".join(sorted({found.id for found in kept})) or "none"
            raise BadConfig(
                f"the cache has no vectors of {encoder!r}", fix=f"It has: {known}. See crucible cache stats."
            )
    everything = everything or (encoder is not None and older_than_days is None and max_bytes is None)
    total, removed, freed = sum(found.bytes for _, _, found in candidates), [], 0
    for folder, used, found in candidates:
        too_old = older_than_days is not None and time.time() - used > older_than_days * _DAY
        if everything or too_old or (max_bytes is not None and total > max_bytes):
            total -= found.bytes
            freed += found.bytes
            removed.append(found)
            kept.remove(found)
            if not dry_run:
                _remove(folder)
    return Pruned(removed, kept, freed + _remove_leftovers(dry_run), dry_run)


def _is_called(found: EncoderStats, name: str) -> bool:
    return name == found.id or (len(name) >= 6 and found.digest.startswith(name))


def _encoders() -> Iterator[tuple[Path, float, EncoderStats]]:
    for folder in sorted(embeddings().glob("*")):
        if re.fullmatch(r"[0-9a-f]{64}", folder.name) and folder.is_dir():
            with contextlib.suppress(FileNotFoundError):  # removed by somebody else at this moment
                used, found = _described(folder)
                yield folder, used, found


def _described(folder: Path) -> tuple[float, EncoderStats]:
    about = folder / ABOUT
    try:
        name = msgspec.json.decode(about.read_bytes(), type=About).id
    except (OSError, msgspec.DecodeError):
        name = "?"
    used = (about if about.exists() else folder).stat().st_mtime
    texts = 0
    files = sorted(folder.glob("*"))
    stored = [path for path in files if path.suffix == segments.SUFFIX]
    for path in stored:
        with contextlib.suppress(ValueError):
            texts += segments.count_rows(path)
    when = datetime.datetime.fromtimestamp(used, datetime.UTC).isoformat(timespec="seconds")
    damaged = sum(path.suffix == DAMAGED for path in files)
    size = sum(path.stat().st_size for path in files)
    return used, EncoderStats(name, folder.name, texts, size, len(stored), damaged, when)


def _remove(folder: Path) -> None:
    """Out of sight in one step, then away: nobody finds half of it."""
    hidden = folder.with_name(f".{folder.name[:40]}.{secrets.token_hex(6)}.part")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _remove_leftovers(dry_run: bool) -> int:
    """Drafts nobody has written to for a day, half-removed folders, damaged segments; returns their bytes."""
    freed = 0
    for path in _leftovers(embeddings()):
        with contextlib.suppress(FileNotFoundError):
            inside: Sequence[Path] = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
            freed += sum(one.stat().st_size for one in inside)
            if not dry_run and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not dry_run:
                path.unlink()
    return freed


def _leftovers(root: Path) -> Iterator[Path]:
    yield from root.glob(f"*/*{DAMAGED}")
    for path in [*root.glob(".*.part"), *root.glob("*/.*.part")]:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _DAY:
                yield path
