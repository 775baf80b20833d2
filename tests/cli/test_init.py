"""`crucible init` gives a project that works at once, and never writes over anything; `crucible config` tells what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crucible.contrast import evalset, project, read, settings
from crucible.contrast.bundle import normalised


@pytest.mark.parametrize("template", project.TEMPLATES)
def test_every_template_is_a_valid_configuration_of_its_sample_data(
    crucible: Callable, tmp_path: Path, template: str
) -> None:
    made = crucible("init", tmp_path / "p", "--sample-data", "--template", template, "--json")
    assert made.code == 0 and made.json["template"] == template
    checked = crucible("config", "validate", tmp_path / "p/crucible.yaml", "--json")
    assert checked.code == 0 and len(checked.json["inputs"]) == 4
    assert sorted(made.json["files"]) == sorted(
        str(path.relative_to(tmp_path / "p")) for path in (tmp_path / "p").rglob("*") if path.is_file()
    )


def test_the_sample_is_a_sound_eval_set_and_its_holdout_was_never_seen(tmp_path: Path) -> None:
    project.create(tmp_path / "p", "basic", sample_data=True)
    frozen = evalset.load(tmp_path / "p/evalsets/frozen")
    assert len(frozen.items) == 2000 and frozen.tier_distribution["tier3"] == 199
    seen = list(read.read(tmp_path / "p/data/organic.jsonl"))
    seen += list(read.read(tmp_path / "p/evalsets/frozen/v1/source-1.jsonl"))
    holdout = list(read.read(tmp_path / "p/data/organic-holdout.jsonl"))
    assert not {bundle.sense for bundle in seen} & {bundle.sense for bundle in holdout}
    texts = [{normalised(text) for one in some for text in (one.anchor, one.positive)} for some in (seen, holdout)]
    assert not texts[0] & texts[1]
    assert all(bundle.metadata["passes"] >= 3 for bundle in holdout)


def test_a_folder_that_is_not_empty_is_left_alone(crucible: Callable, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/mine.txt").write_text("mine")
    refused = crucible("init", tmp_path / "p", "--sample-data")
    assert refused.code == 1 and "not empty" in refused.err
    here = crucible("init", ".", cwd=tmp_path / "p")
    assert here.code == 1
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["mine.txt"]


def test_an_empty_folder_one_stands_in_becomes_a_project(crucible: Callable, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    assert crucible("init", ".", "--sample-data", cwd=tmp_path / "p").code == 0
    assert crucible("config", "validate", cwd=tmp_path / "p").code == 0
    assert not (tmp_path / "p/.init").exists()


def test_a_project_without_data_says_which_files_are_missing(crucible: Callable, tmp_path: Path) -> None:
    assert crucible("init", tmp_path / "p").code == 0
    refused = crucible("config", "validate", tmp_path / "p/crucible.yaml")
    assert refused.code == 2 and "evalsets/frozen" in refused.err and "crucible mine" in refused.err


def test_an_unknown_template_is_refused(crucible: Callable, tmp_path: Path) -> None:
    assert crucible("init", tmp_path / "p", "--template", "bascic").code == 2
    assert not (tmp_path / "p").exists()


def test_config_show_prints_what_loads_as_the_same(crucible: Callable, tmp_path: Path) -> None:
    project.create(tmp_path / "p", "sweep", sample_data=False)
    shown = crucible("config", "show", tmp_path / "p/crucible.yaml", "--training.steps", "7", env={"STEPS": "9"})
    assert shown.code == 0
    (tmp_path / "again.yaml").write_text(shown.out)
    again = settings.load(tmp_path / "again.yaml")
    assert again.training.steps == 7 and again.experiment.name == "sweep"


def test_an_unknown_key_on_the_command_line_names_the_nearest(crucible: Callable, tmp_path: Path) -> None:
    project.create(tmp_path / "p", "basic", sample_data=False)
    refused = crucible("config", "show", tmp_path / "p/crucible.yaml", "--trainig.steps", "7")
    assert refused.code == 2 and "did you mean training.steps?" in refused.err


def test_config_exposure_counts_the_pools_and_says_what_would_help(crucible: Callable, tmp_path: Path) -> None:
    project.create(tmp_path / "p", "basic", sample_data=True)
    found = crucible("config", "exposure", tmp_path / "p/crucible.yaml", "--json").json
    assert found["groups"] == {"tier1_easy": 1401, "tier2_robust": 400, "legacy": 199, "organic": 627, "expanded": 0}
    # 1,000 steps x 64 x 0.30 x 0.75 / (0.75 + 0.15) over 199 items: the empty pool's ratio goes to the others
    assert found["exposure"]["legacy"]["expected"] == pytest.approx(1000 * 64 * 0.30 * (0.75 / 0.90) / 199)
    assert found["exposure"]["organic"]["status"] == "severe"
