"""One file <-> one value: read whole and validated, written whole or not at all. Knows no record, pin or track.

Every writer goes through a temporary name in the same folder, fsync, rename, fsync of the folder, so that a crash, a full
disk or Ctrl-C leaves either the old file or the new one. Every reader turns "missing, a folder, unreadable, not JSON,
wrong shape" into an error that names the file and the field.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar, cast

import msgspec

from crucible.errors import BadConfig, BadData, MachineryFailed, Mistake

T = TypeVar("T")


def open_input(path: Path, what: str) -> BinaryIO:
    """The file as a binary stream; whatever stands in the way is a BadData that says what was expected there."""
    try:
        if path.is_dir():
            raise BadData.at(path, f"is a folder, not {what}", fix="Give the path of a file.")
        return path.open("rb")
    except FileNotFoundError:
        raise BadData.at(path, "no such file", fix=f"Check the path: {what} is expected there.") from None
    except OSError as error:
        raise BadData.at(
            path, f"cannot be read ({error.strerror})", fix="Check the path and its permissions."
        ) from error
    except ValueError as error:  # a NUL byte in the path
        raise BadData.at(repr(str(path)), f"is not a path ({error})", fix="Check the path.") from None


def read_bytes(path: Path, what: str) -> bytes:
    with open_input(path, what) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise BadData.at(path, f"cannot be read ({error.strerror})", fix="Check the disk.") from error


def read_json(path: Path, shape: type[T], what: str, fix: str) -> T:
    """A JSON file as `shape`."""
    data = read_bytes(path, what)
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.DecodeError as error:  # ValidationError is one of these
        raise BadData.at(path, f"is not {what}: {error}", fix=fix) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise BadData.at(path, f"is not {what}: {type(error).__name__}", fix=fix) from None


def read_toml(path: Path, shape: type[T], what: str, fix: str) -> T:
    """A TOML file as `shape`; a fault in it is a fault of the configuration."""
    try:
        return msgspec.convert(tomllib.loads(read_bytes(path, what).decode()), type=shape)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # TOML and UTF-8 faults are ValueErrors
        raise BadConfig(f"{path}: is not {what}: {error}", fix=fix) from None


def to_json(value: object) -> bytes:
    """Readable JSON with a final newline, keys in the order of the type: for files that people open."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    except UnicodeEncodeError:  # a file name that is not UTF-8 reaches us as half surrogates: shown as \\udcff
        return to_json(_spelled_out(msgspec.to_builtins(value)))


def _spelled_out(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled_out(key): _spelled_out(inner) for key, inner in value.items()}
    return [_spelled_out(inner) for inner in value] if isinstance(value, list | tuple) else value


def write_json(path: Path, value: object) -> None:
    write_bytes(path, to_json(value))


def write_bytes(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    with writing(path, mode=mode) as stream:
        stream.write(data)


@contextlib.contextmanager
def writing(path: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A binary stream whose bytes become `path` only if the block ends well."""
    with _disk_faults_named(path):
        target = _resolved(path)  # a link keeps pointing where it points; its target is what changes
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            # A device or pipe (/dev/null, /dev/stdout) must be written to, never replaced by a file.
            with target.open("wb") as stream:
                yield stream
            return
        if target.exists():
            mode &= stat.S_IMODE(target.stat().st_mode)  # a private file stays private when it is written again
        draft = _draft(target)
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A draft folder that becomes `path` only if the block ends well; `path` must not exist or be empty."""
    with _disk_faults_named(path):
        target = _resolved(path)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise Mistake(f"{path} is already there and not empty", fix="Choose a folder that does not exist yet.")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = _draft(target)
        try:
            draft.mkdir()
            yield draft
            for inner in [*(p for p in draft.rglob("*") if p.is_dir()), draft]:
                sync_folder(inner)
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (RuntimeError, ValueError) as error:  # links in a circle, a NUL byte
        raise Mistake(f"{str(path)!r} is not a path that can be written ({error})", fix="Check the path.") from None


def _draft(target: Path) -> Path:
    """A name beside `target`, short enough for every file system whatever the letters of the target's name."""
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.part")


def require_target(path: Path) -> None:
    """Refuses at once what could not be written after a long job: a folder in its place, or no folder to put it in."""
    if path.is_dir():
        raise Mistake(f"{path} is a folder, not a place for a file", fix="Give the path of a file.")
    if not path.absolute().parent.is_dir():
        raise Mistake(f"{path}: there is no folder {path.parent}", fix=f"Make it first: mkdir -p {path.parent}")


def sync_folder(folder: Path) -> None:
    """Makes a rename or a new name in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _disk_faults_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MachineryFailed(
            f"{path}: cannot be written: {error.strerror or error}; what was there before is unchanged",
            fix="Free some space or choose another place, then run the same command again.",
        ) from error


def as_builtins(value: object) -> Any:
    """A Struct as plain dicts, lists, strings and numbers."""
    return cast(Any, msgspec.to_builtins(value))
