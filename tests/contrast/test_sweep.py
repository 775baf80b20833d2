"""A sweep is its conditions and seeds and nothing else: not the clock, not the order, not how often it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyloop
from crucible.contrast.config import Config
from crucible.contrast.settings import load, with_overrides
from crucible.contrast.sweeps import aggregate, conditions, sweep
from crucible.contrast.sweeps.aggregate import Outcome
from crucible.contrast.sweeps.conditions import Condition
from crucible.contrast.sweeps.sweep import Plan
from crucible.contrast.train.rundir import PoolExposure, RunDir, RunInfo
from crucible.errors import BadConfig, Mistake
from crucible.kernel import ledger, stats

# --- conditions --------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 100), st.integers(0, 100))
def test_percent_and_fractions_that_sum_to_one_whole_are_the_same_condition(a, b):
    low, high = sorted((a, b))
    percent = (low, high - low, 100 - high)
    (one,) = conditions.ratios("_".join(map(str, percent)))
    (two,) = conditions.ratios("_".join(f"{part / 100:.2f}" for part in percent))
    assert one == two
    assert one.name == "_".join(map(str, percent))
    config = with_overrides(Config(), one.set)
    assert config.curriculum.tier3_ratios.legacy == low / 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("85_10_4", "sums to 99"),
        ("0.8_0.1_0.05", "sums to 0.95"),
        ("85_15", "85_15"),
        ("85_10_5_0", "85_10_5_0"),
        ("-5_100_5", "-5_100_5"),
        ("nan_50_50", "nan_50_50"),
        ("a_b_c", "a_b_c"),
        ("", "''"),
        ("75_15_10,", "75_15_10,"),
        ("75_15_10,0.75_0.15_0.10", "75_15_10 is there twice"),
    ],
)
def test_a_ratio_that_is_none_is_refused_with_what_was_given(text, said):
    with pytest.raises(BadConfig) as caught:
        conditions.ratios(text)
    assert said in caught.value.message and "75_15_10" in caught.value.fix + caught.value.message


def test_steps_and_seeds_are_different_whole_numbers():
    assert [one.set for one in conditions.steps("500,1000")] == [{"training.steps": 500}, {"training.steps": 1000}]
    assert conditions.seeds("42, 123") == (42, 123)
    for text in ("0", "1.5", "-3", "500,500", "many", "1,,2"):
        with pytest.raises(BadConfig):
            conditions.steps(text)
    for text in ("1,1", "a", "1.5", ""):
        with pytest.raises(BadConfig):
            conditions.seeds(text)


def test_ablations_without_a_list_take_away_one_part_at_a_time_and_stay_valid():
    found = conditions.ablations((), Config())
    names = [one.name for one in found]
    assert names[0] == "baseline" and {
        "no_in_batch_negatives",
        "no_organic",
        "no_legacy",
        "uniform_tiers",
        "no_tier3",
    } <= {*names}
    for one in found:
        changed = with_overrides(Config(), one.set)  # raises where shares do not sum to 1
        assert (changed == Config()) == (one.name == "baseline")
    without = with_overrides(
        Config(), next(one.set for one in found if one.name == "no_organic")
    ).curriculum.tier3_ratios
    assert without.organic == 0.0 and without.legacy / without.expanded == pytest.approx(7.5)


def test_what_is_not_there_is_not_taken_away():
    config = with_overrides(
        Config(),
        {
            "model.in_batch_negatives": False,
            "curriculum.tier3_ratios": {"legacy": 1.0, "organic": 0.0, "expanded": 0.0},
        },
    )
    names = {one.name for one in conditions.ablations((), config)}
    assert not names & {"no_in_batch_negatives", "no_organic", "no_expanded", "no_legacy"}


def test_a_given_ablation_is_read_as_it_is_typed():
    text = "no_tier3=curriculum.tier_probabilities:[0.7,0.3,0.0]; model.hidden: 8"
    baseline, one = conditions.ablations([text], Config())
    assert baseline == Condition("baseline", {})
    assert one == Condition("no_tier3", {"curriculum.tier_probabilities": [0.7, 0.3, 0.0], "model.hidden": 8})
    for wrong in (
        "model.hidden:8",
        "x=model.hidden",
        "../x=model.hidden:8",
        "=model.hidden:8",
        "baseline=model.hidden:8",
        "x=a:[",
    ):
        with pytest.raises(BadConfig):
            conditions.ablations([wrong], Config())


# --- aggregation -------------------------------------------------------------------------------------------------------------


def info(
    seed: int, value: float, checkpoint: str | None = None, steps: int = 100, notes: tuple[str, ...] = ()
) -> RunInfo:
    names = ("frozen_tier3", "frozen_overall", "frozen_tier3_q10", "organic_holdout", "organic_q10")
    metrics = {name: value + i / 100 for i, name in enumerate(names)} | {f"base_{name}": 0.25 for name in names}
    return RunInfo(
        schema=1,
        state="done",
        seed=seed,
        steps=steps,
        steps_done=steps,
        encoder={},
        subject="s",
        train="head",
        data={},
        groups={},
        exposure={"legacy": PoolExposure(50.0, "healthy", 48.0 + seed, 40 + seed, seed)},
        notes=["pool is empty", *notes],
        overrides=[],
        metrics=metrics,
        checkpoint=checkpoint or f"c{seed}",
        config_sha256="",
        versions={},
        device="cpu",
        seconds=float(seed),
    )


def rows(*outcomes: Outcome, kind: str = "ratio"):
    condition = Condition("a", {"model.hidden": 1})
    return aggregate.results(kind, [o.seed for o in outcomes], {"a": (condition, outcomes)}, {}, {}, [])


def test_a_row_is_the_summary_of_its_seeds_and_the_worst_of_its_exposures():
    (row,) = rows(*(Outcome(seed, info(seed, value)) for seed, value in ((1, 0.30), (2, 0.32), (3, 0.35)))).rows
    assert row.n_seeds == 3 and row.frozen_tier3 == stats.summary([0.30, 0.32, 0.35])
    assert row.organic_holdout == stats.summary([v + 0.03 for v in (0.30, 0.32, 0.35)])
    legacy = row.exposure["legacy"]
    assert (legacy.expected, legacy.realised_mean, legacy.realised_min, legacy.never_seen) == (50.0, 50.0, 41, 3)


def test_a_checkpoint_counts_once_however_many_seeds_claim_it():
    (row,) = rows(Outcome(1, info(1, 0.3, "same")), Outcome(2, info(2, 0.3, "same")), Outcome(3, info(3, 0.4))).rows
    assert row.n_seeds == 2 and row.frozen_tier3.n == 2
    assert [one.counted for one in row.seeds] == [True, False, True]
    assert "seed 2 is not counted: its checkpoint is the one of seed 1" in row.notes


def test_what_seeds_cannot_show_is_said_the_items_are_a_sample_too():
    outcomes = [Outcome(1, info(1, 0.47))]
    found = aggregate.results(
        "ratio", [1], {"a": (Condition("a", {}), outcomes)}, {}, {"organic_holdout": 100}, ["first"]
    )
    assert found.caveats[0] == "first" and "±0.0500 on organic_holdout (100 items)" in found.caveats[1]


def test_a_seed_that_broke_is_named_and_not_averaged():
    found = rows(Outcome(1, info(1, 0.3)), Outcome(2, None, "loss nan at step 7"))
    assert found.rows[0].n_seeds == 1 and "seed 2 gave no result: loss nan at step 7" in found.rows[0].notes
    none = rows(Outcome(1, None, "x"), Outcome(2, None, "y"))
    assert none.rows == [] and none.failed[0].reasons == ["seed 1: x", "seed 2: y"]


def test_what_one_seed_alone_noted_is_not_the_conditions_note():
    (row,) = rows(Outcome(1, info(1, 0.3, notes=("a checkpoint was damaged",))), Outcome(2, info(2, 0.3))).rows
    assert row.notes == ["pool is empty"]


def test_a_steps_sweep_looks_for_the_cliff():
    def both(steps, frozen, organic):
        made = info(1, frozen, steps=steps)
        return Outcome(1, msgspec.structs.replace(made, metrics=made.metrics | {"organic_holdout": organic}))

    runs = {
        str(steps): (Condition(str(steps), {"training.steps": steps}), [both(steps, frozen, organic)])
        for steps, frozen, organic in ((100, 0.3, 0.30), (200, 0.4, 0.35), (300, 0.5, 0.20))
    }
    (finding,) = aggregate.results("steps", [1], runs, {}, {}, []).findings
    assert finding.guardrail == "G8" and "between 200 and 300 steps" in finding.message
    assert aggregate.results("ratio", [1], runs, {}, {}, []).findings == []


# --- real runs ---------------------------------------------------------------------------------------------------------------

RATIOS, SEEDS = "85_10_5,50_25_25", (1, 2)


def judge(found):
    return {"condition": found.rows[0].condition if found.rows else None, "rows": len(found.rows)}


def plan(config, **change):
    settings = {"kind": "ratio", "config": config, "conditions": conditions.ratios(RATIOS), "seeds": SEEDS} | change
    return Plan(**settings)


def run(plan, out, events=None, **more):
    on_event = events.append if events is not None else None
    return sweep.sweep(plan, out, judge, by="inline", on_event=on_event, **more)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A corpus, its configuration, and a cache of its own."""
    folder = tmp_path_factory.mktemp("project")
    before = os.environ.get("CRUCIBLE_CACHE_DIR")
    os.environ["CRUCIBLE_CACHE_DIR"] = str(folder / "cache")
    yield tinyloop.corpus(folder / "corpus")
    os.environ.pop("CRUCIBLE_CACHE_DIR") if before is None else os.environ.update(CRUCIBLE_CACHE_DIR=before)


