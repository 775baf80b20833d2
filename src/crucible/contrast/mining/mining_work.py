"""Parts of a long mining run -> a folder beside the output that a killed run leaves and the next one takes up. Mines nothing.

    .O.jsonl.mining/
      lock          held while a run is at work: two runs never share the folder
      key           digest of everything the results depend on; under another key all parts are thrown away
      00000.part    SHA-256 and results of one part of the candidates; a damaged one is done again

The folder is removed when the output is complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from crucible.contrast.mining.mined import Result
from crucible.documents import write_bytes
from crucible.errors import BadConfig, MachineryFailed, Mistake
from crucible.kernel import digest

_SUFFIX = ".part"


class Work:
    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.reused = 0
        """Parts that an earlier run had done."""
        self.lock = -1

    def __enter__(self) -> Work:
        if self.folder.exists() and not self.folder.is_dir():
            raise BadConfig(
                f"{self.folder} is in the way of the work folder", fix="Remove it, or choose another output."
            )
        try:
            self.folder.mkdir(exist_ok=True)
            self.lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.lock)
            raise Mistake(
                f"another run is mining into the same output: it holds {self.folder}",
                fix="Wait for it, or give another --output.",
            ) from None
        except OSError as error:
            raise MachineryFailed(
                f"{self.folder}: cannot be written: {error.strerror or error}", fix="Check the folder of the output."
            ) from error
        if self._stored(self.folder / "key") != self.key.encode():
            for part in self.folder.glob(f"*{_SUFFIX}"):
                part.unlink()
            write_bytes(self.folder / "key", self.key.encode())
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.lock)

    def done(self, number: int, compute: Callable[[], list[Result]]) -> list[Result]:
        """The results of a part: those an earlier run stored, or computed now and stored."""
        path = self.folder / f"{number:05}{_SUFFIX}"
        found = self._stored(path)
        if found is not None and digest.of_bytes(found[64:]).encode() == found[:64]:
            self.reused += 1
            return msgspec.msgpack.decode(found[64:], type=list[Result])
        results = compute()
        data = msgspec.msgpack.encode(results)
        write_bytes(path, digest.of_bytes(data).encode() + data)
        return results

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stored(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except OSError:
            return None
