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

from crucible.kernel import stats

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "demo"
CRUCIBLE = [sys.executable, "-m", "crucible"]
SAMPLE = "src/crucible/contrast/sample/bundles.jsonl"


def main() -> int:
    os.chdir(ROOT)
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    rows = [*contrastive_walk(), *improvement_loop(), *agent_walk()]
    chapter("What came out")
    width = max(len(row[0]) for row in rows)
    for what, value, where in rows:
        print(f"  {what:<{width}}  {value:<44}  {where}")
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


def improvement_loop() -> list[tuple[str, str, str]]:
    chapter("Crucible: train it, and see what it kept and what it learnt")
    run("init demo/project --sample-data", show=False)
    run("config exposure demo/project/crucible.yaml --training.steps 500")
    trained = run_json(
        "train --config demo/project/crucible.yaml --training.steps 500 --output-dir demo/project/runs/first"
    )
    numbers = trained["metrics"]
    for name in ("frozen_tier3", "organic_holdout"):
        print(f"  {name.replace('_', ' ')}: {numbers[f'base_{name}']:.1%} before, {numbers[name]:.1%} after training")
    run("report --type summary --results-dir demo/project/runs/first --output demo/summary.html")
    run("capsule pack demo/project/runs/first -o demo/first.tar.gz", show=False)
    run("capsule verify demo/first.tar.gz")
    return [
        (
            "frozen tier 3, trained",
            f"{numbers['base_frozen_tier3']:.1%} -> {numbers['frozen_tier3']:.1%}",
            "demo/summary.html",
        ),
        (
            "organic holdout",
            f"{numbers['base_organic_holdout']:.1%} -> {numbers['organic_holdout']:.1%}",
            "demo/first.tar.gz",
        ),
    ]


def bundle_walk(exam: Path) -> list[tuple[str, str, str]]:
    """The starter by hand: trained, packed, judged in the jail, without an agent and a clock."""
    brief = "src/crucible/ari/brief"
    train = f"{brief}/starter/train.py --text {brief}/text.txt --out demo/model --size unit --seed 1"
    print(f"\n$ python {train}", flush=True)
    subprocess.run([sys.executable, *shlex.split(train)], check=True, stdout=subprocess.DEVNULL)
    run("ari pack demo/model -o demo/model.tar.gz")
    graded = run_json(f"ari grade-bundle demo/model.tar.gz --exam {exam}")
    low, high = stats.wilson(graded["passed"], graded["questions"])
    shown = f"{graded['score']:.0f}% ({low:.1%} to {high:.1%}), {graded['bpb']:.2f} bits a byte"
    print(f"  {graded['passed']} of {graded['questions']} exactly right: {shown}")
    return [("unit starter, graded", shown, "demo/model.tar.gz")]


def agent_walk() -> list[tuple[str, str, str]]:
    chapter("ARI Bench: an agent, a budget, a hidden exam")
    secret = DEMO / "exam.seed"
    secret.touch(mode=0o600)
    secret.write_bytes(secrets.token_bytes(32))
    # The hidden exam never lies in a git work tree, not even an ignored one.
    exam = Path(tempfile.mkdtemp(prefix="crucible-demo-")) / "exam.jsonl"
    run(f"ari exam build --seed-file demo/exam.seed --out {exam}")
    rows = bundle_walk(exam)
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
