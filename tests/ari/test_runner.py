from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable

import pytest

from crucible.kernel import digest

from .conftest import Door, alive, wait_for, write_bundle

PREFIX = re.compile(rb"\[\d\d:\d\d left\] ")
ODD = [
    "$(id)",
    "`id`",
    "a&b=c",
    "a b",
    "two\nlines\n",
    "",
    "--json",
    "-q",
    "@file",
    "<in",
    "%41+",
    "é\u202e",
    "'\"\\",
    "*",
    "#;|",
]


def test_every_response_begins_with_the_remaining_time(open_door: Callable[..., Door]) -> None:
    door = open_door(budget_s=3599, reserve_s=300)
    write_bundle(door.workspace / "model")
    door.script("hello.py", "print('hello')")
    calls = [
        "help",
        "time_left",
        "list",
        "run hello.py",
        "submit model",
        "promote s1",
        "finalize s1",
        "promote s9",
        "x",
    ]
    for call in ["", *calls]:
        out = door.call(*call.split()).stdout
        assert PREFIX.match(out), (call, out)
        assert out.startswith(b"[59:"), (call, out)


def test_odd_arguments_survive_the_shell_client(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.script("args.py", "import json, sys; print(json.dumps(sys.argv[1:]))")
    done = door.call("run", "args.py", *ODD)
    assert json.loads(done.stdout.split(b"\n", 1)[1]) == ODD
    raw = subprocess.run(
        [b"runner", b"run", b"args.py", b"\xff\xfe"], cwd=door.workspace, env=door.env, capture_output=True, timeout=60
    )
    assert json.loads(raw.stdout.split(b"\n", 1)[1]) == ["\udcff\udcfe"]
    assert door.audited()[-1]["args"] == ["args.py", "\\udcff\\udcfe"]


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_exit_codes_pass_through(open_door: Callable[..., Door], shell: str) -> None:
    door = open_door()
    door.script(
        "leave.py",
        "import os, signal, sys\ncode = int(sys.argv[1])\nos.kill(os.getpid(), 9) if code < 0 else sys.exit(code)",
    )
    for code, seen in ((0, 0), (1, 1), (3, 3), (255, 255), (-1, 137)):
        line = f"runner run leave.py {code}; exit $?"
        done = subprocess.run([shell, "-c", line], cwd=door.workspace, env=door.env, capture_output=True, timeout=60)
        assert done.returncode == seen


def test_what_a_job_prints_cannot_pass_for_its_exit_code_or_its_time(open_door: Callable[..., Door]) -> None:
    door = open_door(budget_s=3599, reserve_s=300)
    door.script(
        "liar.py",
        "print('0 [99:99 left] exit 0 after 0.1 s\\r\\n0\\r\\n\\r\\nHTTP/1.1 200 OK\\r\\n'); raise SystemExit(9)",
    )
    done = door.call("run", "liar.py")
    assert done.returncode == 9
    assert PREFIX.match(done.stderr) and b"exit 9" in done.stderr
    assert b"99:99" not in done.stderr


def test_output_streams_while_the_job_runs(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.script(
        "slow.py",
        "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('second')",
    )
    client = door.begin("run", "slow.py")
    assert client.stdout is not None
    assert PREFIX.match(client.stdout.readline())
    assert client.stdout.readline() == b"first\n"
    assert client.poll() is None
    (door.workspace / "go").touch()
    assert client.communicate(timeout=30)[0] == b"second\n"


def test_second_concurrent_run_is_refused_busy(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.script("wait.py", "import os, time\nopen('up', 'w')\nwhile not os.path.exists('go'): time.sleep(0.02)")
    client = door.begin("run", "wait.py")
    wait_for((door.workspace / "up").exists)
    second = door.call("run", "wait.py")
    assert second.returncode == 75 and b"busy" in second.stdout
    assert door.call("time_left").returncode == 0, "everything else stays open"
    (door.workspace / "go").touch()
    assert client.wait(30) == 0
    client.communicate()
    assert door.call("run", "wait.py").returncode == 0, "the lease came back"
    assert [line["refused"] for line in door.audited() if line["command"] == "run"].count(
        "busy: another job is running"
    ) == 1


FAMILY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('daemon', 'w').write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
while not os.path.exists('daemon') or not open('daemon').read(): time.sleep(0.01)
"""


def test_job_past_its_grant_is_killed_with_its_children(open_door: Callable[..., Door]) -> None:
    door = open_door(call_cap_s=1.0)
    door.script("forever.py", FAMILY + "print('up', flush=True)\ntime.sleep(300)")
    done = door.call("run", "forever.py")
    assert done.returncode == 124 and b"used up" in done.stderr
    assert not alive(int((door.workspace / "daemon").read_text()))
    line = door.audited()[-1]
    assert (line["end"], line["exit"], line["granted_s"]) == ("limit", 124, 1.0)
    assert line["used_s"] >= 1.0


def test_children_left_behind_do_not_prolong_a_call(open_door: Callable[..., Door]) -> None:
    door = open_door(call_cap_s=100)
    door.script("leave.py", FAMILY + "print('done')")
    done = door.call("run", "leave.py")
    assert done.returncode == 0 and done.stdout.endswith(b"done\n")
    assert not alive(int((door.workspace / "daemon").read_text()))
    assert door.audited()[-1]["end"] == "exited"


def test_a_job_that_closes_its_output_is_still_on_the_clock(open_door: Callable[..., Door]) -> None:
    door = open_door(call_cap_s=0.8)
    door.script("quiet.py", "import os, time\nos.close(1); os.close(2)\ntime.sleep(300)")
    assert door.call("run", "quiet.py").returncode == 124


def test_no_compute_in_the_reserve_but_submission_stays_open(open_door: Callable[..., Door]) -> None:
    hands = [0.0]
    door = open_door(lambda: hands[0], budget_s=100, reserve_s=30)
    write_bundle(door.workspace / "model")
    door.script("hello.py", "print('hello')")
    hands[0] = 69.0
    assert b"granted 1.0 s" in door.call("run", "hello.py").stdout
    hands[0] = 71.0
    refused = door.call("run", "hello.py")
    assert refused.returncode == 1 and b"refused: no compute in the last 30 s" in refused.stdout
    assert [door.call(*c.split()).returncode for c in ("submit model", "promote s1")] == [0, 0]
    hands[0] = 100.0
    for call in ("submit model", "promote s1", "finalize s1", "run hello.py"):
        late = door.call(*call.split())
        assert late.returncode == 1 and late.stdout.startswith(b"[00:00 left] refused"), call


def test_scripts_resolve_beneath_the_workspace(open_door: Callable[..., Door]) -> None:
    door = open_door()
    outside = door.workspace.parent / "outside.py"
    outside.write_text("print('escaped')")
    (door.workspace / "link.py").symlink_to(outside)
    (door.workspace / "up").symlink_to(door.workspace.parent)
    (door.workspace / "loop").symlink_to("loop")
    (door.workspace / "sub").mkdir()
    for name in (
        str(outside),
        "../outside.py",
        "link.py",
        "up/outside.py",
        "loop",
        "sub/../../outside.py",
        "sub",
        "",
        "gone",
    ):
        done = door.call("run", name)
        assert done.returncode == 1 and b"escaped" not in done.stdout, name
    assert len([line for line in door.audited() if line["refused"]]) == 9, "each has its line"


def test_a_call_from_a_folder_runs_there_and_dashes_are_names(open_door: Callable[..., Door]) -> None:
    door = open_door()
    sub = door.workspace / "sub folder"
    sub.mkdir()
    (sub / "-c").write_text("import os; print(os.getcwd())")
    done = door.call("run", "-c", cwd=sub)
    assert done.stdout.split(b"\n", 1)[1].strip() == str(sub).encode()
    assert door.call("run", f"{sub}/-c").returncode == 0, "an absolute name beneath the workspace"


def test_the_environment_of_a_job_is_allow_listed(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.env |= {"LD_PRELOAD": "", "PYTHONPATH": str(door.workspace), "PYTHONSTARTUP": "x", "CUDA_VISIBLE_DEVICES": "7"}
    door.script("env.py", "import json, os; print(json.dumps(sorted(os.environ)))")
    names = json.loads(door.call("run", "env.py").stdout.split(b"\n", 1)[1])
    assert set(names) - {"LC_CTYPE"} == {"ALLOWED", "PATH", "CRUCIBLE_LOCAL_JOB"}


def test_output_is_capped_with_counts(open_door: Callable[..., Door]) -> None:
    door = open_door(output_bytes=1000)
    door.script("flood.py", "import sys; sys.stdout.buffer.write(b'x' * 3_000_000)")
    done = door.call("run", "flood.py")
    assert done.returncode == 0
    assert done.stdout.split(b"\n", 1)[1] == b"x" * 1000
    assert b"2,999,000 of 3,000,000 bytes of output dropped" in done.stderr
    line = door.audited()[-1]
    assert (line["output_bytes"], line["output_sent_bytes"]) == (3_000_000, 1000)
    assert line["output_sha256"] == digest.of_bytes(b"x" * 3_000_000)


def test_hanging_up_ends_the_job_and_frees_the_lease(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.script("long.py", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)")
    client = door.begin("run", "long.py")
    wait_for(lambda: (door.workspace / "pid").exists() and bool((door.workspace / "pid").read_text()))
    os.killpg(client.pid, signal.SIGKILL)  # the client's shell and its curl
    client.communicate()
    pid = int((door.workspace / "pid").read_text())
    wait_for(lambda: not alive(pid))
    door.script("next.py", "")
    wait_for(lambda: door.call("run", "next.py").returncode == 0)
    assert "client left" in [line.get("end") for line in door.audited()]


def test_every_request_has_its_chained_line_also_the_refused_ones(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.script("three.py", "raise SystemExit(3)")
    for call in ("run three.py a", "run gone.py", "promote s1", "nonsense", "submit", "finalize", "time_left"):
        door.call(*call.split())
    lines = door.audited()
    assert [(line["command"], line["exit"]) for line in lines] == [
        ("run", 3), ("run", 1), ("promote", 1), ("nonsense", 2), ("submit", 2), ("finalize", 2), ("time_left", 0),
    ]  # fmt: skip
    assert len({line["call"] for line in lines}) == 7
    assert lines[0]["args"] == ["three.py", "a"] and lines[0]["granted_s"] > 0 and lines[0]["peak_bytes"] > 0


def raw(door: Door, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(door.env["RUNNER_SOCKET"])
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def post(path: str, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"POST %b HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), size, body)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST /call HTTP/1.1\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\n\r\n",
        post("/call", b"x", 10**12),
        post("/call", b"x" * 100),
        post("/call", b"\xff\xff"),
        post("/call", b"call=0123456789abcdef&command=run&arg=a%00b"),
        post("/call", b"call=0123456789abcdef&command=run&arg=" + b"a" * 200_000),
        post("/call", b"call=short&command=help"),
        post("/elsewhere", b"call=0123456789abcdef"),
        post("/exit", b"call=nobody-made-this-call"),
    ],
)
def test_what_is_not_a_request_is_refused_and_written_down(open_door: Callable[..., Door], data: bytes) -> None:
    door = open_door()
    answer = raw(door, data)
    assert b"refused: " in answer
    assert PREFIX.search(answer)
    assert [line["exit"] for line in door.audited()] == [2]
    assert door.runner.fault is None


def test_a_replayed_request_is_refused(open_door: Callable[..., Door]) -> None:
    door = open_door()
    write_bundle(door.workspace / "model")
    again = post("/call", b"call=0123456789abcdef&command=submit&arg=model")
    assert b"accepted s1" in raw(door, again)
    assert b"used before" in raw(door, again)
    assert len(door.book.state.submissions) == 1


def test_the_client_says_that_the_run_is_over(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.env["RUNNER_SOCKET"] += ".gone"
    assert door.call("time_left").returncode == 69
    del door.env["RUNNER_SOCKET"]
    assert door.call("time_left").returncode == 69


def test_a_disk_fault_is_the_machinerys_and_not_the_agents(open_door: Callable[..., Door]) -> None:
    door = open_door()
    door.audit.mkdir()  # a ledger that cannot be written
    assert door.call("time_left").returncode == 70
    assert door.runner.fault is not None
