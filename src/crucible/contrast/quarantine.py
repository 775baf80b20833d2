"""Bad lines of a bundle file -> one file beside the output that keeps each of them with its reason. Judges nothing itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crucible.contrast.bundle import Problem
from crucible.documents import writing


class Quarantine:
    """Hand `add` to a reader as its `on_problem`; `write` puts what it collected on disk and says how much that was."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def add(self, problem: Problem, raw: bytes) -> None:
        entry = {"line": problem.line, "field": problem.field, "problem": problem.problem, "fix": problem.fix}
        text = raw.decode(errors="backslashreplace").rstrip("\r\n")
        self.lines.append(msgspec.json.encode(entry | {"raw": text}) + b"\n")

    def write(self, path: Path) -> int:
        if self.lines:
            with writing(path) as stream:
                stream.writelines(self.lines)
        return len(self.lines)
