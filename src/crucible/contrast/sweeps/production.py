"""A configuration and several seeds -> the capsule of the median one, with the numbers of all. Recommends nothing.

    P/
      seed-N/            a run folder for every seed
      selection.json     every seed's numbers on both truths, the rule, and the seed it chose

Every seed is trained and measured in full before one is chosen, and those that were not chosen go into the capsule with their
numbers and their evidence: nobody has to believe that the others were no better and no worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from crucible import engine
from crucible.contrast.capsules import capsule
from crucible.contrast.capsules.capsule import SEEDS, SELECTION
from crucible.contrast.config import Config
from crucible.contrast.progress import Progress
from crucible.contrast.sweeps.runjobs import Run, alone, environment, finished, trained
from crucible.contrast.sweeps.selection import SeedResult, Selection, select
from crucible.contrast.sweeps.truths import encode_once, require_truths
from crucible.contrast.train.rundir import RunDir, RunInfo, placed
from crucible.documents import require_target, to_json, write_bytes
from crucible.errors import BadConfig


class Built(msgspec.Struct, frozen=True):
    capsule: str
    run: str
    selection: Selection
    base: dict[str, float | None]
    """The encoder that all seeds started from, on both truths."""


def build(
    config: Config,
    seeds: Sequence[int],
    out: Path,
    target: Path,
    *,
    overrides: Sequence[str] = (),
    enforce: bool = False,
    with_data: bool = True,
    parallel: int = 1,
    by: str = "processes",
    on_event: engine.OnEvent | None = None,
    encoding: Progress | None = None,
) -> Built:
    """Trains what is not trained yet, chooses, packs; called again it only does what is not done."""
    if len(seeds) < 2:
        raise BadConfig(f"{len(seeds)} seed has no median that means anything", fix="Give three: --seeds 42,123,456.")
    require_target(target)
    config = placed(config)
    truths = require_truths(config)
    with alone(out):
        jobs = [Run("production", seed, config, out / f"seed-{seed}", tuple(overrides), enforce) for seed in seeds]
        done = {job.seed: info for job in jobs if (info := finished(job))}
        if len(done) < len(jobs):
            encode_once(config, truths, encoding)
        infos = engine.map_jobs(
            jobs,
            trained,
            workers=parallel,
            engine=by,
            done=lambda job: done.get(job.seed),
            on_event=on_event,
            keep_going=True,
            env=environment(config, parallel),
        )
        chosen = select([SeedResult(info.seed, info.checkpoint or "", info.metrics) for info in infos])
        write_bytes(out / SELECTION, to_json(chosen))
        folder = out / f"seed-{chosen.chosen}"
        capsule.pack(folder, target, with_data=with_data, extra=_others(out, chosen))
    return Built(str(target), str(folder), chosen, _base(infos))


def _others(out: Path, chosen: Selection) -> dict[str, Path | bytes]:
    """The selection, and of every seed that was not chosen what its numbers rest on; its weights and items stay behind."""
    files: dict[str, Path | bytes] = {SELECTION: to_json(chosen)}
    for one in chosen.seeds:
        if one.seed == chosen.chosen:
            continue
        run = RunDir(out / f"seed-{one.seed}")
        kept = [run.info, run.config, run.ledger, run.findings, *sorted(run.scoreboards.glob("*.json"))]
        files |= {f"{SEEDS}/seed-{one.seed}/{path.relative_to(run.path).as_posix()}": path for path in kept}
    return files


def _base(infos: Sequence[RunInfo]) -> dict[str, float | None]:
    before = "base_"
    return {name.removeprefix(before): value for name, value in infos[0].metrics.items() if name.startswith(before)}
