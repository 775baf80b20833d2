"""Ctrl-C and SIGTERM -> a flag that a loop looks at between two steps; then the signal goes where it was meant to go.

Without it a signal would end a step half way, with some weights moved and others not. A second signal is not held back.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """`asked` becomes true when somebody wants the loop to end; `deliver` then ends it as the signal would have."""

    def __init__(self) -> None:
        self._got: int | None = None
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self._got is not None

    def deliver(self) -> None:
        """To be called after the block of `holding`, when everything is saved."""
        if self._got is not None:
            signal.raise_signal(self._got)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Signals are held back inside; only the main thread of a process ever gets one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = {number: signal.signal(number, self._take) for number in _SIGNALS}
        try:
            yield
        finally:
            self._release()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Inside `holding`: signals act at once again, for work that can be thrown away."""
        held = bool(self._before)
        self._release()
        try:
            yield
        finally:
            if held:
                self._before = {number: signal.signal(number, self._take) for number in _SIGNALS}

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self._release()
            signal.raise_signal(number)
        self._got = number

    def _release(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
