"""Two or more scoreboards -> rows, differences per tier with paired tests, and sentences; refuses two different eval sets.

Same pin means same items, so a comparison of two checkpoints is paired item by item. Several seeds of one subject become one
row, and rows are compared by a named rule over their seeds. Drawing and printing is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast import scoreboard
from crucible.contrast.evaluate import ItemResult
from crucible.contrast.scoreboard import Scoreboard, TierStats
from crucible.contrast.tiers import TIERS
from crucible.errors import BadData, IntegrityBroken, Mistake, NotComparable
from crucible.kernel import compare, digest, stats
from crucible.kernel.compare import Rule, Verdict
from crucible.kernel.stats import Summary

WATERMARK = "FINGERPRINT MISMATCH: exploratory only, not a result"
GROUPS = ("overall", *TIERS)
_PAIRED = "McNemar (exact), Holm-corrected over tiers; paired bootstrap interval (95%)"
_SHOWN_FLIPS = 50


class Loaded(msgspec.Struct, frozen=True):
    """A scoreboard with its per-item results, or without where the file no longer lies beside it."""

    path: str
    board: Scoreboard
    items: dict[str, ItemResult] | None


class Row(msgspec.Struct, frozen=True):
    """One subject: a single checkpoint, or several seeds of one model with what they have in common."""

    subject: str
    files: list[str]
    digests: list[str]
    n_seeds: int
    groups: dict[str, dict[str, Summary | None]]
    """Group -> metric -> summary over seeds."""


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
    ties: int | None = None
    """Items that both pass or both fail."""
    p: float | None = None
    p_holm: float | None = None
    interval: tuple[float, float] | None = None
    margin_interval: tuple[float, float] | None = None
    """95% of the mean paired difference in margin, by the t distribution."""
    verdict: Verdict | None = None
    """By the named rule over seeds, where both rows have some."""


class Versus(msgspec.Struct, frozen=True):
    """Row b against row a."""

    a: str
    b: str
    test: str
    groups: dict[str, GroupDelta]
    flips: dict[str, list[str]]
    """Ids of items that b won and lost, the first of each."""
    sentence: str


class Comparison(msgspec.Struct, frozen=True):
    comparable: bool
    watermark: str | None
    fingerprints: list[str]
    rows: list[Row]
    comparisons: list[Versus]
    """Every later row against the first."""
    caveats: list[str]
    """What a reader must know before believing a tier's number."""
    sentence: str


def load(path: Path) -> Loaded:
    board = scoreboard.load(path)
    missing = [name for name in TIERS if name not in board.by_tier]
    if missing:
        raise BadData.at(path, f"has no {missing[0]}", fix="Run crucible eval again.", field="by_tier")
    return Loaded(str(path), board, _load_items(path, board))


def compare_all(boards: Sequence[Loaded], *, allow_mismatch: bool = False, rule: Rule = "t_overlap") -> Comparison:
    """The first scoreboard's subject is what the others are compared with."""
    same = all(_same(boards[0], other, allow_mismatch) for other in boards[1:])
    grouped = _by_subject(boards)
    first, *others = grouped
    versus = [_against(first, other, same, rule) for other in others]
    return Comparison(
        comparable=same,
        watermark=None if same else WATERMARK,
        fingerprints=list(dict.fromkeys(one.board.eval_header.fingerprint for one in boards)),
        rows=[_row(group) for group in grouped],
        comparisons=versus,
        caveats=_caveats(boards),
        sentence=" ".join(one.sentence for one in versus),
    )


def _caveats(boards: Sequence[Loaded]) -> list[str]:
    found = []
    for one in boards:
        header = one.board.eval_header
        if header.pin.facts.get("reference_encoder") == header.model.get("digest"):
            found.append(
                f"{header.subject} is the reference encoder that tiered this eval set: the higher tiers are hard for it by "
                "construction, so compare it overall, not by tier"
            )
    return list(dict.fromkeys(found))


def _same(a: Loaded, b: Loaded, allow_mismatch: bool) -> bool:
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


