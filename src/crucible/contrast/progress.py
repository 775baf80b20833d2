"""How a long job tells how far it is: a callback that takes (done, total). Who shows it, and how, is not decided here."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
