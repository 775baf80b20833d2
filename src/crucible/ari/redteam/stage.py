"""A hostile bundle and a box -> what the harness made of it. Knows how to ask, not what an attack must come to.

A bundle lies here as files that end in `.hostile`, so that nothing imports them by accident; they are packed like anyone's
submission and judged by the very code that judges runs.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from crucible.ari.artefact import pack
from crucible.ari.box import Box
from crucible.ari.exam.questions import Question, encode
from crucible.ari.examine import Ask, Reply, examine, opened
from crucible.ari.grade_bundle import BundleGraded, grade_bundle
from crucible.ari.submit import artefact_limits
from crucible.ari.track import Track, load
from crucible.documents import to_json

BUNDLES = Path(__file__).parent / "bundles"
HOSTILE = ".hostile"


def track(**changes: object) -> Track:
    """The mini track with a short patience: an attack that only waits is answered in seconds."""
    return msgspec.structs.replace(
        load("mini"), **{"name": "redteam", "load_limit_s": 20, "question_limit_s": 2, "grade_limit_s": 120, **changes}
    )


def canary(kind: str) -> str:
    """A text that stands nowhere else."""
    return f"{kind}-{secrets.token_hex(16)}"


def canaries(count: int) -> list[Question]:
    """Questions that nobody can answer: what is asked and what is wanted can be searched for."""
    return [
        Question(f"q{n}", f"c{n % 2}", "f", f"q{n} {canary('PROMPT')} = ".encode(), canary("CANARY").encode())
        for n in range(count)
    ]


def doings(*things: str, good: int = 3) -> list[Question]:
    """`do THING: Z` for each, among plain ones; whoever repeats the last byte is right, whatever else it does."""
    bad = [Question(f"do-{thing}", "bad", "f", f"do {thing}: Z".encode(), b"ZZZ") for thing in things]
    fine = [Question(f"good-{n}", "good", "f", b"please %d: Z" % n, b"ZZZ") for n in range(good)]
    mixed = [*bad]
    for n, question in enumerate(fine):
        mixed.insert(n * (len(mixed) + 1) // len(fine), question)
    return mixed


@dataclass(frozen=True)
class Stage:
    """One hostile bundle, packed, in front of one box."""

    box: Box
    archive: Path
    folder: Path
    track: Track

    def answers(self, questions: Sequence[Question]) -> dict[str, Reply]:
        """What it says to each question, by id."""
        asks = [Ask(question.id, question.prompt, max(len(question.answer), 400)) for question in questions]
        with opened(self.archive, self.track) as bundle:
            return {reply.id: reply for reply in examine(self.box, bundle, asks, self.track)}

    def replies(self, questions: Sequence[Question]) -> dict[str, Reply]:
        """The same for exactly the answers' lengths."""
        asks = [Ask(question.id, question.prompt, len(question.answer)) for question in questions]
        with opened(self.archive, self.track) as bundle:
            return {reply.id: reply for reply in examine(self.box, bundle, asks, self.track)}

    def graded(self, questions: Sequence[Question], name: str = "exam") -> BundleGraded:
        """The whole judgement, with a ledger and a result in the stage's folder, as an operator would have them."""
        exam, out = self.folder / f"{name}.jsonl", self.folder / "published"
        out.mkdir(exist_ok=True)
        exam.write_bytes(encode(questions))
        graded = grade_bundle(self.archive, exam, self.track, self.box, into=out / "ledger.jsonl")
        (out / f"{name}.json").write_bytes(to_json(graded))
        return graded

    def published(self) -> Iterator[tuple[str, bytes]]:
        """Everything that a judgement leaves behind."""
        for path in sorted((self.folder / "published").rglob("*")):
            if path.is_file():
                yield path.name, path.read_bytes()


@contextmanager
def staged(name: str, box: Box, limits: Track | None = None) -> Iterator[Stage]:
    """The bundle of that name, packed as its author would pack it."""
    limits = limits or track()
    with tempfile.TemporaryDirectory(prefix="ari-redteam-") as folder:
        source, archive = Path(folder, "source"), Path(folder, "bundle.tar.gz")
        write_bundle(name, source)
        with archive.open("wb") as stream:
            pack(source, stream, artefact_limits(limits))
        yield Stage(box, archive, Path(folder), limits)


def write_bundle(name: str, into: Path) -> None:
    into.mkdir()
    for path in [BUNDLES / f"speak.py{HOSTILE}", *sorted((BUNDLES / name).iterdir())]:
        (into / path.name.removesuffix(HOSTILE)).write_bytes(path.read_bytes())
    (into / "manifest.json").write_text('{"schema": 1, "entry": "model:Model", "weights": []}')
