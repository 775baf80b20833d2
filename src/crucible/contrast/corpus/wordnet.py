"""A folder of WordNet database files (data.noun, .verb, .adj, .adv) -> synsets. Reads 3.0 and 3.1; needs no index files.

The format is that of the manual page wndb(5WN):

    offset  file-number  type  word-count  word lex-id …  pointer-count  symbol offset type source/target …  [frames] | gloss

Whatever does not parse, breaks off or points to a synset that is not there is refused with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crucible.contrast.corpus import gloss
from crucible.contrast.progress import Progress
from crucible.documents import read_bytes
from crucible.errors import BadConfig, BadData
from crucible.kernel import digest

FILES = {"noun": "data.noun", "verb": "data.verb", "adj": "data.adj", "adv": "data.adv"}
USUAL_FOLDERS = (Path("/usr/share/wordnet"), Path("/usr/local/share/wordnet"))

_TYPES = {"noun": "n", "verb": "v", "adj": "as", "adv": "r"}
_HYPERNYM = ("@", "@i")
_SIMILAR = "&"
_MARKER = re.compile(r"\((a|p|ip)\)$")
_VERSION = re.compile(r"WordNet (\d+(?:\.\d+)+) Copyright")
_REINSTALL = "Install wordnet-base again, or give another folder with --wordnet DIR."


class Word(NamedTuple):
    lemma: str
    """In lower case, with underscores, as WordNet's index has it."""
    key: str
    """Type, lexicographer file and id, and the head of a satellite: n17.1, a00, s00:uncommon. What WordNet's sense keys
    say (1:17:01, 3:00:00, 5:00:00:uncommon:00), shorter: names the sense in every version of WordNet."""


class Synset(NamedTuple):
    id: str
    """Type and offset, e.g. n08420278: names the synset in one version of WordNet."""
    pos: str
    words: tuple[Word, ...]
    hypernyms: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Database:
    folder: Path
    version: str
    licence: str
    """The text that stands at the head of the files; empty if there is none."""
    digests: dict[str, str]
    """SHA-256 of each file that was read."""
    synsets: tuple[Synset, ...]


class _Raw(NamedTuple):
    """One line: as a synset, but satellites do not know the word of their head yet, which their key needs."""

    line: int
    type: str
    id: str
    file_number: int
    words: tuple[tuple[str, int], ...]
    pointers: tuple[tuple[str, str], ...]
    gloss: str


def locate(folder: Path | None) -> Path:
    """The folder that holds the four files: the given one (or its `dict`), else where Debian puts it."""
    asked = USUAL_FOLDERS if folder is None else (folder, folder / "dict")
    for candidate in asked:
        if all((candidate / name).is_file() for name in FILES.values()):
            return candidate
    where = " or ".join(map(str, USUAL_FOLDERS)) if folder is None else str(folder)
    raise BadConfig(
        f"no WordNet database ({', '.join(FILES.values())}) in {where}",
        fix="Install wordnet-base or give --wordnet DIR.",
    )


def read(folder: Path, progress: Progress | None = None) -> Database:
    """All four files, checked against each other."""
    raw: dict[str, list[_Raw]] = {}
    digests, licence = {}, ""
    for done, (pos, name) in enumerate(FILES.items()):
        if progress:
            progress(done, len(FILES))
        data = read_bytes(folder / name, "a WordNet data file")
        digests[name] = digest.of_bytes(data)
        raw[pos] = list(_lines(folder / name, data, pos))
        licence = licence or _licence(data)
    _refuse_dangling(folder, raw)
    heads = {one.id: one.words[0] for one in raw["adj"]}
    synsets = tuple(_synset(folder, pos, one, heads) for pos in FILES for one in raw[pos])
    version = _VERSION.search(licence)
    return Database(folder, version[1] if version else "unknown", licence, digests, synsets)


