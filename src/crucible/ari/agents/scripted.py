"""`idle`, `starter`, `overfitter` or `script:PATH` -> a shell script as the agent. No model, no money, the same every time.

The shipped scripts are reference agents: each makes one claim of the protocol a thing that anyone can run. Any other shell
script can stand in their place; it runs in the controller with the workspace as its folder and `runner` on its PATH.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crucible.documents import read_bytes, write_bytes
from crucible.errors import BadConfig
from crucible.kernel import digest

SCRIPTS = Path(__file__).parent / "scripts"
PREFIX = "script:"
_FILE = "agent.sh"


@dataclass(frozen=True)
class Scripted:
    """An agent that is a shell script; `subject` is what its row is about."""

    name: str
    subject: dict[str, str]
    script: bytes

    @property
    def facts(self) -> dict[str, str]:
        """What a record keeps about how this agent was made."""
        return {"scaffold": "scripted", "script_sha256": digest.of_bytes(self.script)}

    def install(self, folder: Path) -> tuple[str, ...]:
        """Puts the script where the run keeps it and returns the command that runs it."""
        folder.mkdir(parents=True)
        write_bytes(folder / _FILE, self.script)
        first = self.script.split(b"\n", 1)[0]
        return ("bash" if first.startswith(b"#!") and b"bash" in first else "sh", str(folder / _FILE))


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in SCRIPTS.glob("*.sh")))


def load(agent: str) -> Scripted:
    if agent in names():
        return Scripted(agent, {"agent": agent}, read_bytes(SCRIPTS / f"{agent}.sh", "a shipped agent"))
    if not agent.startswith(PREFIX):
        raise BadConfig(
            f"no agent {agent!r}", fix=f"Give one of {', '.join(names())}, or {PREFIX}PATH for a shell script."
        )
    path = Path(agent.removeprefix(PREFIX))
    if not path.is_file():
        raise BadConfig(f"{path}: no such script", fix=f"Give the path of a shell script after {PREFIX}")
    script = read_bytes(path, "a shell script")
    # Two scripts of one name are two subjects: the digest is part of who was measured.
    subject = {"agent": PREFIX + path.name, "script": digest.of_bytes(script)[:12]}
    return Scripted(path.stem, subject, script)
