"""A track's name or file -> every number of the protocol in one frozen block, and the pin of a run under it. Enforces none.

Changing any number makes another track: the numbers are facts of the pin, and the board never mixes pins. The clock, the
runner, the packing and the grader each enforce their own share of this block.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

import crucible
from crucible.documents import as_builtins, read_toml
from crucible.errors import BadConfig
from crucible.kernel import digest
from crucible.kernel.pin import Pin

TRACKS = Path(__file__).parent / "tracks"
BRIEF = Path(__file__).parent / "brief"
PUBLIC = BRIEF / "public.jsonl"
BASE = "mini"
"""Where the fields come from that a user's track file leaves out."""
PIN_KIND = "ari.track"


class Track(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The protocol's numbers. Seconds are wall clock, bytes are decimal and counted by the harness."""

    name: str
    version: str
    protocol_version: str

    budget_s: float
    """From the agent's first instruction to the deadline."""
    call_cap_s: float
    """The longest one compute call may run."""
    reserve_s: float
    """The end of the budget in which compute is refused; submit, promote and finalize stay open to the deadline."""

    artifact_bytes: int
    """The largest canonical archive that is accepted; one byte more is rejected."""
    unpacked_bytes: int
    artifact_files: int
    max_submissions: int
    output_bytes: int
    """How much of one call's output is passed on; the rest is counted and dropped."""

    context_bytes: int
    """How much of the text before a byte the model is given to predict it."""
    questions: int
    seeds: int
    """Valid runs that make a row official."""

    load_limit_s: float
    question_limit_s: float
    grade_limit_s: float
    """For one sitting through all questions: the one that decides, and each one after it that only flags or measures."""


def shipped() -> tuple[str, ...]:
    """The names of the tracks that come with the package."""
    return tuple(sorted(path.stem for path in TRACKS.glob("*.toml")))


def load(name_or_path: str) -> Track:
    """A shipped track by its name, or a TOML file, whose missing fields come from the mini track."""
    if name_or_path in shipped():
        return _checked(_raw(TRACKS / f"{name_or_path}.toml"), name_or_path)
    path = Path(name_or_path)
    if not path.is_file():
        raise BadConfig(
            f"no track {name_or_path!r}: neither a shipped track ({', '.join(shipped())}) nor a file",
            fix="Give one of those names or the path of a TOML file; `crucible ari track show mini` prints all fields.",
        )
    given = _raw(path)
    # A file without a name is called after itself: other numbers must not go by the name of the mini track.
    return _checked({**_raw(TRACKS / f"{BASE}.toml"), "name": path.stem, **given}, str(path))


def brief_files() -> dict[str, Path]:
    """What every agent is given, by its name in the workspace. Compiled leftovers of an installer are not part of it."""
    found = sorted(path for path in BRIEF.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(BRIEF).as_posix(): path for path in found}


def pin(
    track: Track,
    *,
    box: str,
    exam_sha256: str | None = None,
    notes: dict[str, Any] | None = None,
) -> Pin:
    """What a run under this track holds fixed; the exam's digest joins when the run is graded."""
    given = brief_files()
    facts: dict[str, Any] = {
        "track": as_builtins(track),
        "brief": digest.of_file(BRIEF / "brief.md"),
        "starter": digest.of_json({name: digest.of_file(path) for name, path in given.items() if "/" in name}),
        "text": digest.of_file(BRIEF / "text.txt"),
        "public": digest.of_file(PUBLIC),
        "box": box,
        "harness": crucible.__version__,
    }
    if exam_sha256 is not None:
        facts["exam"] = exam_sha256
    return Pin(PIN_KIND, facts, {"host": platform.node(), "python": sys.version.split()[0], **(notes or {})})


def with_exam(before: Pin, exam_sha256: str) -> Pin:
    """The pin of a graded run: what was held fixed during the run, and the exam that judged it."""
    return Pin(before.kind, {**before.facts, "exam": exam_sha256}, before.notes)


def _raw(path: Path) -> dict[str, Any]:
    return read_toml(path, dict[str, Any], "a track file (TOML)", "See `crucible ari track show mini` for the fields.")


def _checked(raw: dict[str, Any], where: str) -> Track:
    for label in ("version", "protocol_version"):
        if type(raw.get(label)) is int:
            raw = {**raw, label: str(raw[label])}
    try:
        track = msgspec.convert(raw, type=Track)
    except msgspec.ValidationError as error:
        raise BadConfig(
            f"{where}: {error}", fix=f"The fields are: {', '.join(Track.__struct_fields__)}.", facts={"file": where}
        ) from None
    problem = _problem(track)
    if problem:
        raise BadConfig(f"{where}: {problem}", fix="Correct that number in the track file.", facts={"file": where})
    return track


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MAY_BE_ZERO = ("reserve_s",)
_LARGEST = 10**12


def _problem(track: Track) -> str | None:
    if not _NAME.fullmatch(track.name):
        return f"name {track.name!r} is not 1 to 40 letters, digits, dots, dashes or underscores"
    for field, value in as_builtins(track).items():
        if isinstance(value, str):
            continue
        # Written so that NaN, which is neither below nor above anything, is refused too.
        if not 0 <= value <= _LARGEST or (value == 0 and field not in _MAY_BE_ZERO):
            return f"{field} is {value!s:.40}: it must be above zero and at most {_LARGEST:g}"
    if track.reserve_s >= track.budget_s:
        return (
            f"reserve_s is {track.reserve_s:g} and budget_s is {track.budget_s:g}: "
            "the reserve must be shorter, or no compute is ever granted"
        )
    return None