@pytest.fixture(scope="module")
def config(project):
    return load(project)


@pytest.fixture(scope="module")
def swept(config, tmp_path_factory):
    out = tmp_path_factory.mktemp("swept") / "S"
    events = []
    return out, run(plan(config), out, events), events


def test_every_run_is_in_its_folder_and_every_row_is_what_the_runs_measured(swept):
    out, found, events = swept
    assert [row.condition for row in found.rows] == ["85_10_5", "50_25_25"]
    for row in found.rows:
        infos = [RunDir(out / "runs" / row.condition / f"seed-{seed}").read_info() for seed in SEEDS]
        assert all(one.state == "done" for one in infos)
        for metric in ("frozen_tier3", "organic_holdout", "frozen_overall", "frozen_tier3_q10", "organic_q10"):
            assert getattr(row, metric) == stats.summary([one.metrics[metric] for one in infos])
        assert len({one.checkpoint for one in infos}) == 2 == row.n_seeds
    assert found.base["organic_holdout"] == infos[0].metrics["base_organic_holdout"]
    assert [event.kind for event in events].count("finished") == 4


def test_the_results_on_disk_hold_no_time_and_are_what_was_returned(swept):
    out, found, _ = swept
    text = (out / "results.json").read_text()
    assert msgspec.json.decode(text, type=aggregate.Results) == found == sweep.load(out)
    assert str(out) not in text and '"seconds"' not in text and '"timestamp"' not in text


