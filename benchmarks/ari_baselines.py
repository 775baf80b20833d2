"""What the no-learning baselines score on 1,000 exam questions -> the first section of docs/results/calibration.md.

    .venv/bin/python benchmarks/ari_baselines.py            # prints the section
    .venv/bin/python benchmarks/ari_baselines.py --write    # and puts it into the file; the rest of the file is left alone

The seed is published: no hidden exam is built from it. A second number is how long 10,000 questions take to draw.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from crucible.ari.exam.build import generate
from crucible.ari.exam.calibrate import Calibration, Rate, calibrate
from crucible.ari.exam.families import FAMILIES

SEED, QUESTIONS, DRAWN = b"calibration of the baselines 1", 1000, 10_000
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "calibration.md"
BEGIN, END = "<!-- baselines: written by benchmarks/ari_baselines.py -->", "<!-- baselines: end -->"
HEAD = "# Calibration of the exam\n\nAn exam is worth what it tells apart: nothing learned, little learned, much learned.\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put the section into {PAGE.name}")
    options = parser.parse_args()
    questions = generate(SEED, QUESTIONS, "hidden")
    text = section(calibrate(questions), sum(len(q.prompt) for q in questions) / len(questions))
    began = time.perf_counter()
    generate(SEED, DRAWN, "hidden")
    seconds = time.perf_counter() - began
    print(text)
    print(f"{DRAWN:,} questions drawn in {seconds:.1f} s")
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        before = PAGE.read_text() if PAGE.exists() else f"{HEAD}{BEGIN}\n{END}\n"
        pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
        if not re.search(pattern, before, re.DOTALL):
            before = f"{before.rstrip()}\n\n{BEGIN}\n{END}\n"
        made = f"{BEGIN}\n{text}\n{END}"
        PAGE.write_text(re.sub(pattern, lambda _: made, before, count=1, flags=re.DOTALL))


def section(found: Calibration, mean: float) -> str:
    names = list(found.baselines)
    lines = [
        "## No-learning baselines",
        "",
        f"{found.questions:,} questions of {found.families} families, seed `{SEED.decode()}`, prompts of {mean:.0f} bytes on",
        f"average. Percent exactly right; 95% Wilson intervals. The limit is {found.limit:.0%} overall for each.",
        "",
        "| baseline | right | percent | 95% interval |",
        "|---|---|---|---|",
    ]
    for name, one in found.baselines.items():
        rate = one.overall
        lines.append(f"| {name} | {rate.passed} of {rate.questions} | {percent(rate)} | {interval(rate)} |")
    lines += ["", f"| family | category | n | {' | '.join(names)} |", f"|---|---|---{'|---' * len(names)}|"]
    for family in FAMILIES.values():
        rates = [found.baselines[name].by_family[family.name] for name in names]
        shown = " | ".join(f"{percent(rate)} ({interval(rate)})" if rate.passed else "0" for rate in rates)
        lines.append(f"| {family.name} | {family.category} | {rates[0].questions} | {shown} |")
    none = next(iter(found.baselines.values())).by_family[next(iter(FAMILIES))].questions
    lines += ["", f"A plain 0 of {none} questions has the interval 0 to {100 * upper(none):.1f}."]
    return "\n".join(lines)


def upper(n: int) -> float:
    z = 1.959963984540054
    return z * z / (n + z * z)


def percent(rate: Rate) -> str:
    return f"{100 * rate.rate:.1f}"


def interval(rate: Rate) -> str:
    return f"{100 * rate.ci95[0]:.1f} to {100 * rate.ci95[1]:.1f}"


if __name__ == "__main__":
    main()