def _by_subject(boards: Sequence[Loaded]) -> list[list[Loaded]]:
    """Scoreboards with a model seed are grouped by subject; one without stands alone."""
    groups: dict[object, list[Loaded]] = {}
    for place, one in enumerate(boards):
        header = one.board.eval_header
        groups.setdefault(place if header.model_seed is None else header.subject, []).append(one)
    for group in groups.values():
        digests = [one.board.eval_header.model.get("digest") for one in group]
        if len(set(digests)) < len(digests):
            names = ", ".join(one.path for one in group)
            raise Mistake(
                f"{group[0].board.eval_header.subject}: the same checkpoint counts as two seeds ({names})",
                fix="Give each seed once: a checkpoint scored twice has no spread and proves nothing.",
            )
    return list(groups.values())


def _row(group: Sequence[Loaded]) -> Row:
    metrics = ("pass_rate", "mean_margin", "median_margin", "q10_margin", "q90_margin", "mean_rank")
    summaries = {name: {metric: _summary(group, name, metric) for metric in metrics} for name in GROUPS}
    return Row(
        subject=_name(group),
        files=[one.path for one in group],
        digests=[one.board.eval_header.model.get("digest", "") for one in group],
        n_seeds=len(group),
        groups=summaries,
    )


def _against(a: Sequence[Loaded], b: Sequence[Loaded], same: bool, rule: Rule) -> Versus:
    single = len(a) == len(b) == 1
    items = (a[0].items, b[0].items) if single and same else (None, None)
    if items[0] is not None and items[1] is not None:
        groups, flips = _paired(a[0], b[0], items[0], items[1])
        test = _PAIRED
    else:
        groups = {name: _unpaired(a, b, name, rule if same else None) for name in GROUPS}
        flips = {}
        test = (
            f"{rule} over seeds" if same and not single else "none: the per-item results are missing or of other items"
        )
    return Versus(_name(a), _name(b), test, groups, flips, _sentence(_name(a), _name(b), groups["overall"], same))


def _paired(
    a: Loaded, b: Loaded, a_items: dict[str, ItemResult], b_items: dict[str, ItemResult]
) -> tuple[dict[str, GroupDelta], dict[str, list[str]]]:
    if a_items.keys() != b_items.keys():
        raise IntegrityBroken(
            f"{a.path} and {b.path} have one pin but per-item results of different items",
            fix="Run crucible eval again.",
        )
    order = list(a_items)
    before = np.asarray([a_items[own].margin for own in order])
    after = np.asarray([b_items[own].margin for own in order])
    tier = [a_items[own].tier for own in order]
    found = {}
    for name in GROUPS:
        chosen = np.ones(len(order), dtype=np.bool_) if name == "overall" else np.asarray([t == name for t in tier])
        for side, margins in ((a, before[chosen]), (b, after[chosen])):
            _require_agreement(side, name, margins)
        found[name] = _paired_group(_stats(a, name), _stats(b, name), before[chosen], after[chosen])
    tested = [name for name in TIERS if found[name].p is not None]
    # Corrected over the tiers, which are separate questions; the overall test is one question and stays as it is.
    adjusted = stats.holm([found[name].p or 0.0 for name in tested])
    found |= {name: msgspec.structs.replace(found[name], p_holm=p) for name, p in zip(tested, adjusted, strict=True)}
    won, lost = (after > 0.0) & (before <= 0.0), (before > 0.0) & (after <= 0.0)
    flips = {
        "won": [order[i] for i in np.flatnonzero(won)[:_SHOWN_FLIPS]],
        "lost": [order[i] for i in np.flatnonzero(lost)[:_SHOWN_FLIPS]],
    }
    return found, flips


def _require_agreement(side: Loaded, name: str, margins: npt.NDArray[np.float64]) -> None:
    """A scoreboard says what its items say, or somebody edited it."""
    claimed, passed = _stats(side, name), int(np.count_nonzero(margins > 0.0))
    rate = passed / margins.size if margins.size else None
    if (claimed.n, claimed.correct, claimed.pass_rate) != (margins.size, passed, rate):
        raise IntegrityBroken(
            f"{side.path}: {name} claims {claimed.correct} of {claimed.n} passed (rate {claimed.pass_rate}), "
            f"its items say {passed} of {margins.size}",
            fix="Run crucible eval again; a scoreboard is never edited.",
            facts={"file": side.path, "group": name},
        )


