"""`crucible pareto`: the results of a sweep -> frontier, knee, floors and the recommendation, over any two metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from crucible.board import pareto as board
from crucible.board.pareto import Configuration, Place, Recommendation
from crucible.cli import output
from crucible.documents import read_json
from crucible.errors import BadConfig, BadData
from crucible.kernel import stats
from crucible.kernel.stats import Summary

app = typer.Typer(add_completion=False)

Floors = Annotated[
    list[str] | None, typer.Option("--floor", help="METRIC=LEAST: what is below it is not recommended; repeatable.")
]


class Results(msgspec.Struct, frozen=True):
    """As much of a results.json as is needed here."""

    rows: list[dict[str, Any]]
    base: dict[str, float] = {}
    caveats: list[str] = []


@app.command()
def pareto(
    results: Annotated[Path, typer.Argument(help="Folder of a sweep, or a results.json.")],
    x: Annotated[str, typer.Option(help="First metric of the rows; higher is better.")] = board.X,
    y: Annotated[str, typer.Option(help="Second metric of the rows; higher is better.")] = board.Y,
    floor: Floors = None,
    json: output.AsJson = False,
) -> None:
    """Which configurations no other one beats on both metrics, where the frontier bends, and what to choose.

    Example: crucible pareto sweeps/ratio --floor frozen_tier3=0.30 --json
    """
    file = results / "results.json" if results.is_dir() else results
    fix = "Let the sweep finish: run the same `crucible sweep` again."
    found = read_json(file, Results, "the results of a sweep", fix)
    floors = floors_of(floor)
    configurations = board.configurations(found.rows, str(file))
    known = sorted({name for one in configurations for name in one.metrics})
    for metric in (x, y, *floors):
        if known and metric not in known:
            raise BadConfig(f"no row of {file} has a metric {metric!r}", fix=f"They have: {', '.join(known)}.")
    if not configurations:
        raise BadData.at(
            file, "holds no row: no run of this sweep gave a result", fix="Sweep again with other settings."
        )
    places = board.analyse(configurations, x, y, floors)
    if json:
        output.json_document([_plain(place, x, y) for place in places])
        return
    _print(places, x, y)
    recommended = recommend(configurations, found.base, floors, x, y)
    output.out(recommended.sentence)
    for caveat in [*found.caveats, *recommended.evidence.caveats]:
        output.out(f"Note: {caveat}.")


def floors_of(given: Sequence[str] | None) -> dict[str, float]:
    return dict(board.floor(text) for text in given or ())


def recommend(
    configurations: Sequence[Configuration],
    base: Mapping[str, float],
    floors: Mapping[str, float],
    x: str = board.X,
    y: str = board.Y,
) -> Recommendation:
    """The base encoder is one model: its numbers have no spread over seeds."""
    measured = {name: stats.summary([value]) for name, value in base.items()}
    return board.recommend(configurations, measured, x=x, y=y, floors=floors)


def mark(place: Place) -> str:
    """How a table shows where a configuration stands."""
    if not place.meets_floor:
        return "below floor"
    return "knee" if place.knee else "frontier" if place.on_frontier else ""


def spread(value: Summary) -> str:
    """Mean and standard error; no error for one seed."""
    return f"{value.mean:.4f} ±{value.se:.4f}" if value.se is not None else f"{value.mean:.4f}"


def _plain(place: Place, x: str, y: str) -> dict[str, Any]:
    return {
        "condition": place.condition,
        x: place.x.mean,
        y: place.y.mean,
        "on_frontier": place.on_frontier,
        "knee": place.knee,
        "meets_floor": place.meets_floor,
        "n_seeds": place.x.n,
        f"{x}_std": place.x.std,
        f"{y}_std": place.y.std,
        f"{x}_ci95_t": place.x.ci95_t,
        f"{y}_ci95_t": place.y.ci95_t,
        "dominated_by": list(place.dominated_by),
    }


def _print(places: Sequence[Place], x: str, y: str) -> None:
    columns = ("condition", "", f"{x} ± SE", f"{y} ± SE", "seeds", "beaten by")
    rows = [
        (p.condition, mark(p), spread(p.x), spread(p.y), p.x.n, ", ".join(p.dominated_by[:3]) or None) for p in places
    ]
    output.table("", columns, rows, left=2)
