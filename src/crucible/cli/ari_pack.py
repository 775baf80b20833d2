"""`crucible ari pack`: a folder -> the canonical bundle that a submission of it would be, with its size and digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from crucible.ari import artefact
from crucible.ari import track as tracks
from crucible.ari.submit import artefact_limits
from crucible.cli import output
from crucible.documents import as_builtins, require_target, writing
from crucible.errors import Mistake


def pack(
    folder: Annotated[Path, typer.Argument(help="A folder with manifest.json and code.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle to write, a .tar.gz.")],
    track: Annotated[str, typer.Option(help="Whose limits hold: a shipped track's name, or a TOML file.")] = "mini",
    json: output.AsJson = False,
) -> None:
    """Pack a folder into its canonical bundle; the size and the SHA-256 are those the harness would count.

    Example: crucible ari pack model -o B.tar.gz
    """
    require_target(out)
    if out.resolve().is_relative_to(folder.resolve()):
        raise Mistake(f"{out} is inside {folder}, which is being packed", fix="Write the bundle somewhere else.")
    limits = artefact_limits(tracks.load(track))
    with writing(out) as stream:
        packed = artefact.pack(folder, cast(BinaryIO, stream), limits)
    document = {
        "path": str(out),
        "bytes": packed.bytes,
        "sha256": packed.sha256,
        "files": packed.files,
        "limit_bytes": limits.packed_bytes,
        "manifest": as_builtins(packed.manifest),
        "zlib": packed.zlib,
    }
    if json:
        output.json_document(document)
        return
    output.out(
        f"{out}: {packed.bytes:,} of {limits.packed_bytes:,} bytes, {packed.files} files, entry {packed.manifest.entry}"
    )
    output.out(f"sha256 {packed.sha256}")
