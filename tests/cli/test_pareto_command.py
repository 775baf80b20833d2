"""`crucible pareto` on a results file: what it prints for machines is the contract, for people it says what to choose."""

from __future__ import annotations

import json

import pytest

from crucible.kernel import stats


def summary(*values):
    made = stats.summary(values)
    return {name: getattr(made, name) for name in made.__struct_fields__}


def row(name, frozen, organic, **more):
    return {
        "condition": name,
        "frozen_tier3": summary(*frozen),
        "organic_holdout": summary(*organic),
        "frozen_overall": summary(*frozen),
        "notes": [],
    } | more


ROWS = [
    row("85_10_5", (0.33, 0.34, 0.35), (0.28, 0.29, 0.30)),
    row("75_15_10", (0.33, 0.33, 0.33), (0.33, 0.34, 0.35)),
    row("65_25_10", (0.25, 0.26, 0.27), (0.34, 0.35, 0.36)),
    row("worse", (0.20, 0.21, 0.22), (0.20, 0.21, 0.22)),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "S").mkdir()
    results = {
        "schema": 1,
        "rows": ROWS,
        "base": {"frozen_tier3": 0.3, "organic_holdout": 0.2},
        "caveats": ["mind the gap"],
    }
    (tmp_path / "S/results.json").write_text(json.dumps(results))
    return tmp_path / "S"


def test_the_json_is_a_list_with_every_field_of_the_contract(crucible, folder):
    done = crucible("pareto", folder, "--json")
    assert done.code == 0
    assert [one["condition"] for one in done.json] == ["85_10_5", "75_15_10", "65_25_10", "worse"]
    assert [one["on_frontier"] for one in done.json] == [True, True, True, False]
    assert [one["knee"] for one in done.json] == [False, True, False, False]
    assert done.json[3]["dominated_by"] == ["85_10_5", "75_15_10", "65_25_10"]
    assert list(done.json[0]) == [
        "condition",
        "frozen_tier3",
        "organic_holdout",
        "on_frontier",
        "knee",
        "meets_floor",
        "n_seeds",
        "frozen_tier3_std",
        "organic_holdout_std",
        "frozen_tier3_ci95_t",
        "organic_holdout_ci95_t",
        "dominated_by",
    ]
    assert done.json[0]["frozen_tier3"] == pytest.approx(0.34) and done.json[0]["n_seeds"] == 3
    assert crucible("pareto", folder / "results.json", "--json").json == done.json


def test_people_get_a_table_and_one_sentence(crucible, folder):
    done = crucible("pareto", folder)
    assert done.code == 0
    assert ["75_15_10", "knee"] in [line.split()[:2] for line in done.out.splitlines()]
    assert "RECOMMENDATION: 75_15_10 (frozen_tier3 0.3300" in done.out
    assert "Against the base: frozen_tier3 +0.0300 (ahead)" in done.out and "Note: mind the gap." in done.out


def test_a_floor_moves_the_knee_or_leaves_nothing(crucible, folder):
    done = crucible("pareto", folder, "--floor", "frozen_tier3=0.335", "--json")
    assert [one["knee"] for one in done.json] == [True, False, False, False]
    assert [one["meets_floor"] for one in done.json] == [True, False, False, False]
    none = crucible("pareto", folder, "--floor", "frozen_tier3=0.9")
    assert none.code == 0 and "RECOMMENDATION: none." in none.out and "below floor" in none.out


def test_any_two_metrics_of_the_rows_make_a_frontier(crucible, folder):
    done = crucible("pareto", folder, "--x", "frozen_overall", "--y", "organic_holdout", "--json")
    assert done.code == 0 and "frozen_overall_std" in done.json[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--x", "accuracy"), 2, "frozen_overall, frozen_tier3, organic_holdout"),
        (("--floor", "speed=1"), 2, "no row of"),
        (("--floor", "frozen_tier3"), 2, "is no floor"),
    ],
)
def test_a_metric_that_is_not_there_is_named_with_those_that_are(crucible, folder, arguments, code, said):
    done = crucible("pareto", folder, *arguments)
    assert done.code == code and said in done.err and "Traceback" not in done.err


def test_a_missing_number_names_its_configuration(crucible, folder):
    broken = [*ROWS, row("holey", (0.1,), (0.1,)) | {"organic_holdout": None}]
    (folder / "results.json").write_text(json.dumps({"rows": broken}))
    done = crucible("pareto", folder)
    assert done.code == 3 and "holey has no organic_holdout" in done.err


def test_a_folder_without_results_says_how_to_get_them(crucible, tmp_path):
    done = crucible("pareto", tmp_path)
    assert done.code == 3 and "results.json" in done.err
    (tmp_path / "results.json").write_text("[]")
    done = crucible("pareto", tmp_path)
    assert done.code == 3 and "crucible sweep" in done.err
