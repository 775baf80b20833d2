"""JSON lines <-> questions: a text and the answer span that follows it, as bytes. Asks nobody and generates nothing.

One line is `{"id", "category", "family", "prompt", "answer"}` with UTF-8 text, or with `prompt_b64` / `answer_b64` where the
bytes are not text. A frozen exam begins with a header line that carries its salt. No message ever quotes a prompt or an
answer: errors end up in logs.
"""

from __future__ import annotations

import base64
import binascii
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from crucible.documents import open_input, read_bytes, write_bytes
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest

_LINE_BYTES = 1 << 20
_LABEL_CHARACTERS = 200
_FIX = 'One JSON object a line: {"id", "category", "family", "prompt", "answer"}, or prompt_b64 / answer_b64.'


class Question(msgspec.Struct, frozen=True):
    """One text with one answer span: the prompt ends where the answer begins."""

    id: str
    category: str
    family: str
    prompt: bytes
    answer: bytes


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a frozen exam. The salt keeps a published digest from being searched for."""

    crucible_exam: int
    protocol_version: str
    salt: str


class Exam(msgspec.Struct, frozen=True):
    """Questions, and the digest of the very bytes they were read from."""

    questions: tuple[Question, ...]
    sha256: str
    header: Header | None

    @property
    def categories(self) -> dict[str, int]:
        """How many questions each category has, by name."""
        names = [question.category for question in self.questions]
        return {name: names.count(name) for name in sorted(set(names))}


class _Line(msgspec.Struct, frozen=True):
    id: str
    category: str
    family: str
    prompt: str | None = None
    prompt_b64: str | None = None
    answer: str | None = None
    answer_b64: str | None = None


def load(path: Path, sha256: str | None = None) -> Exam:
    """The exam in a file; with a published digest, the file must have it or the grade would mean nothing."""
    data = read_bytes(path, "an exam")
    actual = digest.of_bytes(data)
    if sha256 is not None and actual != sha256.lower():
        raise IntegrityBroken(
            f"{path}: the exam has the SHA-256 {actual}, but {sha256} was published",
            fix="Grade with the exam that was published, or under another track.",
            facts={"file": str(path), "sha256": actual, "published": sha256},
        )
    lines = data.split(b"\n")
    header = _header(path, lines[0]) if lines[0].startswith(b'{"crucible_exam"') else None
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and not (header and n == 1)]
    return Exam(tuple(_unique(path, numbered)), actual, header)


def encode(questions: Iterable[Question], header: Header | None = None) -> bytes:
    """The bytes of a question file; the same questions always give the same bytes."""
    head = [] if header is None else [msgspec.json.encode(header)]
    return b"".join(line + b"\n" for line in [*head, *map(_encode, questions)])


def save_secret(path: Path, data: bytes) -> None:
    """Writes an exam for its owner's eyes only, never into a git work tree, never over another exam."""
    require_outside_git(path, "a hidden exam")
    if path.exists():
        with open_input(path, "an exam") as stream:
            if digest.of_stream(stream) == digest.of_bytes(data):
                path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o600)  # a frozen exam stays read-only
                return
        raise BadConfig(f"{path} already holds another file", fix="Put the new exam beside the old one.")
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data, mode=0o600)


def require_outside_git(path: Path, what: str) -> None:
    """Refuses a place that a repository could take in, through whatever links the path goes."""
    target = path.resolve()
    for above in target.parents:
        if (above / ".git").exists():
            raise BadConfig(
                f"{path} is inside the git work tree {above}: {what} never enters a repository",
                fix="Choose a folder outside every repository.",
            )


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadData.at(path, f"is not an exam's header: {error}", fix=_FIX, line=1) from None
    if header.crucible_exam != 1:
        raise BadData.at(
            path, f"is {header.crucible_exam}, this program reads 1", fix=_FIX, line=1, field="crucible_exam"
        )
    return header


def _unique(path: Path, numbered: Sequence[tuple[int, bytes]]) -> Iterator[Question]:
    if not numbered:
        raise BadData.at(path, "holds no question", fix=_FIX)
    seen: dict[str, int] = {}
    for number, line in numbered:
        question = _decode(path, number, line)
        if question.id in seen:
            raise BadData.at(
                path, f"is the id of line {seen[question.id]} too", fix="Give each its own.", line=number, field="id"
            )
        seen[question.id] = number
        yield question


def _decode(path: Path, number: int, line: bytes) -> Question:
    if len(line) > _LINE_BYTES:
        raise BadData.at(path, f"is longer than {_LINE_BYTES} bytes", fix=_FIX, line=number)
    try:
        raw = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadData.at(path, f"is not a question: {error}", fix=_FIX, line=number) from None
    for field in ("id", "category", "family"):
        label: str = getattr(raw, field)
        if not label.strip() or not label.isprintable() or len(label) > _LABEL_CHARACTERS:
            problem = f"is not 1 to {_LABEL_CHARACTERS} printable characters"
            raise BadData.at(path, problem, fix=_FIX, line=number, field=field)
    return Question(
        raw.id,
        raw.category,
        raw.family,
        _bytes(path, number, "prompt", raw.prompt, raw.prompt_b64),
        _bytes(path, number, "answer", raw.answer, raw.answer_b64),
    )


def _bytes(path: Path, number: int, field: str, text: str | None, b64: str | None) -> bytes:
    if (text is None) == (b64 is None):
        problem = "is missing" if text is None else f"stands beside {field}_b64"
        raise BadData.at(path, problem, fix=f"Give either {field} or {field}_b64.", line=number, field=field)
    try:
        data = text.encode() if text is not None else base64.b64decode(b64 or "", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise BadData.at(
            path, f"cannot be read as bytes ({type(error).__name__})", fix=_FIX, line=number, field=field
        ) from None
    if not data:
        raise BadData.at(path, "is empty", fix="Both need at least one byte.", line=number, field=field)
    return data


def _encode(question: Question) -> bytes:
    line: dict[str, str] = {"id": question.id, "category": question.category, "family": question.family}
    for field, data in (("prompt", question.prompt), ("answer", question.answer)):
        try:
            line[field] = data.decode()
        except UnicodeDecodeError:
            line[f"{field}_b64"] = base64.b64encode(data).decode()
    return msgspec.json.encode(line)