def test_the_ledger_holds_every_record_of_every_run_once_and_the_recommendation(swept):
    out, found, _ = swept
    lines = list(ledger.read(out / "ledger.jsonl"))
    assert lines[0].entry.kind == "sweep.started"
    own = [line.entry.body for line in lines if line.entry.kind == "record"]
    runs = [line.entry.body for path in out.glob("runs/*/*/ledger.jsonl") for line in ledger.read(path, "record")]
    assert len(own) == len({json.dumps(body, sort_keys=True) for body in runs}) == 4 * 2 + 2  # the base is one model
    assert {body["subject"]["model"] for body in own} >= {"head on hashing:64, 85_10_5", "head on hashing:64, 50_25_25"}
    assert lines[-1].entry.body["recommendation"] == found.recommendation


def test_the_same_command_again_trains_nothing_and_changes_nothing(swept, config):
    out, found, _ = swept
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    events = []
    assert run(plan(config), out, events) == found
    assert {event.kind for event in events} == {"skipped"}
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_lost_run_is_made_again_with_the_same_results(swept, config, tmp_path):
    out, _, _ = swept
    before = (out / "results.json").read_bytes()
    (out / "runs/85_10_5/seed-2").rename(tmp_path / "lost")
    (out / "results.json").unlink()
    events = []
    run(plan(config), out, events)
    assert [event.job for event in events if event.kind == "started"] == ["85_10_5/seed-2"]
    assert (out / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": (1, 3)}, "seeds are 1, 3, there 1, 2"),
        (
            {"conditions": conditions.ratios("85_10_5,40_30_30")},
            "conditions are 85_10_5, 40_30_30, there 85_10_5, 50_25_25",
        ),
        ({"kind": "ablation"}, "kind is ablation, there ratio"),
        ({"conditions": [Condition("85_10_5", {}), Condition("50_25_25", {})]}, "same names and other settings"),
    ],
)
def test_another_sweeps_folder_is_refused_with_the_difference(swept, config, change, said):
    with pytest.raises(BadConfig, match="holds another sweep") as caught:
        run(plan(config, **change), swept[0])
    assert said in caught.value.message


def test_other_settings_or_other_data_are_refused_by_name(swept, config, project, tmp_path):
    with pytest.raises(BadConfig, match=r"training.learning_rate is 0.5, there 0.002"):
        run(plan(with_overrides(config, {"training.learning_rate": 0.5})), swept[0])
    other = tmp_path / "bundles.jsonl"
    other.write_bytes((project.parent / "bundles.jsonl").read_bytes().replace(b"river0", b"river1"))
    with pytest.raises(BadConfig, match=r"the data is not the same: .*bundles.jsonl"):
        run(plan(with_overrides(config, {"data.bundles": [str(other)]})), swept[0])


def test_the_same_data_in_another_place_is_the_same_sweep(swept, config, project, tmp_path):
    moved = tmp_path / "bundles.jsonl"
    moved.write_bytes((project.parent / "bundles.jsonl").read_bytes())
    assert run(plan(with_overrides(config, {"data.bundles": [str(moved)]})), swept[0]) == swept[1]


