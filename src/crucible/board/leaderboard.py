"""Rows -> ranks that do not claim more than the intervals allow: rank, rank range and tie set under one named rule.

Rows are ranked only against rows of the same pin. Ties are not transitive, so there is no single order: a row's rank is one
more than the number of rows clearly ahead of it, and its range ends where rows clearly behind it begin.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from crucible.board.rows import SCALE, Aside, Row, Status
from crucible.kernel.compare import Rule, Verdict, verdict

RULE: Rule = "se_overlap"
"""As published: rows whose ± SE intervals overlap are not ranked apart. Weak evidence; Welch's p stands beside it."""


class Against(msgspec.Struct, frozen=True):
    """One other row, and what the rule says about the two."""

    subject: str
    decision: str
    welch_p: float | None
    sentence: str


class Standing(msgspec.Struct, frozen=True):
    """A row as the board shows it. `se` is null for one seed, `rank` where there is no valid run."""

    subject: str
    status: Status
    score: float | None
    se: float | None
    n_seeds: int
    rank: int | None
    rank_range: tuple[int, int] | None
    tied_with: tuple[str, ...]
    public_score: float | None
    gap: float | None
    track: str
    exam: str | None
    pin: str
    rule: str
    item_se: float | None
    ci95: tuple[float, float] | None
    ci95_t: tuple[float, float] | None
    identity: dict[str, str]
    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    empty: int
    invalid: tuple[Aside, ...]
    not_counted: tuple[Aside, ...]
    flags: tuple[str, ...]
    against: tuple[Against, ...]


def standings(rows: Sequence[Row], rule: Rule = RULE) -> list[Standing]:
    """Every row with its rank among the rows of its pin; best first within a pin, rows without a valid run last."""
    pins = list(dict.fromkeys((row.track, row.pin) for row in rows))
    ordered: list[Standing] = []
    for pin in pins:
        peers = [row for row in rows if (row.track, row.pin) == pin]
        made = [_standing(row, peers, rule) for row in peers]
        ordered += sorted(made, key=lambda s: (s.rank is None, s.rank, -(s.score or 0.0), s.subject))
    return ordered


def versus(a: Row, b: Row, rule: Rule = RULE) -> Verdict | None:
    """The verdict on two rows with at least one valid run each."""
    if a.summary is None or b.summary is None:
        return None
    return verdict(a.summary, b.summary, rule, scale=SCALE)


def _standing(row: Row, peers: Sequence[Row], rule: Rule) -> Standing:
    verdicts = [(peer, versus(row, peer, rule)) for peer in peers if peer is not row]
    known = [(peer, found) for peer, found in verdicts if found is not None]
    ahead = sum(found.decision == "behind" for _, found in known)
    behind = sum(found.decision == "ahead" for _, found in known)
    rank = None if row.summary is None else 1 + ahead
    return Standing(
        subject=row.subject,
        status=row.status,
        score=row.summary.mean if row.summary else None,
        se=row.summary.se if row.summary else None,
        n_seeds=row.summary.n if row.summary else 0,
        rank=rank,
        rank_range=None if rank is None else (rank, len(known) + 1 - behind),
        tied_with=tuple(peer.subject for peer, found in known if found.decision == "tie"),
        public_score=row.public_score,
        gap=row.gap,
        track=row.track,
        exam=row.exam,
        pin=row.pin,
        rule=rule,
        item_se=row.item_se,
        ci95=row.summary.ci95 if row.summary else None,
        ci95_t=row.summary.ci95_t if row.summary else None,
        identity=row.identity,
        seeds=row.seeds,
        runs=row.runs,
        empty=row.empty,
        invalid=row.invalid,
        not_counted=row.not_counted,
        flags=row.flags,
        against=tuple(
            Against(peer.subject, found.decision, found.numbers.get("welch_p"), found.sentence) for peer, found in known
        ),
    )
