"""The ladder of errors is the one that is drawn, its branches never meet, and every error says what to do."""

from __future__ import annotations

import ast
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from crucible import errors
from crucible.errors import BadData, CrucibleError, MachineryFailed, Mistake, SubjectFailed

SOURCE = Path(errors.__file__).parent
BRANCHES = (SubjectFailed, MachineryFailed, Mistake)


def classes() -> list[type[CrucibleError]]:
    found: list[type[CrucibleError]] = []
    todo = [CrucibleError]
    while todo:
        todo += todo[0].__subclasses__()
        found.append(todo.pop(0))
    return [cls for cls in found if cls.__module__ == errors.__name__]


def drawn(docstring: str) -> dict[str, tuple[str, int]]:
    """The ladder in the docstring as {class: (parent, exit code)}, read by its indentation."""
    ladder: dict[str, tuple[str, int]] = {}
    above = {-1: "CrucibleError"}
    for line in docstring.splitlines():
        if found := re.match(r"    ([│ ]*)[├└]── (\w+) +(\d)  ", line):
            depth = len(found[1]) // 4
            ladder[found[2]] = (above[depth - 1], int(found[3]))
            above[depth] = found[2]
    return ladder


def test_the_drawn_ladder_is_the_real_one() -> None:
    real = {cls.__name__: (cls.__bases__[0].__name__, cls.exit_code) for cls in classes() if cls is not CrucibleError}
    assert drawn(errors.__doc__ or "") == real


def test_the_reader_of_the_drawing_sees_a_wrong_rung() -> None:
    real = drawn(errors.__doc__ or "")
    assert drawn((errors.__doc__ or "").replace("NotComparable       5", "NotComparable       6")) != real
    assert drawn((errors.__doc__ or "").replace("│   └── SubmissionRefused", "├── SubmissionRefused")) != real


def test_the_three_branches_never_meet() -> None:
    for cls in classes():
        if cls is not CrucibleError:
            assert sum(issubclass(cls, branch) for branch in BRANCHES) == 1, cls
            assert len(cls.__bases__) == 1, f"{cls} could join two branches"


@pytest.mark.parametrize("raised", BRANCHES)
def test_catching_one_branch_lets_the_other_two_through(raised: type[CrucibleError]) -> None:
    for caught in BRANCHES:
        if caught is not raised:
            with pytest.raises(raised):
                try:
                    raise raised("x", fix="y")
                except caught:
                    pytest.fail(f"{caught.__name__} swallowed {raised.__name__}")


def test_exit_codes_are_those_of_the_command_line() -> None:
    assert {cls.exit_code for cls in classes()} == {1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("cls", classes())
def test_an_error_cannot_be_made_without_a_fix(cls: type[CrucibleError]) -> None:
    with pytest.raises(TypeError, match="fix"):
        cls("message")  # type: ignore[call-arg]


def empty_fixes(tree: ast.AST) -> list[int]:
    """Lines with `fix=""`: a fix that fixes nothing."""
    return [
        keyword.value.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "fix"
        and isinstance(keyword.value, ast.Constant)
        and not str(keyword.value.value or "").strip()
    ]


def test_no_error_in_the_source_has_an_empty_fix() -> None:
    found = {str(path): empty_fixes(ast.parse(path.read_text())) for path in SOURCE.rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}
    assert empty_fixes(ast.parse('raise BadData("x",\n fix=" ")')) == [2]


@pytest.mark.parametrize(
    ("line", "field", "start"),
    [
        (None, None, "f.json: bad"),
        (3, None, "f.json:3: bad"),
        (None, "a.b", "f.json: a.b: bad"),
        (3, "a", "f.json:3: a: bad"),
    ],
)
def test_bad_data_names_file_line_and_field_in_the_same_place(line: int | None, field: str | None, start: str) -> None:
    error = BadData.at("f.json", "bad", fix="mend it", line=line, field=field)
    assert error.message == str(error) == start
    assert error.facts == {"file": "f.json", "line": line, "field": field, "problem": "bad"}


def fail_in_a_worker(number: int) -> None:
    raise BadData.at("f.json", "bad", fix="mend it", line=number)


@pytest.mark.parametrize("cls", classes())
def test_an_error_survives_pickling_whole(cls: type[CrucibleError]) -> None:
    back = pickle.loads(pickle.dumps(cls("message", fix="fix", facts={"a": 1})))
    assert (type(back), back.message, str(back), back.fix, back.facts) == (cls, "message", "message", "fix", {"a": 1})


def test_an_error_of_a_worker_process_arrives_as_itself() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(BadData, match=r"f\.json:7: bad") as caught:
        pool.submit(fail_in_a_worker, 7).result()
    assert caught.value.fix == "mend it" and caught.value.facts["line"] == 7
