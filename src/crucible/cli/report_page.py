"""An evaluation -> the HTML report: hands what `contrast` measured to what `board` draws, because only here both are known."""

from __future__ import annotations

from crucible.board.render import eval_report
from crucible.board.render.bins import binned
from crucible.board.render.eval_report import Bundle, Encoding, EvalReport, Negative, TierRow
from crucible.contrast.evaluate import Evaluation, caveats
from crucible.contrast.inspect import margins_by_tier, worst
from crucible.contrast.scoreboard import TierStats
from crucible.contrast.versus import Comparison
from crucible.kernel import stats


def report_page(evaluation: Evaluation, against: Comparison | None) -> str:
    header, encoded = evaluation.board.eval_header, evaluation.encoded
    notes = [*([against.sentence] if against else []), *(f"{_capital(caveat)}." for caveat in caveats(evaluation))]
    if header.recorded:
        most = header.recorded["max_difference"]
        notes.append(f"Dangers recorded in the file are reproduced with a largest difference of {most:.6f}.")
    report = EvalReport(
        title=f"{header.subject} on {header.eval_set} {header.version}".strip(),
        model_id=header.model["id"],
        model_digest=header.model["digest"],
        eval_set=header.eval_set,
        version=header.version,
        fingerprint=f"EVAL_FINGERPRINT: {header.fingerprint}",
        timestamp=evaluation.board.timestamp,
        checkpoint_path=evaluation.board.checkpoint_path,
        overall=_row("All tiers", evaluation.board.overall),
        tiers=[_row(name, found) for name, found in evaluation.board.by_tier.items()],
        histogram=binned(margins_by_tier(evaluation)),
        worst=[
            Bundle(
                id=one.id,
                tier=one.tier or "no tier",
                margin=one.margin,
                rank=one.rank,
                anchor=one.anchor,
                positive=one.positive,
                positive_similarity=one.positive_similarity,
                negatives=[Negative(text, similarity) for text, similarity in one.negatives],
            )
            for one in worst(evaluation)
        ],
        encoding=Encoding(encoded.unique, encoded.cached, encoded.encoded),
        watermark=against.watermark if against else None,
        notes=notes,
    )
    return eval_report.render(report)


def _row(name: str, found: TierStats) -> TierRow:
    return TierRow(
        name=name,
        n=found.n,
        correct=found.correct,
        pass_rate=found.pass_rate,
        interval=stats.wilson(found.correct, found.n) if found.n else None,
        mean_margin=found.mean_margin,
        median=found.median_margin,
        q10=found.q10_margin,
        q90=found.q90_margin,
        mean_rank=found.mean_rank,
        mean_rank_pessimistic=found.mean_rank_pessimistic,
        n_ties=found.n_ties,
    )


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
