"""Importing the package says nothing, writes nothing and loads nothing heavy; a command loads only what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import plant

HEAVY = {
    "numpy",
    "numba",
    "scipy",
    "torch",
    "sentence_transformers",
    "transformers",
    "onnxruntime",
    "pyarrow",
    "altair",
}
OUTSIDE = HEAVY | {"typer", "click", "rich", "msgspec", "jinja2", "starlette", "uvicorn"}

DUMP = """
import atexit, os, sys
def dump():
    with open(os.environ["MODULES"], "w") as stream: stream.write("\\n".join(sys.modules))
atexit.register(dump)
"""


def run(program: str, folder: Path, *path: Path) -> tuple[subprocess.CompletedProcess[bytes], set[str]]:
    """Runs a program in an empty folder and returns how it ended and the names of the packages it had loaded."""
    listing, cwd = folder / "modules", folder / "cwd"
    cwd.mkdir()
    env = os.environ | {"MODULES": str(listing), "PYTHONDONTWRITEBYTECODE": "1"}
    if path:
        env["PYTHONPATH"] = os.pathsep.join(map(str, path))
    done = subprocess.run([sys.executable, "-c", DUMP + program], cwd=cwd, env=env, capture_output=True)
    assert list(cwd.iterdir()) == [], "it wrote something"
    return done, {name.split(".")[0] for name in listing.read_text().split()}


def said_or_loaded(program: str, folder: Path, unwanted: set[str], *path: Path) -> list[str]:
    done, loaded = run(program, folder, *path)
    assert done.returncode == 0, done.stderr.decode()
    return [*sorted(loaded & unwanted), *([f"said {done.stdout + done.stderr!r}"] if done.stdout + done.stderr else [])]


def test_importing_crucible_is_silent_and_loads_the_standard_library_only(tmp_path: Path) -> None:
    assert said_or_loaded("import crucible", tmp_path, OUTSIDE) == []


@pytest.mark.parametrize("name", ["digest", "pin", "record", "ledger", "stats", "compare"])
def test_the_kernel_loads_nothing_but_msgspec(tmp_path: Path, name: str) -> None:
    assert said_or_loaded(f"import crucible.kernel.{name}", tmp_path, OUTSIDE - {"msgspec"}) == []


def test_errors_and_documents_load_nothing_but_msgspec(tmp_path: Path) -> None:
    assert said_or_loaded("import crucible.errors, crucible.documents", tmp_path, OUTSIDE - {"msgspec"}) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["exposure", "--help"],
        ["ledger", "verify", os.devnull],
        ["ledger", "--help"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_a_light_command_does_not_wait_for_a_heavy_library(tmp_path: Path, arguments: list[str]) -> None:
    done, loaded = run(f"from crucible.cli.main import main; main({arguments!r})", tmp_path)
    assert done.returncode == (2 if arguments == ["nonsense"] else 0), done.stderr.decode()
    assert loaded & HEAVY == set()
    assert "click" in loaded  # the list is that of the process that ran the command


@pytest.mark.parametrize(
    ("text", "why"), [("print('hello')", "said"), ("import msgspec", "msgspec"), ("import numpy", "numpy")]
)
def test_a_package_that_speaks_or_loads_is_found(tmp_path: Path, text: str, why: str) -> None:
    package = plant(tmp_path / "planted", {"loud/__init__.py": text})
    (found,) = said_or_loaded("import loud", tmp_path, OUTSIDE - {"scipy"}, package)
    assert why in found


def test_a_package_that_writes_is_found(tmp_path: Path) -> None:
    package = plant(tmp_path / "planted", {"loud/__init__.py": "open('log', 'w').close()"})
    with pytest.raises(AssertionError, match="wrote something"):
        said_or_loaded("import loud", tmp_path, set(), package)
