"""NumPy's BLAS -> on one thread while a block runs, for callers that bring threads of their own. Knows OpenBLAS and no other.

Threads of OpenBLAS go on spinning for a while after every product, each on a core of its own; work that is done between two
products finds them in its way. NumPy has no function to tell its library so, therefore the library itself is asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from numpy.linalg import _umath_linalg

_LOCK = threading.Lock()
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One block at a time, because the number belongs to the whole process. Another BLAS stays as it is."""
    with _LOCK:
        tell, ask = _function("set"), _function("get")
        if not tell or not ask:
            yield
            return
        before = ask()
        tell(1)
        try:
            yield
        finally:
            tell(before)


def threads() -> int | None:
    """How many OpenBLAS uses now; None for another library."""
    ask = _function("get")
    return int(ask()) if ask else None


def _function(what: str) -> Any:
    """Found through a module of NumPy that is linked to the library."""
    library = ctypes.CDLL(_umath_linalg.__file__)
    for name in _NAMES:
        with contextlib.suppress(AttributeError):
            return getattr(library, name.format(what))
    return None
