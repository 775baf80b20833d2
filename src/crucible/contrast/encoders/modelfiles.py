"""The files of a model -> one digest, and proof that they are still the files that were hashed. Reads no format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crucible.errors import BadData
from crucible.kernel import digest


class Hashed:
    """Files by the name that counts, with their digest: names and contents enter it, places and times do not."""

    def __init__(self, kind: str, settings: Mapping[str, object], files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._seen = self._state()
        contents = {name: digest.of_file(path) for name, path in self._files.items()}
        self.digest = digest.of_json({"encoder": kind, "settings": dict(settings), "files": contents})

    def require_unchanged(self) -> None:
        """To be called when the weights are in memory: otherwise new vectors could be stored under the old digest."""
        if self._state() != self._seen:
            first = next(iter(self._files.values()))
            raise BadData.at(first.parent, "changed while it was being read", fix="Run the same command again.")

    def _state(self) -> list[tuple[int, int, int]]:
        found = []
        for path in self._files.values():
            try:
                stat = path.stat()
            except OSError as error:
                raise BadData.at(path, f"cannot be read ({error.strerror})", fix="Check the files.") from error
            found.append((stat.st_size, stat.st_mtime_ns, stat.st_ino))
        return found
