"""However a command ends, it ends with the right code, one sentence and a fix, and never with a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible import errors
from crucible.kernel import ledger

EXPOSURE = ["exposure", "--steps", "10000", "--batch-size", "32", "--tier3-probability", "0.10"]
EXPOSURE += ["--legacy-ratio", "0.75", "--legacy-pool", "454"]
EVIL = "evil\x1b[31m\x1b]0;owned\x07\u202eexe\x9b5m.json"

# A command that is in no table, planted in a real process: the door it leaves by is the one of every command.
PLANTED = """
import os, sys, time, types
from pathlib import Path
import typer
from crucible import documents, errors
from crucible.cli import main, output
from crucible.cli.output import AsJson
app = typer.Typer()
@app.command()
def planted(as_json: AsJson = False) -> None:
{body}
sys.modules["planted"] = types.SimpleNamespace(app=app)
main.COMMANDS["planted"] = ("planted", "Does what a test wants.")
main.main(["planted", *sys.argv[1:]])
"""


def planted(body: str, *args: object, **options: Any) -> subprocess.Popen[bytes]:
    program = PLANTED.format(body="\n".join("    " + line for line in body.splitlines()))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
    return subprocess.Popen([sys.executable, "-c", program, *map(str, args)], **streams)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def one_document(text: str) -> dict[str, Any]:
    """The text is exactly one JSON object: nothing before it, nothing behind it."""
    document = json.loads(text)
    assert isinstance(document, dict)
    return document


def check_failure(code: int, out: str, err: str, expected: int) -> None:
    assert code == expected, err
    assert "Traceback" not in err and "Exception ignored" not in err
    assert err.startswith("crucible: ") and "\n  fix: " in err
    assert out == ""


# --- usage -------------------------------------------------------------------------------------------------------------

MISUSES = [
    ["nonsense"],
    ["--nonsense"],
    [*EXPOSURE, "--nonsense"],
    [*EXPOSURE[:-1], "many"],
    EXPOSURE[:-2],
    ["ledger", "nonsense"],
    ["ledger", "verify"],
    ["compare", "one.json"],
]


@pytest.mark.parametrize("args", MISUSES, ids=" ".join)
def test_a_usage_error_exits_2_with_a_sentence_and_a_fix(crucible: Callable[..., Any], args: list[str]) -> None:
    check_failure(*crucible(*args), expected=2)


@pytest.mark.parametrize("args", MISUSES, ids=" ".join)
def test_a_usage_error_with_json_is_one_document(crucible: Callable[..., Any], args: list[str]) -> None:
    code, out, err = crucible(*args, "--json")
    error = one_document(out)["error"]
    assert code == error["exit_code"] == 2
    assert error["message"] and error["fix"] and error["kind"]
    check_failure(code, "", err, 2)


@pytest.mark.parametrize("args", [[], ["ledger"]], ids=["crucible", "crucible ledger"])
def test_a_noun_without_its_command_exits_2_and_names_the_commands(
    crucible: Callable[..., Any], args: list[str]
) -> None:
    code, out, err = crucible(*args)
    assert code == 2
    assert ("verify" if args else "ledger") in out + err
    assert len(err.splitlines()[0]) > len("crucible: "), "a sentence is missing"


def test_help_and_version_are_results_not_errors(crucible: Callable[..., Any]) -> None:
    for args in (["--help"], ["-h"], ["--version"], ["exposure", "--help"], ["ledger", "verify", "--help"]):
        code, out, err = crucible(*args)
        assert (code, err) == (0, "") and out.strip()


def test_json_of_a_success_is_one_document(crucible: Callable[..., Any]) -> None:
    code, out, _ = crucible(*EXPOSURE, "--json")
    document = one_document(out)
    assert code == 0 and document["status"] == "healthy"
    assert document["expected"] == pytest.approx(52.863436)


# --- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in dir(errors) if isinstance(getattr(errors, name), type)])
def test_every_error_of_the_ladder_leaves_with_its_code_its_fix_and_its_facts(name: str) -> None:
    cls = getattr(errors, name)
    if not issubclass(cls, errors.CrucibleError):
        return
    body = f'raise errors.{name}("what happened", fix="what to do", facts={{"line": 7}})'
    code, out, err = ended(planted(body, "--json"))
    assert one_document(out)["error"] == {
        "kind": name,
        "message": "what happened",
        "fix": "what to do",
        "exit_code": cls.exit_code,
        "line": 7,
    }
    check_failure(code, "", err, cls.exit_code)
    assert err == "crucible: what happened\n  fix: what to do\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["ledger", "verify", "missing"], 3),
        (["ledger", "verify", "."], 3),
        (["ledger", "verify", "broken"], 6),
        (["compare", "missing.json", "missing.json"], 3),
        (["compare", "junk", "junk"], 3),
        (["compare", ".", "."], 3),
        (["evalset", "show", "missing"], 3),
        (["evalset", "show", "junk"], 3),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_bad_input_of_real_commands_is_refused_by_name(
    crucible: Callable[..., Any], tmp_path: Path, args: list[str], expected: int
) -> None:
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    ledger.append(tmp_path / "broken", "k", 1)
    with (tmp_path / "broken").open("ab") as stream:
        stream.write(b"scribble\n")
    code, out, err = crucible(*args, cwd=tmp_path)
    check_failure(code, out, err, expected)
    assert args[-1] in err
    code, out, _ = crucible(*args, "--json", cwd=tmp_path)
    assert code == one_document(out)["error"]["exit_code"] == expected
    assert expected != 6 or one_document(out)["error"]["line"] == 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('raise RuntimeError("oh no")', "a bug in crucible: RuntimeError: oh no"),
        ("assert False", "a bug in crucible: AssertionError"),
        ("[][1]", "a bug in crucible: IndexError"),
        ("raise MemoryError", "out of memory"),
        ('Path("missing").read_bytes()', "missing: No such file or directory"),
        ("def f(): f()\nf()", "a bug in crucible: RecursionError"),
    ],
)
def test_even_a_bug_shows_no_traceback(body: str, says: str) -> None:
    code, out, err = ended(planted(body))
    check_failure(code, out, err, 1)
    assert says in err
    code, out, _ = ended(planted(body, "--json"))
    assert says in one_document(out)["error"]["message"]


def test_a_bug_shows_its_traceback_when_asked_to() -> None:
    _, _, err = ended(planted('raise RuntimeError("oh no")', env=os.environ | {"CRUCIBLE_DEBUG": "1"}))
    assert "Traceback" in err and "a bug in crucible" in err


def test_an_error_does_not_flood_the_terminal(crucible: Callable[..., Any]) -> None:
    _, _, err = crucible("x" * 100_000)
    assert len(err) < 10_000


# --- streams that go away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["--help"], [*EXPOSURE, "--json"], EXPOSURE], ids=" ".join)
def test_a_reader_that_went_away_ends_the_command_in_silence(args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([sys.executable, "-m", "crucible", *args], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    code, _, err = ended(process)
    assert (code, err) == (141, "")


def test_a_reader_that_goes_away_in_the_middle_ends_the_command_in_silence() -> None:
    process = planted("for n in range(1_000_000): output.out(str(n))")
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr is not None and process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    "args",
    [["--help"], EXPOSURE, [*EXPOSURE, "--json"], ["nonsense", "--json"], ["ledger", "verify", "missing", "--json"]],
    ids=" ".join,
)
def test_a_full_disk_behind_stdout_is_an_error_and_no_traceback(args: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen([sys.executable, "-m", "crucible", *args], stdout=full, stderr=subprocess.PIPE)
        code, _, err = ended(process)
    assert code in (1, 2, 3), err
    assert "Traceback" not in err and "Exception ignored" not in err
    assert err.startswith("crucible: ")


# --- signals -----------------------------------------------------------------------------------------------------------

AT_WORK = """
with documents.writing(Path(os.environ["TARGET"])) as stream:
    stream.write(b"half")
    os.write(2, b"ready\\n")
    time.sleep(60)
