"""A finished run -> one file that anybody can check, and that file -> a folder. Checking it is `capsule_verify.py`.

    capsule.json           schema, what the run was, pins, base encoder, ledger head, digest and size of every other file
    config.yaml  run.json  items.jsonl  log.jsonl  findings.jsonl  ledger.jsonl  checkpoint/  scoreboards/      as in the run
    eval/frozen/…  eval/organic/…        the data that both scoreboards were made on, unless it was left out
    selection.json  seeds/seed-N/…       of a production build: every seed's numbers, and the rule that chose this one

What is needed to go on training (`checkpoints/`) stays behind. A capsule is opened in full or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

import crucible
from crucible.contrast import evalset, scoreboard
from crucible.contrast.capsules import capsule_file
from crucible.contrast.capsules.capsule_file import Limits, broken
from crucible.contrast.scoreboard import Scoreboard
from crucible.contrast.train.rundir import RunDir, RunInfo
from crucible.documents import new_folder, require_target, to_json
from crucible.errors import BadData, IntegrityBroken, MachineryFailed, Mistake
from crucible.kernel import digest, ledger
from crucible.kernel.ledger import Head

ABOUT, SELECTION, SEEDS, EVAL = "capsule.json", "selection.json", "seeds", "eval"
TRUTHS = ("frozen", "organic")
_SCHEMA = 1
_LARGEST_ABOUT = 16 << 20
_RESTORE = "Restore the run from a copy, or train again."


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    size: int


class EvalData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one truth lies in the capsule, as `evalset.load` takes it."""

    path: str
    version: str | None


class Pinned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a truth is: the digest of its pin, and the fingerprint for people."""

    pin: str
    fingerprint: str


class Closing(msgspec.Struct, frozen=True):
    """What a run's ledger says when the run is over."""

    files: dict[str, str]
    checkpoint: str | None


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """capsule.json."""

    schema: int
    crucible: str
    run: dict[str, str | int]
    base: dict[str, str]
    pins: dict[str, Pinned]
    ledger: Head
    data: dict[str, EvalData]
    """Empty where the eval data was left out."""
    manifest: dict[str, File]


# --- packing -----------------------------------------------------------------------------------------------------------------


def pack(folder: Path, out: Path, *, with_data: bool = True, extra: Mapping[str, Path | bytes] | None = None) -> About:
    """Writes the capsule of a finished run; `extra` are further files by their names inside."""
    require_target(out)
    run = RunDir(folder)
    info = finished(run)
    closing(run)
    boards = {name: scoreboard.load(run.scoreboard(name)) for name in TRUTHS if run.scoreboard(name).exists()}
    if not boards:
        raise Mistake(
            f"{folder} was never evaluated: there is no scoreboard that a capsule could prove",
            fix="Train with data.frozen_eval and data.organic_eval set.",
        )
    files = {path.relative_to(folder).as_posix(): path for path in _plain([*run.files(), run.info, run.ledger])}
    data: dict[str, EvalData] = {}
    if with_data:
        config = run.read_config()
        given = {"frozen": config.data.frozen_eval, "organic": config.data.organic_eval}
        for name, board in boards.items():
            data[name], found = _eval_data(name, Path(given[name] or ""), board)
            files |= found
    content: dict[str, Path | bytes] = dict(sorted({**files, **(extra or {})}.items()))
    about = About(
        schema=_SCHEMA,
        crucible=crucible.__version__,
        run=_of_run(info),
        base=info.encoder,
        pins={name: Pinned(one.eval_header.pin.digest, one.eval_header.fingerprint) for name, one in boards.items()},
        ledger=ledger.verify(run.ledger),
        data=data,
        manifest={name: _described(source) for name, source in content.items()},
    )
    capsule_file.write(out, [(ABOUT, to_json(about)), *content.items()])
    return about


def finished(run: RunDir) -> RunInfo:
    """The state of a run that ended."""
    info = run.read_info()
    if info is None:
        raise BadData.at(run.path, "is not the folder of a training run", fix="Give a folder of `crucible train`.")
    if info.state != "done":
        raise Mistake(
            f"{run.path} is not finished: {info.state}, {info.steps_done} of {info.steps} steps",
            fix="Let it finish: run the same `crucible train` again.",
        )
    return info


def closing(run: RunDir) -> Closing:
    """The last word of a run's ledger, whose digests are those of the files beside it."""
    closed = last_word(run)
    there = {path.relative_to(run.path).as_posix() for path in [*run.files(), run.info]}
    if there != closed.files.keys():
        name = sorted(there ^ closed.files.keys())[0]
        raise IntegrityBroken(f"{run.path / name}: only one of the run and its ledger has it", fix=_RESTORE)
    for name, expected in closed.files.items():
        actual = digest.of_file(run.path / name)
        if actual != expected:
            raise IntegrityBroken(
                f"{run.path / name}: has the digest {actual[:16]}…, the ledger says {expected[:16]}…", fix=_RESTORE
            )
    return closed


def last_word(run: RunDir) -> Closing:
    body: object = None
    for line in ledger.read(run.ledger, "run.finished"):
        body = line.entry.body
    try:
        return msgspec.convert(body, type=Closing)
    except msgspec.ValidationError:
        raise IntegrityBroken(f"{run.ledger}: does not say that the run finished", fix=_RESTORE) from None


