"""Prefix -> 256 numbers: what followed the same bytes earlier in the prefix, and what follows them in the training text."""

from __future__ import annotations

import json
import os

LONGEST_COPY = 24


class Model:
    def __init__(self, directory: str) -> None:
        with open(os.path.join(directory, "weights.json"), encoding="utf-8") as stream:
            weights = json.load(stream)
        self.orders: list[dict[str, list[list[int]]]] = weights["orders"]

    def next_byte_logits(self, prefix: bytes) -> list[float]:
        logits = [0.0] * 256
        for order, table in enumerate(self.orders):
            context = prefix[len(prefix) - order :] if order else b""
            for byte, count in table.get(context.hex(), []):
                logits[byte] += (order + 1) * count / (count + 4.0)
        self._copy(prefix, logits)
        return logits

    def _copy(self, prefix: bytes, logits: list[float]) -> None:
        """Votes for the byte that followed the longest earlier occurrence of the prefix's own end."""
        for length in range(min(LONGEST_COPY, len(prefix) - 1), 1, -1):
            at = prefix.rfind(prefix[-length:], 0, len(prefix) - 1)
            if at >= 0:
                logits[prefix[at + length]] += 4.0 * length
                return
