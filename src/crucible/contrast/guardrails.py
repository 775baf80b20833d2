"""Settings, steps and scoreboards of a training run -> findings G1 to G10 with their levels, and which of them stop it. Pure.

    G1  dilution     before   legacy exposure below 50 / 30 / 10             warning / critical / severe
    G2  config       before   settings that are wrong, files that are missing        error (raised by `settings.py`)
    G3  pools        before   empty legacy pool, mined bundles without their passes / one id in two pools   severe / error
    G4  quota        during   a tier realised below 80% of its target share  warning
    G5  loss_spike   during   loss above mean + 3 sigma of the steps before  warning
    G6  gradient     during   not finite / vanishing or exploding            severe / warning
    G7  regression   after    frozen tier-3 pass rate down too far           critical
    G8  overfitting  after    frozen up while organic falls as steps grow    warning
    G9  fingerprint  after    two results under different pins               error, overridable for exploration
    G10 tail         after    Q10 margin down although the pass rate holds   warning

Every finding is said and recorded. Critical and severe ones stop the run where guardrails are enforced, unless the guardrail
is overridden by name; an error always stops it.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from crucible.contrast import exposure
from crucible.contrast.config import Config
from crucible.contrast.scoreboard import Scoreboard
from crucible.contrast.tiers import TIERS
from crucible.errors import BadConfig, GuardrailTripped
from crucible.kernel.pin import Pin

Level = Literal["warning", "critical", "severe", "error"]
LEVELS: tuple[Level, ...] = ("warning", "critical", "severe", "error")
NAMES = {
    "G1": "dilution",
    "G2": "config",
    "G3": "pools",
    "G4": "quota",
    "G5": "loss_spike",
    "G6": "gradient",
    "G7": "regression",
    "G8": "overfitting",
    "G9": "fingerprint",
    "G10": "tail",
}
TIER3 = TIERS[2]
_QUOTA, _QUOTA_DRAWS = 0.8, 100.0
"""Below a hundred expected draws a share of 80% is chance."""
_WINDOW, _WINDOW_LEAST, _SIGMAS = 100, 20, 3.0
_VANISHED, _EXPLODED = 1e-8, 1e3


class Finding(msgspec.Struct, frozen=True):
    """One guardrail that tripped; a line of findings.jsonl."""

    guardrail: str
    level: Level
    when: Literal["before", "during", "after"]
    message: str
    numbers: dict[str, float]
    step: int | None = None
    overridden: bool = False


@dataclass(frozen=True)
class Truths:
    """One model on both eval sets; none where that one is not configured."""

    frozen: Scoreboard | None
    organic: Scoreboard | None


@dataclass(frozen=True)
class Point:
    """Both truths after so many steps."""

    step: int
    frozen_tier3: float
    organic_holdout: float


# --- before ------------------------------------------------------------------------------------------------------------


def before(config: Config, sizes: Mapping[str, int], duplicates: Sequence[str], without_metadata: int) -> list[Finding]:
    """`sizes` by tier and tier-3 pool; `duplicates` are ids that stand in two pools; `without_metadata` are mined bundles
    that do not say how many lineups they passed."""
    found = []
    if not sizes.get("legacy"):
        message = "the legacy pool is empty: nothing protects what the model already knew"
        found.append(Finding("G3", "severe", "before", message, {"legacy": 0.0}))
    else:
        found += _dilution(config, sizes)
    if duplicates:
        shown = ", ".join(repr(one) for one in duplicates[:3])
        message = f"{len(duplicates)} ids stand in more than one pool: {shown}; merge them with `crucible pool merge`"
        found.append(Finding("G3", "error", "before", message, {"duplicates": float(len(duplicates))}))
    if without_metadata:
        message = (
            f"{without_metadata} organic bundles do not carry `passes` and `lineups_tested`: nobody validated them"
        )
        found.append(Finding("G3", "severe", "before", message, {"without_metadata": float(without_metadata)}))
    return found


def _dilution(config: Config, sizes: Mapping[str, int]) -> list[Finding]:
    expected = exposure.per_pool(config.curriculum, config.training, sizes)["legacy"].expected
    rails = config.guardrails
    healthy = exposure.STATUSES[0][0]
    floors: list[tuple[float, Level]] = [
        (rails.dilution_block_threshold, "severe"),
        (rails.dilution_warning_threshold, "critical"),
        (healthy, "warning"),
    ]
    for floor, level in floors:
        if expected < floor:
            message = (
                f"each of {sizes['legacy']} legacy items is expected {expected:.1f} times, below {floor:g}: "
                f"{'regression highly likely' if level == 'severe' else 'watch frozen tier 3'}"
            )
            return [Finding("G1", level, "before", message, {"expected": expected, "floor": floor})]
    return []


# --- during ------------------------------------------------------------------------------------------------------------


class Watch:
    """Looks at every step; says a thing once when it begins, not at each step it lasts. Replaying the log restores it."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=_WINDOW)
        self._drawn = [0.0] * len(TIERS)
        self._wanted = [0.0] * len(TIERS)
        self._lasting: set[str] = set()

    def observe(
        self, step: int, loss: float, grad_norm: float, tiers: Sequence[int], targets: Sequence[float]
    ) -> list[Finding]:
        """`targets` are the shares that each tier should have had at this step."""
        found = self._quota(step, tiers, targets)
        found += self._spike(step, loss)
        found += self._gradient(step, loss, grad_norm)
        return found

    def _quota(self, step: int, tiers: Sequence[int], targets: Sequence[float]) -> list[Finding]:
        found = []
        for place, (drawn, target) in enumerate(zip(tiers, targets, strict=True)):
            self._drawn[place] += drawn
            self._wanted[place] += target * sum(tiers)
            wanted, got = self._wanted[place], self._drawn[place]
            low = wanted >= _QUOTA_DRAWS and got < _QUOTA * wanted
            if self._begins(f"G4 {place}", low):
                message = f"{TIERS[place]} was drawn {got:.0f} times where {wanted:.0f} are the target"
                found.append(Finding("G4", "warning", "during", message, {"drawn": got, "target": wanted}, step))
        return found

    def _spike(self, step: int, loss: float) -> list[Finding]:
        """The window holds the steps before this one: with the spike inside, three sigma would be nearly unreachable."""
        seen, found = list(self._losses), []
        if len(seen) >= _WINDOW_LEAST and math.isfinite(loss):
            mean = math.fsum(seen) / len(seen)
            sigma = math.sqrt(math.fsum((one - mean) ** 2 for one in seen) / (len(seen) - 1))
            ceiling = mean + _SIGMAS * sigma
            if self._begins("G5", loss > ceiling and loss - mean > 1e-9):
                message = f"loss {loss:.4f} is above {ceiling:.4f}, mean + 3 sigma of the {len(seen)} steps before"
                numbers = {"loss": loss, "mean": mean, "sigma": sigma}
                found.append(Finding("G5", "warning", "during", message, numbers, step))
        if math.isfinite(loss):
            self._losses.append(loss)
        return found

    def _gradient(self, step: int, loss: float, grad_norm: float) -> list[Finding]:
        if not math.isfinite(loss) or not math.isfinite(grad_norm):
            message = f"loss {loss} and gradient norm {grad_norm} are not both finite"
            return [Finding("G6", "severe", "during", message, {}, step)]
        found = []
        for name, there in (("vanishing", grad_norm < _VANISHED), ("exploding", grad_norm > _EXPLODED)):
            if self._begins(f"G6 {name}", there):
                message = f"{name} gradient: its norm is {grad_norm:.3g}"
                found.append(Finding("G6", "warning", "during", message, {"grad_norm": grad_norm}, step))
        return found

    def _begins(self, what: str, there: bool) -> bool:
        new = there and what not in self._lasting
        (self._lasting.add if there else self._lasting.discard)(what)
        return new