def _paired_group(
    one: TierStats, two: TierStats, before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]
) -> GroupDelta:
    delta = _delta(two.n, *((side.pass_rate, side.mean_margin, side.q10_margin, side.mean_rank) for side in (one, two)))
    if before.size == 0:
        return delta
    wins = int(np.count_nonzero((after > 0.0) & (before <= 0.0)))
    losses = int(np.count_nonzero((before > 0.0) & (after <= 0.0)))
    boot = stats.paired_bootstrap_passes(wins, losses, before.size)
    change = after - before
    spread = None
    if change.size > 1:
        half = stats.t_quantile(0.975, change.size - 1) * float(change.std(ddof=1)) / change.size**0.5
        spread = (float(change.mean()) - half, float(change.mean()) + half)
    return msgspec.structs.replace(
        delta,
        wins=wins,
        losses=losses,
        ties=before.size - wins - losses,
        p=stats.mcnemar(wins, losses).p,
        interval=(boot.low, boot.high),
        margin_interval=spread,
    )


def _unpaired(a: Sequence[Loaded], b: Sequence[Loaded], name: str, rule: Rule | None) -> GroupDelta:
    means = [
        tuple(
            None if (found := _summary(side, name, metric)) is None else found.mean
            for metric in ("pass_rate", "mean_margin", "q10_margin", "mean_rank")
        )
        for side in (a, b)
    ]
    delta = _delta(_stats(b[0], name).n, means[0], means[1])
    one, two = _summary(a, name, "pass_rate"), _summary(b, name, "pass_rate")
    if rule is None or one is None or two is None or one.n == two.n == 1:
        return delta
    return msgspec.structs.replace(delta, verdict=compare.verdict(two, one, rule))


def _delta(n: int, one: tuple[float | None, ...], two: tuple[float | None, ...]) -> GroupDelta:
    rate, margin, q10, rank = (None if x is None or y is None else y - x for x, y in zip(one, two, strict=True))
    return GroupDelta(n, (one[0], two[0]), rate, margin, q10, rank)


def _sentence(a: str, b: str, overall: GroupDelta, same: bool) -> str:
    rates = tuple(0.0 if rate is None else rate for rate in overall.pass_rate)
    numbers = f"it passes {rates[1]:.1%} against {rates[0]:.1%}"
    if not same:
        return f"{WATERMARK}. {b} passes {rates[1]:.1%} of its items, {a} {rates[0]:.1%} of other ones."
    if overall.verdict is not None:
        return f"{b} against {a}: {numbers}; {overall.verdict.sentence}."
    if overall.p is None:
        return f"{b} against {a}: {numbers}; without the per-item results there is no test and no verdict."
    relation = "tied with" if overall.p >= 0.05 else "ahead of" if rates[1] > rates[0] else "behind"
    low, high = overall.interval or (0.0, 0.0)
    return (
        f"{b} is {relation} {a}: {numbers} on {overall.n} items "
        f"({overall.wins} won, {overall.losses} lost; McNemar p = {overall.p:.2g}; difference {low:+.1%} to {high:+.1%})."
    )


def _name(group: Sequence[Loaded]) -> str:
    return group[0].board.eval_header.subject


def _stats(one: Loaded, name: str) -> TierStats:
    return one.board.overall if name == "overall" else one.board.by_tier[name]


def _summary(group: Sequence[Loaded], name: str, metric: str) -> Summary | None:
    values = [getattr(_stats(one, name), metric) for one in group]
    return None if any(value is None for value in values) else stats.summary(values)


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
    decode = msgspec.json.Decoder(ItemResult).decode
    results: dict[str, ItemResult] = {}
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                result = decode(line)
            except msgspec.DecodeError as error:
                raise BadData.at(file, str(error), fix="Run crucible eval again.", line=number) from None
            results[result.id] = result
    return results
