"""Two results -> may they be compared, and which is ahead: refusal by pin, verdict by a named rule. Ranks no tables.

The three rules are the three the references use. None is the truth: the rule's name and its numbers travel with the verdict,
and Welch's p stands beside every one of them.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from crucible.errors import NotComparable
from crucible.kernel import stats
from crucible.kernel.pin import Pin

Rule = Literal["se_overlap", "t_overlap", "two_percent"]
RULES: tuple[Rule, ...] = ("se_overlap", "t_overlap", "two_percent")
Decision = Literal["ahead", "behind", "tie", "refused"]


class Verdict(msgspec.Struct, frozen=True):
    """What was decided about a against b, by which rule, from which numbers, in one sentence."""

    decision: Decision
    rule: str
    numbers: dict[str, float | None]
    sentence: str


def require_same(left: Pin, right: Pin) -> None:
    """Returns only if the two pins hold the same facts; otherwise NotComparable names each fact with both values."""
    found = left.differences(right)
    if found:
        raise NotComparable(
            "these two results were not measured under the same conditions: " + "; ".join(map(str, found)),
            fix="Measure both under one pin.",
            facts={"differences": [d.fact for d in found], "left": left.digest, "right": right.digest},
        )


def refused(left: Pin, right: Pin) -> Verdict | None:
    """A verdict that says why two pins cannot be compared, for tables that list such pairs; None if they can."""
    found = left.differences(right)
    if not found:
        return None
    return Verdict("refused", "pin", {}, "refused: " + "; ".join(map(str, found)))


def verdict(a: stats.Summary, b: stats.Summary, rule: Rule, *, scale: float = 1.0) -> Verdict:
    """Decides a against b from their summaries over seeds; `scale` is what 100% is (1.0, or 100.0 for percent)."""
    if rule not in RULES:
        raise ValueError(f"there is no rule {rule!r}: choose one of {', '.join(RULES)}")
    test = stats.welch(a, b)
    numbers: dict[str, float | None] = {
        "mean_a": a.mean,
        "mean_b": b.mean,
        "difference": a.mean - b.mean,
        "se_a": a.se,
        "se_b": b.se,
        "n_a": a.n,
        "n_b": b.n,
        "welch_p": test.p if test else None,
    }
    if a.se is None or b.se is None:
        which = "neither side has" if a.se is None and b.se is None else "one side does not have"
        return Verdict("tie", rule, numbers, f"tie by {rule}: {which} the two seeds that an interval needs")
    if rule == "two_percent":
        return _two_percent(a, b, numbers, scale)
    left, right = (_interval(side, rule) for side in (a, b))
    numbers |= {"low_a": left[0], "high_a": left[1], "low_b": right[0], "high_b": right[1]}
    apart = left[0] > right[1] or right[0] > left[1]
    decision: Decision = "tie" if not apart else "ahead" if a.mean > b.mean else "behind"
    touch = "do not overlap" if apart else "overlap"
    name = "±1 SE" if rule == "se_overlap" else "95% t"
    sentence = (
        f"{decision} by {rule}: the {name} intervals [{left[0]:.4g}, {left[1]:.4g}] and "
        f"[{right[0]:.4g}, {right[1]:.4g}] {touch}"
    )
    return Verdict(decision, rule, numbers, sentence)


def _interval(side: stats.Summary, rule: Rule) -> stats.Interval:
    if rule == "t_overlap" and side.ci95_t is not None:
        return side.ci95_t
    se = side.se or 0.0
    return side.mean - se, side.mean + se


def _two_percent(a: stats.Summary, b: stats.Summary, numbers: dict[str, float | None], scale: float) -> Verdict:
    """At least two points apart, *and* the spread small enough that two points can mean p < 0.05 at all."""
    gap, asked = abs(a.mean - b.mean), 0.02 * scale
    df = a.n + b.n - 2
    spreads = ((side.std or 0.0) * math.sqrt(side.n - 1) for side in (a, b))
    pooled = math.hypot(*spreads) / math.sqrt(df)
    needed = gap / (stats.t_quantile(0.975, df) * math.sqrt(1 / a.n + 1 / b.n))
    numbers |= {"separation_needed": asked, "separation_seen": gap, "std_needed": needed, "std_seen": pooled}
    # 1e-12: two scores written as 0.52 and 0.50 are two points apart, whatever their binary difference is.
    far, quiet = gap >= asked - 1e-12 * scale, pooled <= needed
    decision: Decision = "tie" if not (far and quiet) else "ahead" if a.mean > b.mean else "behind"
    sentence = (
        f"{decision} by two_percent: {gap:.4g} apart where {asked:.4g} is asked; p < 0.05 at that distance needs a "
        f"per-seed std of at most {needed:.4g}, seen {pooled:.4g}"
    )
    return Verdict(decision, "two_percent", numbers, sentence)
