"""A track's budget -> how long is left and how long one call may take, on one monotonic clock. Ends nothing itself.

CLOCK_BOOTTIME also counts while the machine sleeps and cannot be set by anyone, so neither `date -s` nor a suspended
laptop buys time. Whoever owns a process ends it; the clock only says when.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from crucible.ari.track import Track
from crucible.errors import MachineryFailed, SubjectFailed


class OutOfBudget(SubjectFailed):
    """Compute was asked for in the reserve or after the deadline."""


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Started once, at the agent's first instruction; then it only runs."""

    def __init__(self, track: Track, now: Callable[[], float] = boottime) -> None:
        self._track = track
        self._now = now
        self._started: float | None = None

    def start(self) -> float:
        if self._started is not None:
            raise MachineryFailed("the clock of this run was started twice", fix="Report this: it is a bug.")
        self._started = self._now()
        return self._started

    def used(self) -> float:
        """Seconds since the first instruction; zero before it."""
        return 0.0 if self._started is None else max(0.0, self._now() - self._started)

    def left(self) -> float:
        """Seconds to the deadline, never below zero."""
        return max(0.0, self._track.budget_s - self.used())

    def until_reserve(self) -> float:
        return max(0.0, self.left() - self._track.reserve_s)

    def grant(self) -> float:
        """How long a call that starts now may run: the cap, or what is left before the reserve."""
        window = self.until_reserve()
        if window <= 0.0:
            raise OutOfBudget(
                f"no compute in the last {self._track.reserve_s:g} s of the budget ({self.left():.0f} s left)",
                fix="Submit, promote or finalize what is there.",
            )
        return min(self._track.call_cap_s, window)

    def prefix(self) -> str:
        """What every response of the runner begins with, e.g. `[57:12 left] `."""
        minutes, seconds = divmod(int(self.left()), 60)
        return f"[{minutes:02d}:{seconds:02d} left] "