"""


def stopped(target: Path, number: signal.Signals, *args: str) -> tuple[int, str, str]:
    """Sends a signal to the whole process group of a command that is in the middle of writing a file, as a terminal does."""
    target.write_bytes(b"old")
    process = planted(AT_WORK, *args, env=os.environ | {"TARGET": str(target)}, start_new_session=True)
    assert process.stderr is not None and process.stderr.readline() == b"ready\n"
    os.killpg(process.pid, number)
    code, out, err = ended(process)
    assert target.read_bytes() == b"old"
    assert [path.name for path in target.parent.iterdir()] == [target.name], "a draft was left behind"
    return code, out, err


def test_ctrl_c_exits_130_with_one_sentence_and_nothing_half_written(tmp_path: Path) -> None:
    code, out, err = stopped(tmp_path / "target", signal.SIGINT)
    check_failure(code, out, err, 130)
    assert err.splitlines()[0] == "crucible: interrupted; no file was left half-written"
    assert len(err.splitlines()) == 2


def test_ctrl_c_with_json_is_one_document(tmp_path: Path) -> None:
    code, out, _ = stopped(tmp_path / "target", signal.SIGINT, "--json")
    assert code == one_document(out)["error"]["exit_code"] == 130


def test_sigterm_unwinds_and_exits_143(tmp_path: Path) -> None:
    code, out, err = stopped(tmp_path / "target", signal.SIGTERM)
    assert (code, out) == (143, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_real_command_that_waits_for_its_input_can_be_stopped(
    tmp_path: Path, number: signal.Signals, expected: int
) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "crucible", "compare", pipe, pipe],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while True:  # the pipe can be opened for writing as soon as the command waits at its other end
        try:
            handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            assert process.poll() is None
            time.sleep(0.01)
    os.killpg(process.pid, number)
    code, out, err = ended(process)
    os.close(handle)
    assert (code, out) == (expected, "")
    assert "Traceback" not in err


# --- text from outside -------------------------------------------------------------------------------------------------


def test_terminal_escapes_in_a_file_name_are_shown_and_not_obeyed(crucible: Callable[..., Any], tmp_path: Path) -> None:
    for there in (False, True):
        if there:
            (tmp_path / EVIL).write_text("not json")
        code, out, err = crucible("compare", EVIL, EVIL, "--json", cwd=tmp_path)
        assert code == 3
        assert one_document(out)["error"]["file"] == EVIL  # a program gets the true name ...
        for character in "\x1b\x07\u202e\x9b":
            assert character not in err  # ... a terminal a harmless one
        assert "\x1b" not in out and "\x07" not in out
        assert "\\x1b[31m" in err


def test_terminal_escapes_in_a_table_are_shown_and_not_obeyed() -> None:
    body = f"output.table({EVIL!r}, [{EVIL!r}], [[{EVIL!r}]])\noutput.out({EVIL!r})\noutput.say({EVIL!r})"
    code, out, err = ended(planted(body))
    assert code == 0
    for character in "\x1b\x07\u202e\x9b":
        assert character not in out + err


def test_markup_in_a_name_is_text() -> None:
    _, out, err = ended(planted('output.table("t", ["a"], [["[bold]x[/bold] :smile:"]])\noutput.say("[red]y[/red]")'))
    assert "[bold]x[/bold] :smile:" in out and "[red]y[/red]" in err


def test_a_file_name_that_is_not_utf8_is_reported_like_any_other(crucible: Callable[..., Any]) -> None:
    name = os.fsdecode(b"caf\xe9.json")
    code, out, err = crucible("compare", name, name, "--json")
    assert code == one_document(out)["error"]["exit_code"] == 3
    check_failure(code, "", err, 3)


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_no_locale_breaks_the_output(crucible: Callable[..., Any], locale: str) -> None:
    code, out, err = crucible("compare", "é–±.json", "x", "--json", env={"LC_ALL": locale, "PYTHONIOENCODING": ""})
    assert code == one_document(out)["error"]["exit_code"] == 3
    check_failure(code, "", err, 3)
    assert crucible(*EXPOSURE, env={"PYTHONIOENCODING": "ascii"}).code == 0
