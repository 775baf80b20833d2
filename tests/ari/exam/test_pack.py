from __future__ import annotations

from pathlib import Path

import pytest

from crucible.ari.exam import pack
from crucible.ari.exam.build import build_exam, generate
from crucible.ari.exam.families import FAMILIES
from crucible.errors import BadConfig

GOOD = """
import re
from dataclasses import dataclass

from crucible.ari.exam.family import Family


@dataclass(frozen=True)
class Pair:
    left: str
    right: str


def make(dice, template):
    pair = Pair(*dice.words(2))
    mark = ("=>", "::")[template]
    return [(f"private {pair.left} {pair.right} {mark} ", pair.right + pair.left)]


def solve(prompt):
    left, right = re.findall(r"[a-z]+", prompt)[1:3]
    return {right + left}


FAMILIES = [Family("private-join", "private", 2, make, solve, weight=3)]
"""


def packed(folder: Path, text: str, name: str = "mine.py") -> Path:
    (folder / "pack").mkdir(exist_ok=True)
    (folder / "pack" / name).write_text(text)
    return folder / "pack"


def test_a_private_family_joins_the_others_and_is_drawn_from(tmp_path: Path) -> None:
    folder = packed(tmp_path, GOOD)
    packed(tmp_path, "raise RuntimeError('not mine to load')", "_parts.py")
    known = pack.load(folder)
    assert set(known) == {*FAMILIES, "private-join"} and list(FAMILIES) == list(known)[:-1]
    made = generate(b"s" * 16, 144, "hidden", known=known)
    assert sum(question.category == "private" for question in made) == 16
    assert build_exam(b"s" * 16, 90, "1", known=known) == build_exam(b"s" * 16, 90, "1", known=pack.load(folder))
    without = {q.prompt for q in generate(b"s" * 16, 128, "hidden")}
    assert without == {q.prompt for q in made if q.category != "private"}


@pytest.mark.parametrize("git", ["folder", "file"])
def test_a_pack_inside_a_git_work_tree_is_refused_before_it_runs(tmp_path: Path, git: str) -> None:
    (tmp_path / ".git").mkdir() if git == "folder" else (tmp_path / ".git").write_text("gitdir: elsewhere")
    folder = packed(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(BadConfig, match="git work tree"):
        pack.load(folder)
    assert not (tmp_path / "ran").exists()


BREAK = 'raise ValueError("private words")'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FAMILIES = [1]", "not a list of Family"),
        ("x = 1", "not a list of Family"),
        ("FAMILIES = []", "holds no family"),
        ("def f(:", ":1: the pack failed with SyntaxError"),
        ("import nothing_of_that_name", ":1: the pack failed with ModuleNotFoundError"),
        (f"x = 1\n{BREAK}", ":2: the pack failed with ValueError"),
        (GOOD.replace('"private-join"', '"record-field"'), "another family is called 'record-field'"),
        (GOOD.replace('"private-join"', '"Private Join"'), "small letters"),
        (GOOD.replace("weight=3", "weight=-1"), "weight -1"),
        (GOOD.replace("2, make", "0, make"), "0 templates"),
        (GOOD.replace("{mark} ", "{mark}"), "delimiter"),
        (GOOD.replace("return {right + left}", "return {right + left, left + right}"), "only reading"),
        (GOOD.replace("return {right + left}", BREAK), "the pack failed with ValueError"),
        (GOOD.replace("mark = (", f"{BREAK} #"), "the pack failed with ValueError"),
        (GOOD.replace("return [(", "return 5, [("), "the pack failed with TypeError"),
        (GOOD.replace("pair.right + pair.left)", "'')"), "is empty"),
        (GOOD.replace("private {pair.left}", "{'private ' * 200}{pair.left}"), "window"),
    ],
)
def test_a_broken_pack_is_a_sentence_that_quotes_nothing(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadConfig) as caught:
        pack.load(packed(tmp_path, text))
    assert why in f"{caught.value.message} {caught.value.fix}"
    assert "private words" not in caught.value.message and "=>" not in caught.value.message


def test_a_family_that_fails_late_quotes_nothing_either(tmp_path: Path) -> None:
    fault = "    calls.append(1)\n    if len(calls) > 30:\n        raise KeyError('private words')\n"
    late = "calls = []\n" + GOOD.replace("    pair = Pair", fault + "    pair = Pair")
    known = pack.load(packed(tmp_path, late))
    with pytest.raises(BadConfig, match="KeyError") as caught:
        generate(b"t" * 16, 200, "hidden", ["private-join"], known=known)
    assert "private words" not in caught.value.message


def test_a_pack_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="not a folder"):
        pack.load(tmp_path / "gone")
