"""Parquet files and `datasets` folders with anchor, positive and negative columns -> bundles. Needs pyarrow, and says so.

    anchor | positive | negative                 a triplet a row
    anchor | positive | negative_1 | … | negative_n      an n-tuple a row; a null negative is left out
    anchor | positive | negatives                 a list a row

A `datasets` folder is what `Dataset.save_to_disk` writes; a folder of Parquet files is read in the order of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible.contrast.bundle import Bundle
from crucible.errors import BadConfig, BadData

_ROWS_AT_ONCE = 4096
_NUMBERED = re.compile(r"negative_(\d+)")


@dataclass(frozen=True)
class ColumnSource:
    """One or more column files that together are one table."""

    path: Path
    files: tuple[Path, ...]
    format: str
    compression: str
    negatives: tuple[str, ...]

    def rows(self) -> Iterator[dict[str, Any]]:
        for file in self.files:
            for batch in _batches(file):
                yield from batch.to_pylist()

    def to_bundle(self, row: dict[str, Any], position: int) -> Bundle:
        """ValueError names the column that holds something else than text."""
        found: list[Any] = []
        for name in self.negatives:
            value = row.get(name)
            found += value if isinstance(value, list) else [] if value is None else [value]
        for name, value in (("anchor", row.get("anchor")), ("positive", row.get("positive"))):
            if not isinstance(value, str):
                raise ValueError(f"{name}: {type(value).__name__} where text is expected")
        for value in found:
            if not isinstance(value, str):
                raise ValueError(f"negatives: {type(value).__name__} where text is expected")
        given = row.get("id", row.get("bundle_id"))
        return Bundle(
            id=f"b{position}" if given is None else str(given),
            anchor=row["anchor"],
            positive=row["positive"],
            negatives=tuple(found),
            sense=row.get("sense") if isinstance(row.get("sense"), str) else None,
        )


def open_source(path: Path) -> ColumnSource:
    files = (path,) if path.is_file() else _files_in(path)
    names = _column_names(files[0])
    for file in files[1:]:
        if _column_names(file) != names:
            raise BadData.at(file, f"has other columns than {files[0].name}", fix="Write all files with one schema.")
    missing = [name for name in ("anchor", "positive") if name not in names]
    if missing:
        raise BadData.at(path, f"has no column {missing[0]!r}, only {names[:8]}", fix=FIX, field=missing[0])
    numbered = sorted((int(m[1]), name) for name in names if (m := _NUMBERED.fullmatch(name)))
    negatives = tuple(name for name in ("negative", "negatives") if name in names) + tuple(name for _, name in numbered)
    if not negatives:
        raise BadData.at(path, f"has no negative column, only {names[:8]}", fix=FIX, field="negative")
    kind = "parquet" if files[0].suffix == ".parquet" or path.is_file() else "datasets"
    return ColumnSource(path, files, f"columns ({kind})", "by column" if kind == "parquet" else "none", negatives)


FIX = "Columns must be anchor, positive, and negative or negative_1 … negative_n."


def _files_in(folder: Path) -> tuple[Path, ...]:
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(inner.name for inner in folder.iterdir() if inner.is_dir())
        raise BadData.at(folder, f"holds several splits: {splits}", fix=f"Name one of them, e.g. {folder / splits[0]}.")
    for pattern in ("*.arrow", "*.parquet"):
        files = tuple(sorted(folder.glob(pattern)))
        if files:
            return files
    raise BadData.at(
        folder, "is a folder without Arrow or Parquet files", fix="Give a bundle file or a datasets folder."
    )


def _batches(file: Path) -> Iterator[Any]:
    arrow, parquet = _pyarrow()
    try:
        if _is_parquet(file):
            yield from parquet.ParquetFile(file).iter_batches(batch_size=_ROWS_AT_ONCE)
        else:
            with arrow.memory_map(str(file)) as source, arrow.ipc.open_stream(source) as stream:
                yield from stream
    except (arrow.ArrowException, OSError) as error:
        raise BadData.at(file, f"cannot be read: {error}", fix="Write the file again.") from None


def _column_names(file: Path) -> list[str]:
    arrow, parquet = _pyarrow()
    try:
        if _is_parquet(file):
            return list(parquet.ParquetFile(file).schema_arrow.names)
        with arrow.memory_map(str(file)) as source, arrow.ipc.open_stream(source) as stream:
            return list(stream.schema.names)
    except (arrow.ArrowException, OSError) as error:
        raise BadData.at(file, f"cannot be read: {error}", fix="Write the file again.") from None


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PAR1"


def _pyarrow() -> tuple[Any, Any]:
    # Imported here, not at the top: it is an extra, and most bundle files are JSON lines.
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadConfig("Parquet and datasets folders need pyarrow", fix="pip install 'crucible-ml[columns]'") from None
    return pyarrow, pyarrow.parquet
