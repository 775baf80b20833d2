"""Every way a call can fail, as one ladder; no logic and no printing (the command line does that).

    CrucibleError                        message, fix, exit_code
    ├── SubjectFailed           1        what is being judged failed: a result, recorded and scored as earned
    │   └── SubmissionRefused   1        a candidate breaks the artefact contract or comes at the wrong time
    ├── MachineryFailed         1        our side failed: never a score, never averaged
    │   ├── DeviceUnavailable   4        the device that was asked for is not there
    │   ├── IntegrityBroken     6        a ledger, pin, eval set or capsule is not what it claims to be
    │   └── SandboxUnavailable  7        no box or engine that can hold the run
    └── Mistake                 1        the caller can fix it: wrong file, wrong option, wrong pair
        ├── BadConfig           2        options, track and configuration files
        ├── BadData             3        input that cannot be read as what it should be: file, line, field
        ├── NotComparable       5        two results whose pins differ
        └── GuardrailTripped    1        a training run that its guardrails stop

The three branches never meet: code that catches a subject's failure cannot swallow the machinery's, and the other way
round. A law (`tests/laws`) forbids catching `Exception` or `CrucibleError` anywhere but in `cli/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar


class CrucibleError(Exception):
    """A failure with a sentence, the command or step that fixes it, and the exit code of the process."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, fix: str, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.facts = dict(facts or {})
        """What a machine may want from the error (`--json` prints it): both fingerprints, the line number, ..."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled whole: an error raised in a worker process arrives as itself."""
        return _rebuilt, (type(self), self.message, self.fix, self.facts)


def _rebuilt(cls: type[CrucibleError], message: str, fix: str, facts: dict[str, object]) -> CrucibleError:
    return cls(message, fix=fix, facts=facts)


class SubjectFailed(CrucibleError):
    """The thing under test failed; the run goes on and the failure is its result."""


class SubmissionRefused(SubjectFailed):
    """A candidate that the harness does not accept."""


class MachineryFailed(CrucibleError):
    """The harness, the disk or the host failed; the subject is not to blame and nothing may be scored."""


class DeviceUnavailable(MachineryFailed):
    exit_code = 4


class IntegrityBroken(MachineryFailed):
    """Stored evidence does not match its own digests."""

    exit_code = 6


class SandboxUnavailable(MachineryFailed):
    exit_code = 7


class Mistake(CrucibleError):
    """Something the caller can put right."""


class BadConfig(Mistake):
    exit_code = 2


class BadData(Mistake):
    """Input that is refused; `at()` builds the message so that file, line and field are always in the same place."""

    exit_code = 3

    @classmethod
    def at(
        cls, path: Path | str, problem: str, *, fix: str, line: int | None = None, field: str | None = None
    ) -> BadData:
        where = f"{path}" if line is None else f"{path}:{line}"
        what = problem if field is None else f"{field}: {problem}"
        facts = {"file": str(path), "line": line, "field": field, "problem": problem}
        return cls(f"{where}: {what}", fix=fix, facts=facts)


class NotComparable(Mistake):
    exit_code = 5


class GuardrailTripped(Mistake):
    """A guardrail stopped a run; its facts name the guardrail and the numbers."""
