"""What is written about the code is what the code is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .sources import ROOT, SOURCE, modules, plant, script, tracked

DECISIONS = ROOT / "docs" / "decisions"


# --- the checkers ------------------------------------------------------------------------------------------------------


def dead_links(files: list[Path], root: Path) -> list[str]:
    """Relative links in Markdown that point to nothing, or out of the project."""
    found = []
    for path in files:
        if path.suffix != ".md":
            continue
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
        targets = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", text)
        targets += re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, flags=re.MULTILINE)
        for target in targets:
            place = target.split("#")[0]
            if not place or re.match(r"[a-z][a-z+.-]*:", place):
                continue
            there = (path.parent / place).resolve()
            if not there.exists() or not there.is_relative_to(root):
                found.append(f"{path.relative_to(root)}: {target}")
    return found


def poor_docstrings(source: Path) -> list[str]:
    """Modules whose docstring does not open with a sentence on its first line."""
    found = []
    for module in modules(source).values():
        lines = (ast.get_docstring(module.tree) or "").splitlines()
        if not lines or len(lines[0].split()) < 3 or not re.search(r"[.!?](\s|$)", lines[0]):
            found.append(f"{module.place}: {lines[0] if lines else 'no docstring'}")
    return found


def misnumbered(folder: Path) -> list[str]:
    """Decision records that are not NNNN-title.md with consecutive numbers, or that the index does not link."""
    records = sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")
    index = folder / "README.md"
    listed = index.read_text() if index.exists() else None
    found = [name for name in records if not re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md", name)]
    found += [f"{name} is not number {n}" for n, name in enumerate(records, 1) if not name.startswith(f"{n:04}-")]
    found += [f"{name} is not in the index" for name in records if listed is not None and f"({name})" not in listed]
    return found


# --- the law holds -----------------------------------------------------------------------------------------------------


def test_the_tree_in_the_readme_is_the_real_tree() -> None:
    text = (ROOT / "README.md").read_text()
    assert script("docs").with_tree(text) == text, "run make docs"


def test_the_generated_tree_names_every_module_once_and_fits() -> None:
    drawn = script("docs").tree()
    names = [line.split()[0] for line in drawn.splitlines() if line.startswith("  ")]
    for module in modules(SOURCE).values():
        parts = module.place.split("/")
        folder = SOURCE.joinpath(*parts[:-1])
        if all(
            (parent / "__init__.py").exists() for parent in [folder, *folder.parents] if parent.is_relative_to(SOURCE)
        ):
            expected = f"{parts[-2]}/" if parts[-1] == "__init__" and len(parts) > 1 else f"{parts[-1]}.py"
            assert expected == "__init__.py" or expected in names, module.place
    assert max(map(len, drawn.splitlines())) <= 110


def test_the_reference_of_the_commands_is_that_of_the_commands() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == script("docs").cli_reference(), "run make docs"


def test_the_reference_is_the_same_in_every_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = script("docs").cli_reference()
    for name, value in (("COLUMNS", "40"), ("FORCE_COLOR", "1"), ("TERMINAL_WIDTH", "30")):
        monkeypatch.setenv(name, value)
    assert script("docs").cli_reference() == plain
    assert "\x1b" not in plain


def test_every_relative_link_points_to_something() -> None:
    assert dead_links(tracked(ROOT), ROOT) == []


def test_every_module_opens_with_a_sentence() -> None:
    assert poor_docstrings(SOURCE) == []


def test_decisions_are_numbered_and_listed() -> None:
    assert misnumbered(DECISIONS) == []
    assert list(DECISIONS.glob("0*.md"))


# --- and bites ---------------------------------------------------------------------------------------------------------


def test_a_new_module_changes_the_tree(tmp_path: Path) -> None:
    docs = script("docs")
    source = plant(tmp_path / "crucible", {"__init__.py": '"""A."""', "kernel/__init__.py": '"""Waist of it: all."""'})
    before = docs.tree(source)
    after = docs.tree(plant(source, {"kernel/new.py": '"""Old things -> new things. Does no more."""'}))
    assert before != after
    assert "    new.py" in after and "Old things -> new things" in after and "Does no more" not in after


def test_a_long_sentence_loses_clauses_not_words() -> None:
    shortened = script("docs")._shortened
    assert shortened("Short enough", 20) == "Short enough"
    assert (
        shortened("Numbers from several seeds: summaries, intervals, tests", 40)
        == "Numbers from several seeds: summaries"
    )
    assert shortened("word " * 30, 40).endswith("word…")


def test_a_readme_without_its_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="tree"):
        script("docs").with_tree("# Nothing here")


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("[a](missing.md)", True),
        ("![a](img/missing.png)", True),
        ("[a]: missing.md", True),
        ("[a](../../../../etc/passwd)", True),
        ("[a](there.md#part)", False),
        ("[a](#part)", False),
        ("[a](https://example.org/missing.md)", False),
        ("`[a](missing.md)`", False),
        ("```\n[a](missing.md)\n```", False),
    ],
)
def test_a_dead_link_is_found(tmp_path: Path, text: str, dead: bool) -> None:
    root = plant(tmp_path, {"docs/page.md": text, "docs/there.md": ""})
    assert bool(dead_links([root / "docs/page.md"], root)) == dead


@pytest.mark.parametrize(
    ("text", "poor"),
    [
        ("", True),
        ("x = 1", True),
        ('"""Utilities"""', True),
        ('"""Some helpers for all of it"""', True),
        ('"""A file -> a value."""', False),
        ('"""`a` -> b; c. And what it\ndoes not."""', False),
    ],
)
def test_a_module_without_a_sentence_is_found(tmp_path: Path, text: str, poor: bool) -> None:
    assert bool(poor_docstrings(plant(tmp_path, {"a.py": text}))) == poor


def test_a_misnumbered_or_unlisted_decision_is_found(tmp_path: Path) -> None:
    index = {"README.md": "[one](0001-one.md) [two](0002-two.md)"}
    assert misnumbered(plant(tmp_path / "a", {"0001-one.md": "", "0002-two.md": "", **index})) == []
    assert misnumbered(plant(tmp_path / "b", {"0001-one.md": "", "0003-two.md": ""})) == ["0003-two.md is not number 2"]
    assert misnumbered(plant(tmp_path / "c", {"0001-one.md": "", "0002-three.md": "", **index})) != []
    assert misnumbered(plant(tmp_path / "d", {"one.md": ""})) != []
