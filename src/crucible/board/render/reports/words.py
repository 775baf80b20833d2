"""Summaries, findings and counts -> the words that several reports use for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from crucible.board.render.outline import Section, Table, said
from crucible.board.render.page import between, count, share, visible
from crucible.kernel.stats import Summary

NAMES = {
    "tier1_easy": "tier 1, easy",
    "tier2_robust": "tier 2, robust",
    "tier3_adversarial": "tier 3, adversarial",
}


class Finding(msgspec.Struct, frozen=True):
    """One guardrail that tripped; `where` names the condition and seed in a sweep."""

    guardrail: str
    level: Literal["warning", "critical", "severe", "error"]
    when: str
    message: str
    step: int | None = None
    overridden: bool = False
    where: str = ""


class Fact(msgspec.Struct, frozen=True):
    """A line of the footer; `exact` for digests and paths."""

    word: str
    text: str
    exact: bool = False


def facts(found: Sequence[Fact]) -> list[tuple[str, str, bool]]:
    return [(fact.word, fact.text, fact.exact) for fact in found]


def many(number: int, one: str, more: str | None = None) -> str:
    return f"{count(number)} {one if number == 1 else more or one + 's'}"


def spread(value: Summary | None) -> str:
    """± one standard error in percentage points; a dash for one seed, which has no spread."""
    return "–" if value is None or value.se is None else f"± {value.se * 100:.1f}"


def with_error(value: Summary) -> str:
    """`45.6% ± 1.1`; one seed has no error to show."""
    return share(value.mean) if value.se is None else f"{share(value.mean)} {spread(value)}"


def mean(value: Summary | None) -> str:
    return share(value.mean if value else None)


def t_interval(value: Summary | None) -> str:
    """Clipped to what a share can be: with three seeds Student's t reaches beyond it."""
    if value is None or value.ci95_t is None:
        return "–"
    return between((max(0.0, value.ci95_t[0]), min(1.0, value.ci95_t[1])))


def findings_section(found: Sequence[Finding], overrides: Sequence[str], *, title: str = "Guardrails") -> Section:
    from_where = any(one.where for one in found)
    if not found:
        return Section(title, said=[said("No guardrail tripped.")])
    columns = ["guardrail", "level", "what it found", "when"]
    rows = [
        [one.guardrail, one.level + (", overridden" if one.overridden else ""), one.message, _when(one)]
        for one in found
    ]
    if from_where:
        columns.append("where")
        rows = [[*row, one.where] for row, one in zip(rows, found, strict=True)]
    told = []
    if overrides:
        told.append(said(f"Overridden on the command line and on record: {', '.join(map(visible, overrides))}."))
    table = Table("Every finding, in the order in which it was made", columns, rows, left=len(columns))
    return Section(title, said=told, tables=[table])


def tripped(found: Sequence[Finding]) -> str:
    """`2 warnings and 1 critical`; the worst last."""
    plural = {"warning": "warnings", "error": "errors"}
    levels = [(level, sum(one.level == level for one in found)) for level in ("warning", "critical", "severe", "error")]
    words = [f"{number} {plural.get(level, level) if number > 1 else level}" for level, number in levels if number]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _when(one: Finding) -> str:
    return f"{one.when} training" + (f", step {count(one.step)}" if one.step is not None else "")
