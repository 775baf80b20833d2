"""A file -> the secret seed in it, or the reason why it is no secret: others can read it, or it can be guessed.

A builder that everybody has, a seed that can be guessed and a published digest together give the exam away: whoever tries
seeds knows when the right one is found. Randomness itself cannot be proven from one sample; what is plainly not random can.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from crucible.documents import open_input
from crucible.errors import BadConfig

MIN_BYTES = 16
_DISTINCT = 8
_BLOCK = 8
_FIX = "head -c 32 /dev/urandom > SECRET && chmod 600 SECRET"


def read_seed(path: Path) -> bytes:
    """The bytes of a seed file that only its owner can read."""
    with open_input(path, "a secret seed") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        if mode & 0o077:
            raise BadConfig(f"{path} can be read or written by others (mode {mode:o})", fix=f"chmod 600 {path}")
        seed = stream.read()
    require_secret(seed)
    return seed


def require_secret(seed: bytes) -> None:
    """Refuses a seed below 128 bits, as far as that can be seen."""
    if len(seed) < MIN_BYTES:
        raise BadConfig(f"the secret seed has {len(seed)} bytes, at least {MIN_BYTES} (128 bits) are needed", fix=_FIX)
    text = seed.rstrip()
    if re.fullmatch(rb"[0-9a-fA-F]+", text) and len(text) < 2 * MIN_BYTES:
        raise BadConfig(
            f"the secret seed is {len(text)} hexadecimal digits, {4 * len(text)} bits; at least 128 are needed",
            fix=_FIX,
        )
    if len(set(seed)) < _DISTINCT:
        raise BadConfig(
            f"the secret seed has only {len(set(seed))} different byte values in {len(seed)} bytes: that is not random",
            fix=_FIX,
        )
    for size in range(1, _BLOCK + 1):
        if seed == (seed[:size] * len(seed))[: len(seed)]:
            raise BadConfig(f"the secret seed repeats {size} bytes over and over: that is not random", fix=_FIX)
