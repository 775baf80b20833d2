"""Two scoreboards -> differences per tier with paired tests, and a sentence; refuses two different eval sets.

Same pin means same items, so every test is paired. Several seeds of one model are the board's business.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from crucible.contrast import scoreboard
from crucible.contrast.evaluate import ItemResult
from crucible.contrast.scoreboard import Scoreboard, TierStats
from crucible.contrast.tiers import TIERS
from crucible.errors import BadData, IntegrityBroken, NotComparable
from crucible.kernel import compare, digest, stats

_PAIRED = "McNemar (exact), Holm-corrected over tiers; paired bootstrap interval (95%)"
WATERMARK = "FINGERPRINT MISMATCH: exploratory only, not a result"


class Loaded(msgspec.Struct, frozen=True):
    path: str
    board: Scoreboard
    items: dict[str, ItemResult] | None
    """Per-item results by id, or none if the file is no longer beside the scoreboard."""


class GroupDelta(msgspec.Struct, frozen=True):
    """One tier (or all items): a, b, b - a, and how sure that is."""

    n: int
    pass_rate: tuple[float | None, float | None]
    delta_pass_rate: float | None
    delta_mean_margin: float | None
    delta_q10_margin: float | None
    delta_mean_rank: float | None
    wins: int | None = None
    """Items that b passes and a fails."""
    losses: int | None = None
    p: float | None = None
    p_holm: float | None = None
    interval: tuple[float, float] | None = None


class Comparison(msgspec.Struct, frozen=True):
    comparable: bool
    watermark: str | None
    a: dict[str, str]
    b: dict[str, str]
    fingerprints: tuple[str, str]
    test: str
    groups: dict[str, GroupDelta]
    sentence: str


def load(path: Path) -> Loaded:
    board = scoreboard.load(path)
    missing = [name for name in TIERS if name not in board.by_tier]
    if missing:
        raise BadData.at(path, f"has no {missing[0]}", fix="Run crucible eval again.", field="by_tier")
    return Loaded(str(path), board, _load_items(path, board))


def compare_two(a: Loaded, b: Loaded, *, allow_mismatch: bool = False) -> Comparison:
    left, right = a.board.eval_header, b.board.eval_header
    same = _require_same(a, b, allow_mismatch)
    paired = same and a.items is not None and b.items is not None
    if paired and (a.items or {}).keys() != (b.items or {}).keys():
        raise IntegrityBroken(
            f"{a.path} and {b.path} have one pin but per-item results of different items",
            fix="Run crucible eval again.",
        )
    groups = {"overall": (a.board.overall, b.board.overall)}
    groups |= {name: (a.board.by_tier[name], b.board.by_tier[name]) for name in TIERS}
    found = {name: _delta(name, pair, a.items, b.items, paired) for name, pair in groups.items()}
    if paired:
        found = _with_holm(found)
    return Comparison(
        comparable=same,
        watermark=None if same else WATERMARK,
        a={"path": a.path, **left.model},
        b={"path": b.path, **right.model},
        fingerprints=(left.fingerprint, right.fingerprint),
        test="McNemar (exact), Holm-corrected over tiers; paired bootstrap interval"
        if paired
        else "none: items missing or different",
        groups=found,
        sentence=_sentence(left.model.get("id", "a"), right.model.get("id", "b"), found["overall"], same),
    )


def _require_same(a: Loaded, b: Loaded, allow_mismatch: bool) -> bool:
    left, right = a.board.eval_header, b.board.eval_header
    try:
        compare.require_same(left.pin, right.pin)
    except NotComparable as error:
        if allow_mismatch:
            return False
        raise NotComparable(
            f"different eval sets: {a.path} has EVAL_FINGERPRINT: {left.fingerprint}, "
            f"{b.path} has EVAL_FINGERPRINT: {right.fingerprint} ({error.message})",
            fix="Evaluate both models on one eval set, or add --allow-fingerprint-mismatch to look without a verdict.",
            facts={"fingerprints": [left.fingerprint, right.fingerprint], **error.facts},
        ) from None
    return True


def _delta(
    name: str,
    pair: tuple[TierStats, TierStats],
    a_items: dict[str, ItemResult] | None,
    b_items: dict[str, ItemResult] | None,
    paired: bool,
) -> GroupDelta:
    one, two = pair
    delta = GroupDelta(
        n=two.n,
        pass_rate=(one.pass_rate, two.pass_rate),
        delta_pass_rate=_minus(two.pass_rate, one.pass_rate),
        delta_mean_margin=_minus(two.mean_margin, one.mean_margin),
        delta_q10_margin=_minus(two.q10_margin, one.q10_margin),
        delta_mean_rank=_minus(two.mean_rank, one.mean_rank),
    )
    if not paired or a_items is None or b_items is None or two.n == 0:
        return delta
    chosen = [item for item, result in a_items.items() if name in ("overall", result.tier)]
    wins = sum(b_items[item].margin > 0.0 >= a_items[item].margin for item in chosen)
    losses = sum(a_items[item].margin > 0.0 >= b_items[item].margin for item in chosen)
    boot = stats.paired_bootstrap_passes(wins, losses, len(chosen))
    test = stats.mcnemar(wins, losses)
    return msgspec.structs.replace(delta, wins=wins, losses=losses, p=test.p, interval=(boot.low, boot.high))


def _with_holm(groups: dict[str, GroupDelta]) -> dict[str, GroupDelta]:
    """Corrected over the tiers, which are separate questions; the overall test is one question and stays as it is."""
    tested = [name for name in TIERS if groups[name].p is not None]
    adjusted = stats.holm([groups[name].p or 0.0 for name in tested])
    return groups | {
        name: msgspec.structs.replace(groups[name], p_holm=p) for name, p in zip(tested, adjusted, strict=True)
    }


def _sentence(a: str, b: str, overall: GroupDelta, same: bool) -> str:
    rates = tuple(0.0 if rate is None else rate for rate in overall.pass_rate)
    numbers = f"it passes {rates[1]:.1%} against {rates[0]:.1%}"
    if not same:
        return f"{WATERMARK}. {b} passes {rates[1]:.1%} of its items, {a} {rates[0]:.1%} of other ones."
    if overall.p is None:
        return f"{b} against {a}: {numbers}; without the per-item results there is no test and no verdict."
    relation = "tied with" if overall.p >= 0.05 else "ahead of" if rates[1] > rates[0] else "behind"
    low, high = overall.interval or (0.0, 0.0)
    return (
        f"{b} is {relation} {a}: {numbers} on {overall.n} items "
        f"({overall.wins} won, {overall.losses} lost; McNemar p = {overall.p:.2g}; difference {low:+.1%} to {high:+.1%})."
    )


def _load_items(path: Path, board: Scoreboard) -> dict[str, ItemResult] | None:
    named = board.eval_header.items
    if named is None:
        return None
    file = path.parent / named["file"]
    if not file.is_file():
        return None
    if digest.of_file(file) != named["sha256"]:
        raise IntegrityBroken(
            f"{file} is not the file that {path} was written with",
            fix="Run crucible eval again.",
            facts={"file": str(file)},
        )
    results: dict[str, ItemResult] = {}
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                result = msgspec.json.decode(line, type=ItemResult)
            except msgspec.DecodeError as error:
                raise BadData.at(file, str(error), fix="Run crucible eval again.", line=number) from None
            results[result.id] = result
    return results


def _minus(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier
