"""Seeds and made-up effects -> run, sweep and mining folders as the training loop leaves them; no model, no training."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crucible.contrast.exposure import status_of
from crucible.contrast.mining.mined import Calibration, MiningStats, PoolStats, Settings
from crucible.contrast.score import Scores
from crucible.contrast.scoreboard import EvalHeader, Scoreboard, statistics
from crucible.contrast.sweeps import aggregate
from crucible.contrast.sweeps.aggregate import Outcome
from crucible.contrast.sweeps.conditions import Condition, Kind
from crucible.contrast.sweeps.sweep import Sweep
from crucible.contrast.tiers import TIERS
from crucible.contrast.train.rundir import RunInfo
from crucible.documents import write_json
from crucible.kernel import digest
from crucible.kernel.pin import Pin

SEEDS = (42, 123, 456)
FROZEN, ORGANIC = (630, 180, 90), 300
"""Items of each frozen tier, and of the organic holdout."""
GROUPS = {"tier1_easy": 1400, "tier2_robust": 420, "legacy": 210, "organic": 96, "expanded": 0}
BATCH, TIER3 = 32, 0.25

HOSTILE = "</title><script>alert(1)</script>\u202edlog\u202c\x1b[31m"
RATIOS: dict[str, tuple[float, float, float]] = {
    # name: legacy share, lift on frozen tier 3, lift on the organic holdout
    "95_5_0": (0.95, 0.34, 0.075),
    "85_10_5": (0.85, 0.33, 0.098),
    "75_15_10": (0.75, 0.315, 0.124),
    "65_25_10": (0.65, 0.262, 0.133),
    "50_40_10": (0.50, 0.171, 0.121),
}
MANY: dict[str, tuple[float, float, float]] = {
    **RATIOS,
    "legacy_only_without_any_organic_or_expanded_bundles": (1.0, 0.338, 0.02),
    "75_15_10_in_batch_negatives_off": (0.75, 0.309, 0.119),
    "75_15_10_temperature_0.02": (0.75, 0.31, 0.121),
    "75_15_10_again": (0.75, 0.315, 0.124),
    "hidden_512": (0.75, 0.29, 0.126),
    "phased_v2": (0.75, 0.322, 0.109),
    "warmup_0": (0.75, 0.30, 0.101),
}


# --- a run -------------------------------------------------------------------------------------------------------------


def run(
    folder: Path,
    *,
    seed: int = 42,
    steps: int = 300,
    lift: tuple[float, float] = (0.31, 0.12),
    legacy_share: float = 0.75,
    eval_every: int | None = None,
    cliff: bool = False,
    name: str = "minilm + head",
    overrides: Sequence[str] = (),
    findings: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A finished training run; `lift` is what it gains on frozen tier 3 and on the organic holdout."""
    rng = random.Random(f"{seed} {lift} {steps}")
    folder.mkdir(parents=True)
    (folder / "scoreboards").mkdir()
    boards = {
        "base-frozen": _board(folder, "base-frozen", (0.0, 0.0), 0, "minilm"),
        "base-organic": _board(folder, "base-organic", (0.0, 0.0), 0, "minilm"),
        "frozen": _board(folder, "frozen", lift, seed, name),
        "organic": _board(folder, "organic", lift, seed, name),
    }
    found = list(findings)
    for step in range(eval_every or steps + 1, steps + 1, eval_every or 1):
        share = step / steps
        grown = lift[0] * min(1.0, share * 1.6) ** 0.5, lift[1] * min(1.0, share * 2.2) ** 0.5
        if cliff and share > 0.6:
            grown = grown[0], lift[1] * (1.0 - 1.5 * (share - 0.6))
        for which in ("frozen", "organic"):
            _board(folder, f"step-{step:08}-{which}", grown, seed, name)
    if cliff and eval_every:
        found.append(
            {
                "guardrail": "G8",
                "level": "warning",
                "when": "after",
                "step": int(steps * 0.7),
                "message": f"overfitting cliff between {int(steps * 0.6)} and {int(steps * 0.7)} steps: frozen tier 3 "
                "0.4111 -> 0.4333, organic holdout 0.4700 -> 0.4467",
                "numbers": {"from_step": int(steps * 0.6), "to_step": int(steps * 0.7)},
                "overridden": False,
            }
        )
    _lines(folder / "findings.jsonl", found)
    items = _items(folder)
    drawn = _log(folder, rng, items, steps, legacy_share)
    exposure = _exposure(items, drawn, steps, legacy_share)
    write_json(folder / "run.json", _info(boards, exposure, seed, steps, name, overrides))
    (folder / "config.yaml").write_text(f"training: {{steps: {steps}}}\nmodel: {{encoder: minilm, train: head}}\n")
    return folder


