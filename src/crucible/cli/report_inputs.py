"""A kind of report and a results folder -> the numbers and names that the page shows: only here both sides are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from crucible.board.render.outline import Outline
from crucible.board.render.reports import dilution, margins, mining, pareto, summary_run, summary_sweep, trajectory
from crucible.board.render.reports.mining import Bar, Loss, MiningReport
from crucible.board.render.reports.words import Fact
from crucible.cli import report_files as files
from crucible.cli import report_run, report_sweep
from crucible.contrast.mining.lineups import strength
from crucible.contrast.mining.mined import MiningStats
from crucible.documents import read_json
from crucible.errors import BadConfig, BadData

TYPES = ("summary", "pareto", "margin-dist", "step-trajectory", "dilution", "mining")
Report = msgspec.Struct


def read(kind: str, where: Path, floors: Mapping[str, float]) -> tuple[Report, Outline]:
    """What a report of this kind shows of that folder, as data and as the outline of its page."""
    if kind not in TYPES:
        raise BadConfig(f"there is no report called {kind!r}", fix=f"Known types: {', '.join(TYPES)}.")
    if floors and kind != "pareto":
        raise BadConfig(f"a {kind} report has no floor", fix="Leave out --floor, or make a pareto report.")
    if where.name == "results.json" and where.is_file():
        where = where.parent
    if kind == "pareto":
        files.require(where, kind, ["sweep"])
        found = report_sweep.pareto(where, floors)
        return found, pareto.outline(found)
    if kind == "margin-dist":
        files.require(where, kind, ["run"])
        measured = report_run.margins(where)
        return measured, margins.outline(measured)
    if kind == "mining":
        files.require(where, kind, ["mining"])
        mined = _mining(where)
        return mined, mining.outline(mined)
    sweep = files.require(where, kind, ["run", "sweep"]) == "sweep"
    if kind == "summary":
        if sweep:
            whole = report_sweep.summary(where)
            return whole, summary_sweep.outline(whole)
        one = report_run.summary(where)
        return one, summary_run.outline(one)
    if kind == "step-trajectory":
        steps = (report_sweep if sweep else report_run).trajectory(where)
        return steps, trajectory.outline(steps)
    exposed = (report_sweep if sweep else report_run).dilution(where)
    return exposed, dilution.outline(exposed)


# --- mining ------------------------------------------------------------------------------------------------------------


REASONS = {
    "no_within_lemma_negative": "no other sense of the word to tell it from",
    "no_negative": "no negative at all",
    "too_few_lineups": "too few distinct lineups",
}


def _mining(where: Path) -> MiningReport:
    path = _stats_file(where)
    found = read_json(path, MiningStats, "the statistics of a mining", f"Make them: {files.MAKERS['mining']}")
    return MiningReport(
        title=f"Mining: {path.name.removesuffix('.json').removesuffix('.stats')}",
        candidates=found.candidates,
        tested=found.tested,
        accepted=found.accepted,
        written=found.written,
        pass_rate=found.mining_pass_rate,
        threshold=found.threshold,
        threshold_source=_threshold(found),
        lineups=found.lineups,
        min_passes=found.min_passes,
        seed=found.seed,
        bars=_bars(path, found),
        strength=found.strength,
        effective_lineups=found.effective_lineups,
        losses=_losses(found),
        events=found.events,
        senses=found.senses,
        encoder=found.encoder.get("id", "the encoder"),
        notes=[files.sentence(note) for note in found.notes],
        facts=_facts(path, found),
    )


def _threshold(found: MiningStats) -> str:
    if found.calibration is None:
        return found.threshold_source
    return f"the {found.calibration.quantile:g} quantile of {found.calibration.bundles:,} existing tier-3 dangers"


def _losses(found: MiningStats) -> list[Loss]:
    """From the first choice to the last cut, in the order in which it happens."""
    before, testing, after = "before testing", "in testing", "after acceptance"
    counted = ("no_pass", "low_passes")
    unfit = [(why, number) for why, number in found.rejected.items() if why not in counted]
    return [
        Loss("not a candidate", "its sense is known already", found.duplicates.get("sense", 0)),
        Loss("not a candidate", "the same bundle is known already", found.duplicates.get("signature", 0)),
        Loss("not a candidate", "beyond --max-candidates", found.left_out.get("max_candidates", 0)),
        *(Loss(before, REASONS.get(why, why.replace("_", " ")), number) for why, number in unfit),
        Loss(testing, "passed no lineup", found.rejected.get("no_pass", 0)),
        Loss(
            testing, f"passed some, but fewer than {found.min_passes}: kept in the quarantine file", found.quarantined
        ),
        Loss(after, "asks the same as a harder one", found.duplicates.get("within_output", 0)),
        Loss(after, "beyond --max-output", found.left_out.get("max_output", 0)),
    ]


def _stats_file(where: Path) -> Path:
    if where.is_file():
        return where
    found = sorted(where.glob("*.stats.json"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise BadData.at(where, f"holds {len(found)} stats files: {names}", fix=f"Name one: --results-dir {found[0]}")
    return found[0]


def _bars(path: Path, found: MiningStats) -> list[Bar]:
    """One bar a number of lineups, also where nobody passed that many."""
    known = {str(n) for n in range(found.lineups + 1)}
    if odd := sorted(set(found.pass_distribution) - known):
        raise BadData.at(
            path,
            f"counts candidates with {odd[0]} of {found.lineups} lineups passed",
            fix="Mine again.",
            field="pass_distribution",
        )
    return [
        Bar(n, found.pass_distribution.get(str(n), 0), strength(n, found.lineups)) for n in range(found.lineups + 1)
    ]


def _facts(path: Path, found: MiningStats) -> list[Fact]:
    return [
        Fact("Statistics", path.name, True),
        Fact("Encoder", found.encoder.get("id", "")),
        Fact("Its digest", found.encoder.get("digest", ""), True),
        *(Fact(Path(name).name, sha, True) for name, sha in {**found.inputs, **found.outputs}.items()),
        Fact("Mined", f"{found.mined_at}, in {found.duration_s:.1f} s"),
    ]