def _lines(path: Path, data: bytes, pos: str) -> Iterator[_Raw]:
    if not data.endswith(b"\n"):
        number = data.count(b"\n") + 1
        problem = "the last line has no end: the file breaks off" if data else "the file is empty"
        raise BadData.at(path, problem, fix=_REINSTALL, line=number)
    seen: dict[str, int] = {}
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):
        if raw.startswith(b"  "):  # the licence
            continue
        try:
            found = _parsed(number, raw.decode("utf-8"), _TYPES[pos])
        except (ValueError, IndexError) as error:  # a text that is not UTF-8 is a ValueError
            problem = f"is not a synset of WordNet: {error}"
            raise BadData.at(path, problem, fix=_REINSTALL, line=number) from None
        if found.id in seen:
            problem = f"{found.id} is already in line {seen[found.id]}"
            raise BadData.at(path, problem, fix=_REINSTALL, line=number)
        seen[found.id] = number
        yield found
    if not seen:
        raise BadData.at(path, "holds no synset", fix=_REINSTALL, line=1)


def _parsed(number: int, line: str, types: str) -> _Raw:
    """ValueError or IndexError where the line is not what the format says."""
    head, bar, text = line.partition("|")
    if not bar:
        raise ValueError("there is no gloss")
    fields = head.split()
    offset, file_number, kind = fields[0], int(fields[1]), fields[2]
    if not re.fullmatch(r"[0-9]{8}", offset) or kind not in types:
        raise ValueError(f"it begins with {line[:20]!r}")
    words_end = 4 + 2 * int(fields[3], 16)
    pointers_end = words_end + 1 + 4 * int(fields[words_end])
    words = [(fields[place], int(fields[place + 1], 16)) for place in range(4, words_end, 2)]
    pointers = [_pointer(fields[place : place + 4]) for place in range(words_end + 1, pointers_end, 4)]
    if not words:
        raise ValueError("it has no word")
    frames = fields[pointers_end:]
    if len(frames) != (1 + 3 * int(frames[0]) if frames else 0):
        raise ValueError("the counts of words, pointers and frames do not fit the line")
    return _Raw(number, kind, _id(kind, offset), file_number, tuple(words), tuple(pointers), text)


def _pointer(fields: Sequence[str]) -> tuple[str, str]:
    symbol, offset, kind, _ = fields
    if kind not in ("n", "v", "a", "s", "r"):
        raise ValueError(f"a pointer to the part of speech {kind!r}")
    return symbol, _id(kind, offset)


def _id(kind: str, offset: str) -> str:
    return ("a" if kind == "s" else kind) + offset


def _refuse_dangling(folder: Path, raw: dict[str, list[_Raw]]) -> None:
    """A file cut at the end of a line parses; what points into the missing part gives it away."""
    known = {one.id for each in raw.values() for one in each}
    for pos, each in raw.items():
        for one in each:
            for symbol, target in one.pointers:
                if target not in known:
                    problem = f"the pointer {symbol} leads to {target}, which is in none of the files"
                    raise BadData.at(folder / FILES[pos], problem, fix=_REINSTALL, line=one.line)


def _synset(folder: Path, pos: str, raw: _Raw, heads: dict[str, tuple[str, int]]) -> Synset:
    head = ""
    if raw.type == "s":
        similar = [target for symbol, target in raw.pointers if symbol == _SIMILAR and target in heads]
        if not similar:
            problem = "a satellite adjective that points to no head"
            raise BadData.at(folder / FILES[pos], problem, fix=_REINSTALL, line=raw.line)
        word, lex_id = heads[similar[0]]
        head = f":{_lemma(word)}{_lex_id(lex_id)}"
    words: dict[str, Word] = {}
    for word, lex_id in raw.words:
        key = f"{raw.type}{raw.file_number:02}{_lex_id(lex_id)}{head}"
        words.setdefault(_lemma(word), Word(_lemma(word), key))
    split = gloss.split(raw.gloss)
    hypernyms = tuple(target for symbol, target in raw.pointers if symbol in _HYPERNYM)
    return Synset(raw.id, pos, tuple(words.values()), hypernyms, split.definition, split.examples)


def _lex_id(number: int) -> str:
    return f".{number}" if number else ""


def _lemma(word: str) -> str:
    return _MARKER.sub("", word).lower()


def _licence(data: bytes) -> str:
    """The numbered lines at the head of a file, without their numbers."""
    lines = []
    for raw in data.split(b"\n"):
        if not raw.startswith(b"  "):
            break
        lines.append(re.sub(r"^\s+\d+ ?", "", raw.decode("utf-8", errors="replace")).rstrip())
    return "\n".join(lines).strip()