def _info(
    boards: Mapping[str, Scoreboard],
    exposure: Mapping[str, Any],
    seed: int,
    steps: int,
    name: str,
    overrides: Sequence[str],
) -> dict[str, Any]:
    return {
        "schema": 1,
        "state": "done",
        "seed": seed,
        "steps": steps,
        "steps_done": steps,
        "encoder": {"id": "minilm", "digest": _sha("minilm")},
        "subject": name,
        "train": "head",
        "data": {
            "data/train-bundles.jsonl": _sha("train"),
            "data/organic-train.jsonl": _sha("organic"),
            "evalsets/wordnet/v1": _sha("frozen"),
        },
        "groups": GROUPS,
        "exposure": exposure,
        "notes": ["pool expanded is empty: its ratio 0.10 goes to legacy and organic in proportion"],
        "overrides": list(overrides),
        "metrics": _metrics(boards),
        "checkpoint": _sha(f"checkpoint {name} {seed}"),
        "config_sha256": _sha(f"config {steps}"),
        "versions": {"crucible": "0.1.0", "numpy": "2.4.6", "torch": "2.13.0"},
        "device": "cpu",
        "seconds": 48.1,
    }


def _metrics(boards: Mapping[str, Scoreboard]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for prefix, own in (("base_", "base-"), ("", "")):
        frozen, organic = boards[f"{own}frozen"], boards[f"{own}organic"]
        found |= {
            f"{prefix}frozen_tier3": frozen.by_tier[TIERS[2]].pass_rate,
            f"{prefix}frozen_overall": frozen.overall.pass_rate,
            f"{prefix}frozen_tier3_q10": frozen.by_tier[TIERS[2]].q10_margin,
            f"{prefix}organic_holdout": organic.overall.pass_rate,
            f"{prefix}organic_q10": organic.overall.q10_margin,
        }
    return found


def _board(folder: Path, which: str, lift: tuple[float, float], seed: int, name: str) -> Scoreboard:
    """Margins whose pass rates are near what `lift` asks for; the base encoder never passes a frozen tier 3."""
    frozen = which.endswith("frozen")
    rng = np.random.default_rng([7, frozen])  # the same items whatever the model
    noise = np.random.default_rng([seed, int(1000 * lift[0]), int(1000 * lift[1])])
    if frozen:
        tier = np.repeat(np.arange(3, dtype=np.int8), FROZEN)
        centre, spread = np.array((0.11, -0.04, -0.16))[tier], np.array((0.07, 0.015, 0.05))[tier]
        margin = centre + spread * rng.standard_normal(len(tier))
        margin = np.where(tier == 2, np.minimum(margin, -0.08), margin)
        gain = np.array((0.01, 0.35, 0.50 * lift[0]))[tier] * (lift[0] > 0) + 0.02 * lift[0]
    else:
        tier = np.full(ORGANIC, 2, dtype=np.int8)
        margin = -0.045 + 0.11 * rng.standard_normal(ORGANIC)
        gain = np.full(ORGANIC, 0.30 * lift[1])
    moved = margin + gain * (lift[0] > 0) + (0.06 + 0.2 * lift[0]) * noise.standard_normal(len(tier)) * (lift[0] > 0)
    margin = np.round(moved, 6)
    scores = Scores(-margin, np.where(margin > 0, 1, 2).astype(np.int32), np.zeros(len(tier), dtype=np.int32))
    overall, by_tier = statistics(scores, tier)
    named = f"wordnet-{'examples' if frozen else 'organic-holdout'}"
    items = folder / "scoreboards" / f"{which}.items.jsonl"
    _lines(items, [_item(f"{named}-{n:05}", *pair) for n, pair in enumerate(zip(margin.tolist(), tier, strict=True))])
    header = EvalHeader(
        source_hash=_sha(named)[:16],
        seed=42,
        item_count=len(tier),
        tier_distribution={f"tier{i + 1}": int((tier == i).sum()) for i in range(3)},
        version="v1",
        fingerprint=f"{_sha(named)[:16]}|42|{len(tier)}",
        eval_set=named,
        model={"id": name, "digest": _sha(f"{name} {seed}")},
        subject=name,
        model_seed=seed,
        recorded=None,
        pin=Pin("contrast.evalset", {"source": _sha(named), "reference_encoder": _sha("minilm")}),
        items={"file": items.name, "sha256": digest.of_file(items)},
    )
    board = Scoreboard(header, overall, by_tier, "2026-11-14T09:26:53+00:00", name)
    write_json(folder / "scoreboards" / f"{which}.json", board)
    return board


def _item(own: str, margin: float, tier: int) -> dict[str, Any]:
    return {"id": own, "danger": -margin, "margin": margin, "rank": 1 if margin > 0 else 2, "tier": TIERS[tier]}


def _items(folder: Path) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    lines = []
    for name, size in GROUPS.items():
        for _ in range(size):
            groups.setdefault(name, []).append(len(lines))
            tier = TIERS.index(name) if name in TIERS else 2
            pool = name if name not in TIERS else "legacy"
            lines.append({"index": len(lines), "id": f"b{len(lines):05}", "digest": _sha(f"item {len(lines)}"), "tier": TIERS[tier], "pool": pool, "sense": f"s{len(lines) % 700}"})  # fmt: skip
    _lines(folder / "items.jsonl", lines)
    return groups


def _log(
    folder: Path, rng: random.Random, groups: Mapping[str, list[int]], steps: int, legacy_share: float
) -> list[int]:
    """One line a step; the indices that were drawn, in order."""
    decks: dict[str, list[int]] = {}

    def draw(name: str) -> int:
        if not decks.get(name):
            decks[name] = rng.sample(groups[name], len(groups[name]))
        return decks[name].pop()

    drawn, lines = [], []
    tier_shares = ((1 - TIER3) * 2 / 3, (1 - TIER3) / 3, TIER3)
    for step in range(1, steps + 1):
        tiers, pools, batch = [0, 0, 0], {"legacy": 0, "organic": 0, "expanded": 0}, []
        for _ in range(BATCH):
            tier = rng.choices((0, 1, 2), tier_shares)[0]
            name = TIERS[tier] if tier < 2 else ("legacy" if rng.random() < legacy_share else "organic")
            tiers[tier] += 1
            if tier == 2:
                pools[name] += 1
            batch.append(draw(name))
        loss = 0.55 + 1.9 * np.exp(-step / (0.12 * steps)) + rng.gauss(0, 0.05)
        lines.append({"step": step, "loss": round(float(loss), 6), "lr": 0.001, "grad_norm": round(abs(rng.gauss(0.8, 0.1)), 6), "tiers": tiers, "pools": pools, "drawn": batch})  # fmt: skip
        drawn += batch
    _lines(folder / "log.jsonl", lines)
    return drawn


def _exposure(
    groups: Mapping[str, list[int]], drawn: Sequence[int], steps: int, legacy_share: float
) -> dict[str, dict[str, Any]]:
    counts = np.bincount(np.array(drawn, dtype=np.int64), minlength=sum(map(len, groups.values())))
    found = {
        "expanded": {"expected": None, "status": None, "realised_mean": None, "realised_min": None, "never_seen": 0}
    }
    for pool, share in (("legacy", legacy_share), ("organic", 1 - legacy_share)):
        own = counts[groups[pool]]
        expected = steps * BATCH * TIER3 * share / len(groups[pool])
        found[pool] = {
            "expected": expected,
            "status": status_of(expected),
            "realised_mean": float(own.mean()),
            "realised_min": int(own.min()),
            "never_seen": int((own == 0).sum()),
        }
    return dict(sorted(found.items(), key=lambda pair: ("legacy", "organic", "expanded").index(pair[0])))


# --- a sweep -----------------------------------------------------------------------------------------------------------


def sweep(
    folder: Path,
    conditions: Mapping[str, tuple[float, float, float]] = RATIOS,
    *,
    kind: Kind = "ratio",
    seeds: Sequence[int] = SEEDS,
    steps: Mapping[str, int] | None = None,
    run_steps: int = 40,
) -> Path:
    """Runs of every condition and seed, aggregated by the product itself; `steps` makes it a sweep over step counts.

    A name that could be no folder has no run folders: its row is all there is of it.
    """
    folder.mkdir(parents=True)
    runs: dict[str, tuple[Condition, list[Outcome]]] = {}
    for name, (legacy_share, frozen, organic) in conditions.items():
        outcomes = []
        for place, seed in enumerate(seeds):
            sway = (place - 1) * 0.012, (1 - place) * 0.008
            where = folder / "runs" / _slug(name) / f"seed-{seed}"
            run(
                where, seed=seed, steps=run_steps, lift=(frozen + sway[0], organic + sway[1]), legacy_share=legacy_share
            )
            info = msgspec.json.decode((where / "run.json").read_bytes(), type=RunInfo)
            info = msgspec.structs.replace(info, steps=(steps or {}).get(name, run_steps))
            # Conditions with equal settings train equal models; seeds never do.
            checkpoint = _sha(f"checkpoint {frozen} {organic} {seed}")
            outcomes.append(Outcome(seed, msgspec.structs.replace(info, checkpoint=checkpoint)))
        runs[name] = (Condition(name, {"curriculum.tier3_ratios.legacy": legacy_share}), outcomes)
    items = {"frozen_tier3": FROZEN[2], "organic_holdout": ORGANIC}
    caveats = [
        "minilm itself tiered the frozen set: tier 3 is what it fails, so its own number there is low by construction"
    ]
    found = aggregate.results(kind, seeds, runs, {"frozen": "a|42|900", "organic": "b|42|300"}, items, caveats)
    write_json(folder / "results.json", found)
    plan = Sweep(1, kind, [one for one, _ in runs.values()], list(seeds), _sha("sweep"), {"train.jsonl": _sha("train")})
    write_json(folder / "sweep.json", plan)
    (folder / "config.yaml").write_text("model: {encoder: minilm, train: head}\n")
    return folder


STEPS: dict[str, tuple[float, float, float]] = {
    "steps_500": (0.75, 0.18, 0.07),
    "steps_1000": (0.75, 0.24, 0.11),
    "steps_2000": (0.75, 0.29, 0.13),
    "steps_5000": (0.75, 0.33, 0.12),
    "steps_10000": (0.75, 0.36, 0.05),
}


def steps_sweep(folder: Path) -> Path:
    return sweep(folder, STEPS, kind="steps", steps={name: int(name.removeprefix("steps_")) for name in STEPS})


# --- mining ------------------------------------------------------------------------------------------------------------


def mining(path: Path, **changes: Any) -> Path:
    """The stats file of `crucible mine`, with about the share that the public project reports."""
    passes = [22871, 1207, 514, 148, 71, 52, 33, 34, 21, 19, 30]
    pool = PoolStats(top_k=16, in_lineup=3, candidates_with=24_100, mean=8.7, max=16)
    stats_ = MiningStats(
        candidates=26_412,
        tested=25_000,
        accepted=408,
        written=371,
        mining_pass_rate=408 / 25_000,
        threshold=0.1174,
        threshold_source="calibrated",
        calibration=Calibration(quantile=0.5, bundles=454, lowest=0.02, highest=0.4),
        lineups=10,
        min_passes=3,
        seed=42,
        style="examples",
        pass_distribution={str(n): count for n, count in enumerate(passes)},
        strength={"ultra": 70, "mid": 119, "low": 733, "none": 24078},
        effective_lineups={"min": 0, "mean": 9.87, "too_few": 12},
        rejected={"low_passes": 1721, "no_pass": 22871, "no_within_lemma_negative": 1400, "too_few_lineups": 12},
        quarantined=1721,
        duplicates={"signature": 9, "sense": 2811, "within_output": 37},
        left_out={"max_candidates": 0, "max_output": 0},
        pools={"within_lemma": pool, "sibling": pool, "cross_lemma": pool},
        encoder={"id": "minilm", "digest": _sha("minilm")},
        events=48_213,
        senses=17_105,
        settings=Settings(calibrate_to=0.5),
        inputs={"data/events.jsonl": _sha("events"), "data/tier3.jsonl": _sha("tier3")},
        outputs={"organic.jsonl": _sha("organic"), "organic.quarantine.jsonl": _sha("quarantine")},
        notes=[],
        duration_s=131.7,
        mined_at="2026-11-14T09:26:53+00:00",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**msgspec.to_builtins(stats_), **changes})
    return path


def _lines(path: Path, values: Sequence[Mapping[str, Any]]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(value) + b"\n" for value in values))


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:60]


def _sha(text: str) -> str:
    return digest.of_json(text)
