"""A model library's exceptions -> our BadData, and its chatter -> silence. Loads no library itself."""

from __future__ import annotations

import contextlib
import logging
import pickle
import struct
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from crucible.errors import BadConfig, BadData

_FAULTS = (
    OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, ImportError, AssertionError, EOFError,
    struct.error, pickle.UnpicklingError,
)  # fmt: skip
_LIBRARIES = {
    "safetensors",
    "safetensors_rust",
    "onnxruntime",
    "tokenizers",
    "transformers",
    "torch",
    "huggingface_hub",
}


class Reading:
    """`with Reading(path, what):` whatever the libraries say about a broken model becomes one sentence about `path`.

    They raise plain `Exception` and classes of their own; those are meant here and nothing else: our errors, interrupts,
    a lack of memory and what is named in `passing` go through.
    """

    def __init__(self, path: Path | str, what: str, passing: tuple[type[BaseException], ...] = ()) -> None:
        self.path, self.what, self.passing = path, what, passing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or error is None or issubclass(kind, self.passing):
            return
        theirs = kind is Exception or kind.__module__.split(".")[0] in _LIBRARIES
        if theirs or issubclass(kind, _FAULTS):
            said = " ".join(str(error).split())[:300] or kind.__name__
            raise BadData.at(
                self.path, f"is not {self.what} that can be used: {said}", fix="Check the files of the model."
            ) from error


def require(package: str, name: str, extra: str) -> None:
    """A missing optional package is one sentence with the command that installs it."""
    if find_spec(package) is None:
        raise BadConfig(
            f"the encoder {name!r} needs the package {package}, which is not installed",
            fix=f"pip install 'crucible-ml[{extra}]'",
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Warnings and log lines of the libraries belong to nobody who runs an evaluation."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
