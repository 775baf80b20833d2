"""Complexity has a budget that is printed, and whatever is far above it has a reason here."""

from __future__ import annotations

from pathlib import Path

from .sources import SOURCE, plant, script

FILE_LIMIT, FUNCTION_LIMIT = 400, 80

REASONS: dict[str, str] = {}
"""File, or file:function -> why it is longer than that and better in one piece."""


def without_reason(source: Path, reasons: dict[str, str]) -> list[str]:
    size = script("size")
    long = [f"{s.name}: {s.lines} lines" for s in size.files(source) if s.lines > FILE_LIMIT and s.name not in reasons]
    return long + [
        f"{s.name}: {s.lines} lines"
        for s in size.functions(source)
        if s.lines > FUNCTION_LIMIT and s.name not in reasons
    ]


def unneeded(source: Path, reasons: dict[str, str]) -> list[str]:
    size = script("size")
    over = {s.name for s in size.files(source) if s.lines > FILE_LIMIT}
    over |= {s.name for s in size.functions(source) if s.lines > FUNCTION_LIMIT}
    return sorted(reasons.keys() - over)


def test_what_is_far_over_the_budget_has_a_reason() -> None:
    assert without_reason(SOURCE, REASONS) == []


def test_no_reason_outlives_what_it_excused() -> None:
    assert unneeded(SOURCE, REASONS) == []


def test_the_size_report_names_packages_files_and_functions() -> None:
    size = script("size")
    text = size.report()
    assert "kernel" in text and "\x1b" not in text
    for sized in size.files(SOURCE)[:3] + size.functions(SOURCE)[:3]:
        assert f"{sized.lines:>7}  {sized.name}" in text


def test_a_long_file_and_a_long_function_are_found_and_a_reason_excuses_them(tmp_path: Path) -> None:
    body = "    x = 1\n" * 80
    source = plant(
        tmp_path, {"a/long.py": "x = 1\n" * 401, "b.py": "@cache\ndef f():\n" + body, "c.py": "def g():\n" + body}
    )
    assert without_reason(source, {}) == ["a/long.py: 401 lines", "b.py:f: 82 lines", "c.py:g: 81 lines"]
    assert without_reason(source, {"a/long.py": "a table", "b.py:f": "x", "c.py:g": "y"}) == []
    assert unneeded(source, {"a/long.py": "a table", "gone.py": "x"}) == ["gone.py"]