# --- after -------------------------------------------------------------------------------------------------------------


def after(config: Config, base: Truths, trained: Truths) -> list[Finding]:
    """What the finished model lost against the encoder it started from."""
    found = []
    for name, old, new in (("frozen", base.frozen, trained.frozen), ("organic", base.organic, trained.organic)):
        if old and new:
            found += same_fingerprint(
                old.eval_header.pin, new.eval_header.pin, strict=config.guardrails.fingerprint_strict
            )
            if name == "frozen":
                found += _regression(old, new, config.guardrails.regression_threshold)
            found += _tail(name, old, new)
    return found


def _regression(old: Scoreboard, new: Scoreboard, threshold: float) -> list[Finding]:
    was, now = old.by_tier[TIER3].pass_rate, new.by_tier[TIER3].pass_rate
    if (
        was is None or now is None or was - now <= threshold + 1e-12
    ):  # 0.50 to 0.48 is a fall by 0.02, whatever its binary difference
        return []
    message = f"frozen tier 3 fell from {was:.4f} to {now:.4f}, by more than {threshold:g}"
    return [Finding("G7", "critical", "after", message, {"base": was, "trained": now, "threshold": threshold})]


def _tail(name: str, old: Scoreboard, new: Scoreboard) -> list[Finding]:
    before_, now = old.overall, new.overall
    if None in (before_.pass_rate, now.pass_rate, before_.q10_margin, now.q10_margin):
        return []
    assert before_.pass_rate is not None and now.pass_rate is not None
    assert before_.q10_margin is not None and now.q10_margin is not None
    if now.pass_rate < before_.pass_rate or now.q10_margin >= before_.q10_margin - 1e-6:
        return []
    message = (
        f"{name}: the pass rate holds ({before_.pass_rate:.4f} to {now.pass_rate:.4f}) but the Q10 margin fell from "
        f"{before_.q10_margin:+.4f} to {now.q10_margin:+.4f}: the worst items got worse"
    )
    return [Finding("G10", "warning", "after", message, {"base": before_.q10_margin, "trained": now.q10_margin})]


