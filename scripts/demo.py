"""The one story a newcomer sees: both walks end to end with the real command, then what came out and where it lies.

Everything goes to demo/ (ignored by git), which is made anew each time.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "demo"
CRUCIBLE = [sys.executable, "-m", "crucible"]
SAMPLE = "src/crucible/contrast/sample/bundles.jsonl"


def main() -> int:
    os.chdir(ROOT)
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    rows = [*contrastive_walk(), *agent_walk()]
    chapter("What came out")
    width = max(len(row[0]) for row in rows)
    for what, value, where in rows:
        print(f"  {what:<{width}}  {value:<32}  {where}")
    return 0


def contrastive_walk() -> list[tuple[str, str, str]]:
    chapter("Crucible: is the new model better, and can I believe it?")
    run(f"bundles check {SAMPLE}")
    run(f"evalset freeze {SAMPLE} --name wordnet-sample --version v1 --encoder minilm --seed 42 --out demo/evalset")
    for model in ("hashing", "minilm"):
        files = f"--output demo/{model}.json --html demo/{model}.html --ledger demo/ledger.jsonl"
        run(f"eval --model {model} --eval-set demo/evalset {files}")
    run("compare demo/hashing.json demo/minilm.json --flips 5")
    run("exposure --steps 10000 --batch-size 32 --tier3-probability 0.10 --legacy-ratio 0.75 --legacy-pool 454")
    run("ledger verify demo/ledger.jsonl")
    rows = []
    for model in ("hashing", "minilm"):
        overall = json.loads((DEMO / f"{model}.json").read_text())["overall"]
        rows.append(
            (f"pass rate of {model}", f"{overall['pass_rate']:.1%} of {overall['n']} bundles", f"demo/{model}.html")
        )
    return rows


def agent_walk() -> list[tuple[str, str, str]]:
    chapter("ARI Bench: an agent, a budget, a hidden exam")
    secret = DEMO / "exam.seed"
    secret.touch(mode=0o600)
    secret.write_bytes(secrets.token_bytes(32))
    # The hidden exam never lies in a git work tree, not even an ignored one.
    exam = Path(tempfile.mkdtemp(prefix="crucible-demo-")) / "exam.jsonl"
    run(f"ari exam build --seed-file demo/exam.seed --out {exam}")
    rows = []
    for agent in ("starter", "overfitter"):
        finished = run_json(f"ari run --track mini --agent {agent} --seed 1 --root demo/runs")
        folder = os.path.relpath(finished["path"], ROOT)
        graded = run_json(f"ari grade {shlex.quote(folder)} --exam {exam}")
        shown = f"{graded['score']:.0f}% hidden, {graded['public_score']:.0f}% public"
        print(
            f"  {agent}: {graded['passed']} of {graded['questions']} hidden questions, public score {graded['public_score']:.0f}%"
        )
        rows.append((f"score of {agent}", shown, folder))
    shutil.rmtree(exam.parent)
    run("board show --root demo/runs")
    run("ledger verify demo/runs/ledger.jsonl")
    return rows


def run(command: str, *, show: bool = True) -> str:
    """Shows and runs one command; its output is the demo's output."""
    print(f"\n$ crucible {command}", flush=True)
    done = subprocess.run([*CRUCIBLE, *shlex.split(command)], check=False, stdout=subprocess.PIPE, text=True)
    if show or done.returncode:
        print("\n".join("  " + line for line in done.stdout.splitlines()), flush=True)
    if done.returncode:
        sys.exit(f"demo: that command failed with exit code {done.returncode}")
    return done.stdout


def run_json(command: str) -> dict[str, Any]:
    """The same for a command whose document is for us, not for the reader."""
    document: dict[str, Any] = json.loads(run(f"{command} --json", show=False))
    return document


def chapter(title: str) -> None:
    print(f"\n{title}\n{'=' * len(title)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