def _of_run(info: RunInfo) -> dict[str, str | int]:
    return {
        "subject": info.subject,
        "train": info.train,
        "seed": info.seed,
        "steps": info.steps,
        "config_sha256": info.config_sha256,
        "checkpoint": info.checkpoint or "",
    }


def _plain(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise BadData.at(path, "is not a plain file of the run", fix="A run folder holds plain files only.")
        yield path


def _described(source: Path | bytes) -> File:
    if isinstance(source, bytes):
        return File(digest.of_bytes(source), len(source))
    return File(digest.of_file(source), source.stat().st_size)


def _eval_data(name: str, path: Path, board: Scoreboard) -> tuple[EvalData, dict[str, Path]]:
    """The files of the eval set that a scoreboard was made on; refused where it is not that one any more."""
    header = board.eval_header
    version = header.version or None
    held = evalset.load(path, version, header.seed if version is None else None)
    differences = held.pin.differences(header.pin)
    if differences:
        raise IntegrityBroken(
            f"{path} is not what the run was evaluated on: " + "; ".join(map(str, differences)),
            fix="Restore the eval set, or pack with --without-data.",
        )
    inside = f"{EVAL}/{name}"
    if version is not None:  # a frozen set: its changelog and the one version
        files = {f"{inside}/{evalset.CHANGELOG}": path / evalset.CHANGELOG}
        home = path / version
        files |= {f"{inside}/{version}/{one.relative_to(home).as_posix()}": one for one in _plain(_files(home))}
        return EvalData(inside, version), files
    if path.is_dir():
        files = {f"{inside}/{path.name}/{one.relative_to(path).as_posix()}": one for one in _plain(_files(path))}
        return EvalData(f"{inside}/{path.name}", None), files
    return EvalData(f"{inside}/{path.name}", None), {f"{inside}/{path.name}": path.resolve()}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


# --- opening -----------------------------------------------------------------------------------------------------------------


def unpack(path: Path, folder: Path) -> About:
    """All of a capsule into a new folder, every digest checked; on any fault the folder is not there."""
    capsule_file_is_whole(path)
    with new_folder(folder) as draft:
        return extract(path, draft)


def capsule_file_is_whole(path: Path) -> str:
    """The digest of the capsule; where a byte was changed, the error names the file inside that it belongs to."""
    try:
        return capsule_file.require_whole(path)
    except IntegrityBroken as error:
        member = _culprit(path)
        if member is None:
            raise
        raise broken(path, f"was changed, or is not there in full ({error.message})", member) from None


def extract(path: Path, folder: Path, limits: Limits = capsule_file.LIMITS) -> About:
    """Writes every file beneath the empty `folder` while it is checked against the manifest."""
    about: About | None = None
    left: dict[str, File] = {}
    for member in capsule_file.members(path, limits):
        if about is None:
            about = _read_about(path, member)
            left = dict(about.manifest)
            _require_room(path, folder, sum(file.size for file in left.values()))
            _write(path, folder, member.name, [to_json(about)])
            continue
        expected = left.pop(member.name, None)
        if expected is None:
            raise broken(path, "is not in the manifest", member.name)
        running = hashlib.sha256()
        size = _write(path, folder, member.name, _hashed(member.chunks, running))
        if (running.hexdigest(), size) != (expected.sha256, expected.size):
            raise broken(
                path,
                f"has the digest {running.hexdigest()[:16]}…, the manifest says {expected.sha256[:16]}…",
                member.name,
            )
    if about is None or left:
        raise broken(path, "is in the manifest and not in the capsule", next(iter(left), ABOUT))
    return about


def _read_about(path: Path, member: capsule_file.Member) -> About:
    if member.name != ABOUT or member.size > _LARGEST_ABOUT:
        raise broken(path, f"stands first, where {ABOUT} belongs", member.name)
    raw = b"".join(member.chunks)
    try:
        about = msgspec.json.decode(raw, type=About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise broken(path, f"is not what a capsule says about itself: {error}", ABOUT) from None
    if about.schema != _SCHEMA:
        raise BadData.at(path, f"has schema {about.schema}, this crucible reads {_SCHEMA}", fix="Update crucible.")
    if to_json(about) != raw:
        raise broken(path, "is not written as crucible writes it", ABOUT)
    return about


def _require_room(path: Path, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise MachineryFailed(
            f"{path} needs {size:,} bytes, there are {free:,} on the disk of {folder}",
            fix="Free some space, or set TMPDIR.",
        )


def _hashed(chunks: Iterable[bytes], running: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        running.update(chunk)
        yield chunk


def _write(path: Path, folder: Path, name: str, chunks: Iterable[bytes]) -> int:
    """Names were checked to be plain and relative, the folder is ours and new, and an existing name is never opened."""
    target = folder / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as stream:
            return sum(stream.write(chunk) for chunk in chunks)
    except (FileExistsError, NotADirectoryError):
        raise broken(path, "is a file and a folder at once", name) from None


def _culprit(path: Path) -> str | None:
    """The file inside a damaged capsule that is the first not to be what the manifest says; None where nobody can tell."""
    found = capsule_file.survey(path, ABOUT)
    try:
        manifest = msgspec.json.decode(found.kept, type=About).manifest
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ABOUT if ABOUT in found.digests or found.stopped_in == ABOUT else None
    wrong = [name for name, file in manifest.items() if found.digests.get(name) != file.sha256]
    extra = [name for name in found.digests if name not in manifest and name != ABOUT]
    return next(iter([*wrong, *extra]), None)
