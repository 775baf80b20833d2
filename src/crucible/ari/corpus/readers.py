"""A pinned package's files -> clean text: what each source holds, in reading order. Fetches and checks nothing.

Clean: UTF-8, newlines only as line ends, no control or invisible characters, no white space at the end of a line, at most
one empty line between paragraphs.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crucible.ari.corpus import packages, rdata

Files = Mapping[str, bytes]

_BOOKS = (  # noqa: SIM905  a list of sixty-six lines otherwise
    "Genesis|Exodus|Leviticus|Numbers|Deuteronomy|Joshua|Judges|Ruth|1 Samuel|2 Samuel|1 Kings|2 Kings|1 Chronicles|"
    "2 Chronicles|Ezra|Nehemiah|Esther|Job|Psalms|Proverbs|Ecclesiastes|The Song of Solomon|Isaiah|Jeremiah|Lamentations|"
    "Ezekiel|Daniel|Hosea|Joel|Amos|Obadiah|Jonah|Micah|Nahum|Habakkuk|Zephaniah|Haggai|Zechariah|Malachi|Matthew|Mark|Luke|"
    "John|The Acts|Romans|1 Corinthians|2 Corinthians|Galatians|Ephesians|Philippians|Colossians|1 Thessalonians|"
    "2 Thessalonians|1 Timothy|2 Timothy|Titus|Philemon|Hebrews|James|1 Peter|2 Peter|1 John|2 John|3 John|Jude|Revelation"
).split("|")


def sotu(files: Files) -> str:
    """State of the Union addresses, oldest first."""
    return "\n\n".join(
        f"State of the Union Address, {address['name']}, {address['year']}\n\n{address['text'].strip()}"
        for address in map(json.loads, files.values())
    )


def moby_dick(files: Files) -> str:
    chapters = [json.loads(data) for data in files.values()]
    numbered = sorted((c for c in chapters if c["chapter"].isdigit()), key=lambda c: int(c["chapter"]))
    return "\n\n".join(f"Chapter {c['chapter']}. {c['title']}\n\n{c['text'].strip()}" for c in numbered)


def bible(files: Files) -> str:
    """Book and chapter as a heading, one numbered verse a line; translators' notes are left out, their marks removed."""
    chapters = {(int(path[-2]), int(path[-1][:-5])): data for name, data in files.items() if (path := name.split("/"))}
    parts = []
    for book, chapter in sorted(chapters):
        verses = [re.sub(r"<RF>.*?<Rf>|<[^<>]*>", "", verse) for verse in json.loads(chapters[book, chapter])]
        lines = [f"{number} {' '.join(verse.split())}" for number, verse in enumerate(verses, 1)]
        parts.append("\n".join([f"{_BOOKS[book - 1]} {chapter}", "", *lines]))
    return "\n\n".join(parts)


def factbook(files: Files) -> str:
    """One country after another: its name, headings, and lines of the form `field: value`."""
    parts = []
    for country in map(json.loads, files.values()):
        names = country.get("Government", {}).get("Country name", {})
        title = names.get("conventional short form", {}).get("text") or ""
        lines = [line for head, fields in country.items() for line in ("", head, *_fields(fields, ""))]
        parts.append("\n".join(["" if title == "none" else title, *lines]))
    return "\n\n".join(parts)


def _fields(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(inner, path if key == "text" else f"{path}{key}: ")
    elif value:
        yield path + str(value).replace(" ++ ", " ").strip()


def austen(files: Files) -> str:
    place = "usr/lib/R/site-library/janeaustenr/data/Rdata"
    novels = rdata.lazy_load(files[f"{place}.rdx"], files[f"{place}.rdb"])
    return "\n\n".join("\n".join(novels[name]) for name in sorted(novels))


def _dictionary(name: str) -> Callable[[Files], str]:
    return lambda files: packages.dictionary(files, name)


_DICT = r"usr/share/dictd/.*\.(dict\.dz|index)"

READERS: dict[str, tuple[str, Callable[[Files], str]]] = {
    "sotu": (r"package/data/\d+_.*\.json", sotu),
    "moby-dick": (r"package/data/chapter_\d+\.json", moby_dick),
    "bible": (r"package/dist/resources/\d+/\d+\.json", bible),
    "factbook": (r"package/(?!meta/)[a-z-]+/[a-z]+\.json", factbook),
    "austen": (r"usr/lib/R/site-library/janeaustenr/data/Rdata\.rd[bx]", austen),
    "jargon": (_DICT, _dictionary("jargon")),
    "devil": (_DICT, _dictionary("devil")),
    "wordnet": (_DICT, _dictionary("wn")),
    "gcide": (_DICT, _dictionary("gcide")),
}
"""Source -> which of its files are read, and how."""


def clean(text: str) -> str:
    """The same text with one kind of newline and nothing that a reader could not see."""
    text = re.sub(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", "\n", text)
    unwanted = {ord(c): _instead(c) for c in set(text) if _instead(c) != c}
    text = re.sub(r" +\n", "\n", text.translate(unwanted) + "\n")
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def _instead(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\n\ufffd":  # the second stands where somebody lost a letter before us
        return character.strip("\ufffd")
    if character == "\t" or category == "Zs":
        return " "
    return "" if category in ("Cc", "Cf", "Cs", "Co", "Cn") else character
