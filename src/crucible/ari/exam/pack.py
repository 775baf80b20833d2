"""A folder of Python files -> families that no repository holds, ready to be drawn from. Runs them; never shows them.

A private pack keeps some families unknown to everybody who reads this repository. The protocol is one name: each file of the
folder (`_*.py` are left out) defines

    FAMILIES = [Family("my-family", "records", 2, make, solve)]

with `Family`, `make` and `solve` as `crucible.ari.exam.family` describes them; the category may be a new one. The folder must
lie outside every git work tree. Each family is tried on some documents and held against the rules before anything is built.
A fault in a pack is reported by its type and line alone: its message could quote a question.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import ParamSpec, TypeVar

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.families import FAMILIES
from crucible.ari.exam.family import Family, prompts
from crucible.ari.exam.questions import Question, require_outside_git
from crucible.ari.exam.rules import broken
from crucible.errors import BadConfig

_P = ParamSpec("_P")
_R = TypeVar("_R")
_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_TRIED = 12
"""Documents of each template that must obey the rules before a pack is accepted."""


def load(folder: Path, known: Mapping[str, Family] = FAMILIES) -> dict[str, Family]:
    """The known families and those of the pack, by name."""
    if not folder.is_dir():
        raise BadConfig(f"{folder} is not a folder", fix="--pack takes a folder of Python files.")
    require_outside_git(folder / "pack", "a private pack")
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    found: dict[str, Family] = {}
    for path in files:
        for family in _families(path):
            if family.name in {**known, **found}:
                raise BadConfig(f"{path}: another family is called {family.name!r}", fix="Choose another name.")
            found[family.name] = _tried(path, family)
    if not found:
        raise BadConfig(f"{folder} holds no family", fix="Each Python file there defines FAMILIES, a list of Family.")
    return {**known, **found}


def _families(path: Path) -> list[Family]:
    listed = getattr(_guarded(path, _module)(path), "FAMILIES", None)
    if not isinstance(listed, list | tuple) or not all(isinstance(family, Family) for family in listed):
        raise BadConfig(f"{path}: FAMILIES is not a list of Family", fix="See crucible.ari.exam.pack for the protocol.")
    for family in listed:
        if not _NAME.fullmatch(family.name) or not family.category.isprintable() or not family.category.strip():
            raise BadConfig(
                f"{path}: a family is called {family.name!r} in the category {family.category!r}",
                fix="Names are 1 to 60 small letters, digits and dashes; a category is printable text.",
            )
        if family.templates < 1 or not family.weight >= 0:
            raise BadConfig(
                f"{path}: {family.name} has {family.templates} templates and the weight {family.weight}",
                fix="At least one template, and a weight that is not negative.",
            )
    return list(listed)


def _module(path: Path) -> ModuleType:
    name = f"crucible_pack_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _tried(path: Path, family: Family) -> Family:
    safe = replace(family, make=_guarded(path, family.make), solve=_guarded(path, family.solve))
    for template in range(family.templates):
        for number in range(_TRIED):
            dice = Dice(b"trying a pack", "hidden", family.name, template, number)
            for prompt, answer in _guarded(path, prompts)(safe.make(dice, template)):
                question = Question("tried", family.category, family.name, prompt.encode(), answer.encode())
                problem = broken(question, safe) if answer and prompt else "is empty"
                if problem:
                    raise BadConfig(
                        f"{path}: template {template} of {family.name} made a question that {problem}",
                        fix="The rules are in crucible.ari.exam.rules.",
                    )
    return safe


def _guarded(path: Path, call: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, whose faults become a sentence that quotes nothing."""

    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except _FAULTS as error:
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
            line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
            where = f"{path}:{line}" if line else f"{path}"
            raise BadConfig(f"{where}: the pack failed with {type(error).__name__}", fix="Correct the pack.") from None

    return guarded