def test_a_folder_with_something_else_in_it_is_refused(config, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadConfig, match=r"holds other files \(thesis.tex\)"):
        run(plan(config), tmp_path)
    with pytest.raises(BadConfig, match="is a file"):
        run(plan(config), tmp_path / "thesis.tex")


def test_two_sweeps_never_share_a_folder(config, tmp_path):
    with sweep.alone(tmp_path), pytest.raises(Mistake, match="another process works in"):
        run(plan(config), tmp_path)


@pytest.mark.parametrize(
    ("key", "command"), [("data.frozen_eval", "crucible evalset freeze"), ("data.organic_eval", "crucible pool split")]
)
def test_both_truths_are_required_with_the_commands_that_make_them(config, tmp_path, key, command):
    with pytest.raises(BadConfig, match=f"{key} is not set") as caught:
        run(plan(with_overrides(config, {key: None})), tmp_path / "S")
    assert command in caught.value.fix and not (tmp_path / "S").exists()


def test_a_frozen_truth_without_a_tier_3_is_no_truth(config, tmp_path, project):
    organic = str(project.parent / "plain.jsonl")
    rows = [json.loads(line) for line in (project.parent / "frozen.jsonl").open()]
    Path(organic).write_text("".join(json.dumps(row | {"metadata": {"tier": "tier1_easy"}}) + "\n" for row in rows))
    with pytest.raises(BadConfig, match="has no item in tier 3"):
        run(plan(with_overrides(config, {"data.frozen_eval": organic})), tmp_path / "S")


def test_a_condition_with_wrong_settings_ends_the_sweep_before_it_begins(config, tmp_path):
    wrong = conditions.ablations(["deep=model.hiden:8"], config)
    with pytest.raises(BadConfig, match=r"condition deep: .*hiden.*did you mean model.hidden"):
        run(plan(config, kind="ablation", conditions=wrong), tmp_path / "S")
    assert not (tmp_path / "S").exists()


def test_a_condition_that_breaks_is_a_result_and_ends_nobody_else(config, tmp_path):
    # Weights beyond what float32 holds: the loss is no number after a few steps.
    wild = conditions.ablations(["wild=training.learning_rate:1e12;training.gradient_clip:0"], config)
    found = run(plan(config, kind="ablation", conditions=wild, seeds=(1,)), tmp_path / "S")
    assert [row.condition for row in found.rows] == ["baseline"]
    assert found.failed[0].condition == "wild" and "seed 1: training broke at step" in found.failed[0].reasons[0]


def test_a_condition_that_a_guardrail_stops_is_a_result(config, tmp_path):
    found = run(plan(config, seeds=(1,), enforce=True), tmp_path / "S")
    assert found.rows == [] and all("guardrail G1" in one.reasons[0] for one in found.failed)
    allowed = run(plan(config, seeds=(1,), enforce=True, overrides=("G1",)), tmp_path / "T")
    assert len(allowed.rows) == 2


# --- killed ------------------------------------------------------------------------------------------------------------------


def started(project, out):
    """The real command; what it says goes to a file beside its folder."""
    options = f"--ratios {RATIOS} --seeds 1,2 --parallel 2 --training.steps 300".split()
    with out.with_suffix(".said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "crucible", "sweep", "ratio", "--config", project, "--output-dir", out, *options],
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def workers_of(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def until(true, what):
    for _ in range(6000):
        if true():
            return
        time.sleep(0.02)
    pytest.fail(f"waited in vain until {what}")


def logged(out):
    return sum(path.stat().st_size for path in out.glob("runs/*/*/log.jsonl"))


@pytest.mark.slow
def test_a_sweep_killed_three_times_ends_with_the_same_bytes_as_one_left_alone(project, tmp_path):
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert started(project, alone).wait(timeout=300) == 0, alone.with_suffix(".said").read_text()
    for victim in ("parent", "workers", "parent"):
        before = logged(killed)
        process = started(project, killed)
        until(lambda: logged(killed) > before + 2000 or process.poll() is not None, "it trains")  # noqa: B023
        assert process.poll() is None
        children = workers_of(process.pid)
        if victim == "workers":
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            until(lambda: "tried again" in killed.with_suffix(".said").read_text(), "a new worker is started")
        process.kill()
        process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "no worker is left")  # noqa: B023
    assert started(project, killed).wait(timeout=300) == 0, killed.with_suffix(".said").read_text()
    assert (killed / "results.json").read_bytes() == (alone / "results.json").read_bytes()
    for path in alone.rglob("head.npz"):
        assert (killed / path.relative_to(alone)).read_bytes() == path.read_bytes()
    assert ledger.verify(killed / "ledger.jsonl").lines == ledger.verify(alone / "ledger.jsonl").lines
