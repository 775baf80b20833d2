"""`crucible report`: files of the asked kind, data on stdout, and a sentence with a command where something is missing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser import loop_sample as sample
from conftest import Ran
from crucible.board.render import outline as outlines
from crucible.cli import report_inputs
from crucible.errors import BadConfig, BadData, CrucibleError, IntegrityBroken

Crucible = Callable[..., Ran]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    sample.run(root / "run", steps=20)
    sample.sweep(root / "sweep", {"a": (0.9, 0.3, 0.1), "b": (0.6, 0.2, 0.13)}, run_steps=5)
    sample.mining(root / "mined" / "organic.stats.json")
    return root


def refused(kind: str, where: Path, **floors: float) -> CrucibleError:
    with pytest.raises(CrucibleError) as caught:
        report_inputs.read(kind, where, floors)
    assert caught.value.fix
    return caught.value


# --- what is written ---------------------------------------------------------------------------------------------------


def test_a_report_writes_its_page_both_pictures_and_prints_what_was_drawn(
    crucible: Crucible, root: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("p.html", "p.png", "p.svg")]
    ran = crucible(
        "report", "--type", "pareto", "--results-dir", root / "sweep", "--output", files[0], "--png", files[1],
        "--svg", files[2], "--floor", "frozen_tier3=0.1", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert files[0].read_text().startswith("<!doctype html>") and files[1].read_bytes().startswith(b"\x89PNG")
    assert ET.parse(files[2]).getroot().get("role") == "img"
    data = ran.json
    assert data["type"] == "pareto" and data["written"] == [str(path) for path in files]
    assert {point["condition"]: point["on_frontier"] for point in data["points"]} == {"a": True, "b": True}
    assert data["floors"] == {"frozen_tier3": 0.1} and data["sentence"].startswith("RECOMMENDATION")


def test_the_end_of_the_name_says_what_is_written(crucible: Crucible, root: Path, tmp_path: Path) -> None:
    ran = crucible("report", "--type", "mining", "--results-dir", root / "mined", "--output", tmp_path / "only.svg")
    assert ran.code == 0 and "Mining accepted 408 of 25,000 candidates" in ran.out
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["only.svg"]
    assert ET.parse(tmp_path / "only.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "nothing to write"),
        (("--output", "page.pdf"), "none of .html, .svg and .png"),
        (("--output", "a.svg", "--svg", "a.svg"), "twice"),
        (("--output", "no/such/folder/a.html"), "there is no folder"),
        (("--output", "a.html", "--floor", "lots"), "is no floor"),
    ],
    ids=["nothing", "suffix", "twice", "folder", "floor"],
)
def test_an_output_that_cannot_be_is_refused_before_anything_is_read(
    crucible: Crucible, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    ran = crucible("report", "--type", "pareto", "--results-dir", tmp_path / "nowhere", *options)
    assert ran.code in (1, 2) and said in ran.err and "Traceback" not in ran.err


def test_a_missing_folder_is_an_error_of_the_data_and_leaves_nothing(crucible: Crucible, tmp_path: Path) -> None:
    ran = crucible("report", "--type", "summary", "--results-dir", "gone", "--output", tmp_path / "a.html", "--json")
    assert ran.code == 3 and ran.json["error"]["kind"] == "BadData" and not (tmp_path / "a.html").exists()


# --- what a folder lacks -----------------------------------------------------------------------------------------------


def test_an_unknown_type_is_refused_with_those_there_are(root: Path) -> None:
    error = refused("histogram", root / "run")
    assert isinstance(error, BadConfig) and "margin-dist" in error.fix


@pytest.mark.parametrize(
    ("kind", "folder", "said", "fix"),
    [
        ("pareto", "run", "is a training run; a pareto report needs a sweep", "crucible sweep ratio"),
        ("margin-dist", "sweep", "is a sweep; a margin-dist report needs a training run", "runs/a/seed-"),
        ("mining", "run", "needs the output of mining", "crucible mine"),
        ("step-trajectory", "run", "holds no step-*.json", "--experiment.eval_every"),
        ("step-trajectory", "sweep", "is of a ratio sweep", "crucible sweep steps"),
        ("summary", "mined", "needs a training run or a sweep", "crucible train"),
    ],
)
def test_a_folder_of_the_wrong_kind_names_what_is_needed_and_how_to_make_it(
    root: Path, kind: str, folder: str, said: str, fix: str
) -> None:
    error = refused(kind, root / folder)
    assert isinstance(error, BadData) and said in error.message and fix in error.fix


def test_an_empty_folder_says_what_was_looked_for(tmp_path: Path) -> None:
    error = refused("summary", tmp_path)
    assert "run.json" in error.message and "sweep.json" in error.message and "crucible train" in error.fix


def test_a_sweep_that_is_still_running_names_its_results_file(tmp_path: Path) -> None:
    folder = sample.sweep(tmp_path / "s", {"a": (0.9, 0.3, 0.1)}, seeds=(42,), run_steps=5)
    (folder / "results.json").unlink()
    error = refused("pareto", folder)
    assert "results.json" in error.message and "crucible sweep" in error.fix


def test_a_run_without_items_names_the_file(tmp_path: Path) -> None:
    folder = sample.run(tmp_path / "r", steps=5)
    (folder / "scoreboards" / "organic.items.jsonl").unlink()
    assert "organic.items.jsonl" in refused("margin-dist", folder).message


def test_a_run_without_truths_has_no_margins_but_a_summary(tmp_path: Path) -> None:
    folder = sample.run(tmp_path / "r", steps=5)
    for path in (folder / "scoreboards").iterdir():
        path.unlink()
    assert "data.frozen_eval" in refused("margin-dist", folder).fix
    _, outline = report_inputs.read("summary", folder, {})
    assert "Neither truth was measured" in "".join(bit.text for bit in outline.lede[0])


def test_items_that_were_edited_are_not_drawn(tmp_path: Path) -> None:
    folder = sample.run(tmp_path / "r", steps=5)
    path = folder / "scoreboards" / "frozen.items.jsonl"
    path.write_text(path.read_text().replace('"rank":2', '"rank":1', 1))
    assert isinstance(refused("margin-dist", folder), IntegrityBroken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tested": None}, "tested"),
        ({"pass_distribution": {"11": 3}}, "pass_distribution"),
        ({"lineups": "ten"}, "lineups"),
    ],
)
def test_a_stats_file_with_a_wrong_key_names_the_key(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = sample.mining(tmp_path / "x.stats.json", **change)
    error = refused("mining", path)
    assert isinstance(error, BadData) and said in error.message and "x.stats.json" in error.message


def test_two_stats_files_in_one_folder_ask_which(tmp_path: Path) -> None:
    sample.mining(tmp_path / "a.stats.json")
    sample.mining(tmp_path / "b.stats.json")
    assert "a.stats.json" in refused("mining", tmp_path).fix


@pytest.mark.parametrize(
    ("key", "value"), [("seeds", 3), ("steps", "many"), ("frozen_tier3", {"mean": 1, "n": "x", "se": 0})]
)
def test_results_that_were_edited_name_the_row_and_the_key(tmp_path: Path, key: str, value: object) -> None:
    folder = sample.sweep(tmp_path / "s", {"a": (0.9, 0.3, 0.1)}, seeds=(42,), run_steps=5)
    results = json.loads((folder / "results.json").read_text())
    results["rows"][0][key] = value
    (folder / "results.json").write_text(json.dumps(results))
    error = refused("pareto", folder)
    assert isinstance(error, BadData) and f"rows[0].{key}" in error.message


def test_a_condition_never_leads_out_of_its_sweep(tmp_path: Path) -> None:
    """`results.json` is a file like any other: a name in it must not open another folder."""
    outside = sample.run(tmp_path / "elsewhere" / "seed-42", steps=5).parent
    folder = sample.sweep(tmp_path / "s", {"a": (0.9, 0.3, 0.1)}, seeds=(42,), run_steps=5)
    results = json.loads((folder / "results.json").read_text())
    results["rows"][0]["condition"] = f"../../{outside.name}"
    (folder / "results.json").write_text(json.dumps(results))
    report, _ = report_inputs.read("summary", folder, {})
    assert report.conditions[0].tiers == {} and report.conditions[0].loss == []


def test_a_sweep_whose_runs_were_removed_still_has_its_reports(tmp_path: Path) -> None:
    folder = sample.sweep(tmp_path / "s", {"a": (0.9, 0.3, 0.1), "b": (0.6, 0.2, 0.13)}, seeds=(1, 2), run_steps=5)
    (folder / "runs").rename(tmp_path / "gone")
    for kind in ("summary", "pareto", "dilution"):
        _, outline = report_inputs.read(kind, folder, {})
        page = outlines.html(outline)
        assert ">a<" in page and ">b<" in page, kind


def test_a_floor_belongs_to_a_pareto_report(root: Path) -> None:
    assert isinstance(refused("summary", root / "run", frozen_tier3=0.3), BadConfig)


def test_a_metric_that_no_row_has_is_no_floor(root: Path) -> None:
    error = refused("pareto", root / "sweep", accuracy=0.3)
    assert isinstance(error, BadConfig) and "frozen_tier3" in error.fix


def test_the_results_file_itself_names_its_sweep(root: Path) -> None:
    assert (
        report_inputs.read("pareto", root / "sweep" / "results.json", {})[0]
        == report_inputs.read("pareto", root / "sweep", {})[0]
    )


def test_a_seed_that_is_not_counted_is_not_drawn(tmp_path: Path) -> None:
    """One checkpoint scored twice is one measurement: the aggregate says so, and the picture must not show two."""
    folder = sample.sweep(tmp_path / "s", {"a": (0.9, 0.3, 0.1)}, seeds=(1, 2), run_steps=5)
    results = json.loads((folder / "results.json").read_text())
    results["rows"][0]["seeds"][1]["counted"] = False
    (folder / "results.json").write_text(json.dumps(results))
    report, _ = report_inputs.read("pareto", folder, {})
    assert [seed.seed for seed in report.points[0].seeds] == [1]


def test_a_log_that_breaks_off_in_its_last_line_is_read_up_to_it(tmp_path: Path) -> None:
    folder = sample.run(tmp_path / "r", steps=5)
    whole = report_inputs.read("summary", folder, {})[0].loss
    log = folder / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-20])
    torn = report_inputs.read("summary", folder, {})[0].loss
    assert len(torn) == len(whole) - 1
    log.write_bytes(log.read_bytes().replace(b'"step":2', b'"step":"x"'))
    assert "log.jsonl:2" in refused("summary", folder).message


def test_items_that_a_cap_left_out_are_not_called_forgotten(tmp_path: Path) -> None:
    """They were never drawn either, but nobody meant to draw them; the run itself says how many of the others it missed."""
    folder = sample.run(tmp_path / "r", steps=60)
    extra = {"index": 9999, "id": "spare", "digest": "", "tier": "tier3_adversarial", "pool": "legacy", "sense": None}
    with (folder / "items.jsonl").open("a") as stream:
        stream.write(json.dumps(extra) + "\n")
    report, _ = report_inputs.read("dilution", folder, {})
    (legacy,) = [one for one in report.counts if one.pool == "legacy"]
    assert len(legacy.times) == sample.GROUPS["legacy"] and any("tier_caps" in note for note in report.notes)