def cliff(points: Iterable[Point]) -> list[Finding]:
    """The first place where more steps raise frozen tier 3 and lower the organic holdout."""
    ordered = sorted(points, key=lambda point: point.step)
    for one, two in itertools.pairwise(ordered):
        if two.frozen_tier3 > one.frozen_tier3 and two.organic_holdout < one.organic_holdout:
            message = (
                f"overfitting cliff between {one.step} and {two.step} steps: frozen tier 3 {one.frozen_tier3:.4f} -> "
                f"{two.frozen_tier3:.4f}, organic holdout {one.organic_holdout:.4f} -> {two.organic_holdout:.4f}"
            )
            numbers = {"from_step": float(one.step), "to_step": float(two.step)}
            return [Finding("G8", "warning", "after", message, numbers, two.step)]
    return []


def same_fingerprint(left: Pin, right: Pin, *, strict: bool) -> list[Finding]:
    differences = left.differences(right)
    if not differences:
        return []
    message = "the two results were measured under different pins: " + "; ".join(map(str, differences))
    return [Finding("G9", "error" if strict else "warning", "after", message, {"facts": float(len(differences))})]


# --- what stops --------------------------------------------------------------------------------------------------------


def overridable(names: Iterable[str]) -> list[str]:
    """G1 or dilution -> G1; an unknown name is an error with the nearest known."""
    known = {**{key.lower(): key for key in NAMES}, **{value: key for key, value in NAMES.items()}}
    found = []
    for name in names:
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.3)
            shown = [one.upper() if one.upper() in NAMES else one for one in near]
            hint = f"; did you mean {shown[0]}?" if shown else ""
            listed = ", ".join(f"{key} ({value})" for key, value in NAMES.items())
            raise BadConfig(f"no guardrail is called {name!r}{hint}", fix=f"Known: {listed}.")
        found.append(known[name.lower()])
    return list(dict.fromkeys(found))


def judged(findings: Iterable[Finding], overrides: Sequence[str], *, enforce: bool) -> list[Finding]:
    """The findings with those marked that are overridden; raises for the first that stops the run."""
    marked = [_marked(one, overrides) for one in findings]
    for one in sorted(marked, key=lambda finding: -LEVELS.index(finding.level)):
        if stops(one, enforce=enforce):
            name = f"{one.guardrail} ({NAMES[one.guardrail]})"
            can = one.level != "error" or one.guardrail == "G9"
            override = f"--guardrail-override {one.guardrail}"
            raise GuardrailTripped(
                f"guardrail {name}, {one.level}: {one.message}",
                fix=f"Change the settings, or take the risk on record: {override}." if can else "Correct the data.",
                facts={"guardrail": one.guardrail, "level": one.level, "numbers": one.numbers},
            )
    return marked


def stops(finding: Finding, *, enforce: bool) -> bool:
    if finding.overridden:
        return False
    return finding.level == "error" or (enforce and finding.level in ("critical", "severe"))


def _marked(finding: Finding, overrides: Sequence[str]) -> Finding:
    may = finding.guardrail == "G9" or finding.level != "error"
    return msgspec.structs.replace(finding, overridden=may and finding.guardrail in overrides)
