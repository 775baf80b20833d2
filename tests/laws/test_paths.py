"""No tracked file knows the machine it was written on, or where packages come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .sources import ROOT, plant, tracked

S = "/"  # the patterns are put together from pieces, so that this file does not match itself
HOSTS = [
    ["pypi", "org"],
    ["pythonhosted", "org"],
    ["registry", "npmjs", "org"],
    ["registry", "yarnpkg", "com"],
    ["deb", "debian", "org"],
    ["security", "debian", "org"],
    ["archive", "ubuntu", "com"],
    ["download", "pytorch", "org"],
]
PATTERNS = {
    "a path of the machine it was written on": rf"(?<![\w.~-]){S}(?:work|root|Users){S}",
    "a home folder": rf"(?<![\w.~-]){S}home{S}[\w.-]+",
    "a package registry": "|".join(r"\b" + r"\.".join(parts) + r"\b" for parts in HOSTS),
}


def machine_traces(files: list[Path], root: Path) -> list[str]:
    found = []
    for path in files:
        data = path.read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            found += [
                f"{path.relative_to(root)}:{number}: {what}: {match[0]}"
                for what, pattern in PATTERNS.items()
                if (match := re.search(pattern, line))
            ]
    return found


def test_no_tracked_file_names_this_machine_or_a_registry() -> None:
    files = tracked(ROOT)
    assert len(files) > 20 and ROOT / "pyproject.toml" in files
    assert machine_traces(files, ROOT) == []


@pytest.mark.parametrize(
    "parts",
    [
        ["cd ", "/work", "/main"],
        ["'", "/root", "/.cache'"],
        ["see ", "/home", "/someone/x"],
        ["https://", "pypi", ".org/simple"],
        ["https://files.", "pythonhosted", ".org/x"],
        ["registry.", "npmjs", ".org"],
        ["deb http://deb.", "debian", ".org/debian stable"],
    ],
    ids="".join,
)
def test_a_trace_of_the_machine_is_found(tmp_path: Path, parts: list[str]) -> None:
    path = plant(tmp_path, {"notes.md": "first\n" + "".join(parts)}) / "notes.md"
    (found,) = machine_traces([path], tmp_path)
    assert found.startswith("notes.md:2:")


@pytest.mark.parametrize(
    "text",
    [
        "/workspace/data",
        "/dev/full",
        "/proc/self",
        "/tmp/x",
        "/usr/bin/env",
        "src/work/x",
        "homework",
        "~/root/x",
        "/home",
    ],
)
def test_paths_inside_a_box_and_relative_ones_are_fine(tmp_path: Path, text: str) -> None:
    assert machine_traces([plant(tmp_path, {"notes.md": text}) / "notes.md"], tmp_path) == []


def test_without_git_the_files_are_found_by_walking(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {"a.md": "", "src/b.py": "", ".venv/c.py": "", "demo/d": "", "src/__pycache__/e": "", ".ruff_cache/f": ""},
    )
    assert [path.relative_to(root).as_posix() for path in tracked(root)] == ["a.md", "src/b.py"]
