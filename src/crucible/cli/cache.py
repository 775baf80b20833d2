"""`crucible cache stats | prune`: the embedding cache -> what is in it, and less of it."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli import output
from crucible.contrast import cache, idform
from crucible.contrast.cache import EncoderStats
from crucible.documents import as_builtins
from crucible.errors import BadConfig

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Look at the embedding cache and make it smaller.")


@app.command()
def stats(json: output.AsJson = False) -> None:
    """List the encoders whose vectors are stored, the most recently used first.

    Example: crucible cache stats
    """
    found = cache.stats()
    total = sum(entry.bytes for entry in found)
    forms = idform.stored(cache.location())
    if json:
        where = str(cache.embeddings())
        output.json_document({"location": where, "bytes": total, "encoders": found, "id_forms": forms})
        return
    if found:
        _table(found)
    output.out(f"{_size(total)} in {cache.embeddings()}")
    output.out(f"{forms.count} bundle files in id form, {_size(forms.bytes)}")


@app.command()
def prune(
    older_than: Annotated[float | None, typer.Option(min=0, help="Remove what was not used for so many days.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Only this encoder: its id or the beginning of its digest.")
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(min=0, help="Remove the longest unused until it fits.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove everything that is stored.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be removed.")] = False,
    json: output.AsJson = False,
) -> None:
    """Remove stored vectors and id forms; they are made again when they are needed. Leftovers of killed processes go in any case.

    Example: crucible cache prune --older-than 30 --max-bytes 5000000000
    """
    if not everything and older_than is None and encoder is None and max_bytes is None:
        raise BadConfig("nothing says what to remove", fix="Give --older-than, --encoder, --max-bytes or --all.")
    done = cache.prune(
        older_than_days=older_than, encoder=encoder, max_bytes=max_bytes, everything=everything, dry_run=dry_run
    )
    forms = idform.prune(cache.location(), older_than_days=older_than, everything=everything, dry_run=dry_run)
    if json:
        output.json_document(as_builtins(done) | {"id_forms_removed": as_builtins(forms)})
        return
    if done.removed:
        _table(done.removed)
    kept = sum(entry.bytes for entry in done.kept)
    verb = "would remove" if dry_run else "removed"
    output.out(f"{verb} {len(done.removed)} encoders, {_size(done.freed_bytes)}; {_size(kept)} stay")
    if forms.count:
        output.out(f"{verb} {forms.count} bundle files in id form, {_size(forms.bytes)}")


def _table(entries: list[EncoderStats]) -> None:
    rows = [
        (entry.id, entry.digest[:12], entry.last_used[:16], entry.texts, entry.segments, _size(entry.bytes))
        for entry in entries
    ]
    output.table("", ("encoder", "digest", "last used (UTC)", "texts", "segments", "size"), rows, left=3)


def _size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
