"""How many threads torch sums with, held fixed while a model trains: on a CPU the order of a sum is part of the result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def available() -> int:
    """What the environment allows this process."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else len(os.sched_getaffinity(0))


@contextlib.contextmanager
def fixed(device: str, count: int) -> Iterator[None]:
    """Deterministic kernels and `count` threads on a CPU; a GPU is left alone. What was set before is restored."""
    import torch

    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(device == "cpu")
    hold(device, count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)


def hold(device: str, count: int) -> None:
    """Again after anything else has run: numba's scoring sets the number of OpenMP threads for the whole process."""
    import torch

    if device == "cpu":
        torch.set_num_threads(count)
