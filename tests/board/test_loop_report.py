"""The reports of the loop: the answer first, nothing but the data, every attack is text, and the same data is the same file."""

from __future__ import annotations

import functools
import html
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser import loop_sample as sample
from crucible.board import charts
from crucible.board.plots import curves, exposure, labels
from crucible.board.plots.labels import Box, apart, place, shortened, width_of
from crucible.board.plots.pareto import Mark, scatter
from crucible.board.render import outline as pages
from crucible.board.render.outline import Outline
from crucible.board.render.reports import dilution, margins, pareto, summary_run, trajectory
from crucible.cli import report_inputs

from .test_eval_report import Reader

KNOWN = {charts.BLUE, charts.ORANGE, charts.GREY, charts.PURPLE}
TEMPORARY = tempfile.TemporaryDirectory(prefix="crucible-reports-")  # removed when the process ends
CASES = {
    "summary of a run": ("summary", "run"),
    "summary of a sweep": ("summary", "ratio"),
    "pareto": ("pareto", "ratio"),
    "margins": ("margin-dist", "run"),
    "steps of a run": ("step-trajectory", "run"),
    "steps of a sweep": ("step-trajectory", "steps"),
    "dilution of a run": ("dilution", "run"),
    "dilution of a sweep": ("dilution", "ratio"),
    "mining": ("mining", "mined"),
}


@functools.cache
def folders() -> Path:
    root = Path(TEMPORARY.name)
    sample.run(root / "run", steps=60, eval_every=20, cliff=True, overrides=["G1"])
    sample.sweep(root / "ratio")
    sample.steps_sweep(root / "steps")
    sample.sweep(root / "hostile", {sample.HOSTILE: (0.8, 0.3, 0.1), "b": (0.7, 0.2, 0.12)}, run_steps=5)
    sample.mining(root / "mined" / "organic.stats.json")
    return root


@functools.cache
def read(kind: str, folder: str) -> tuple[Any, Outline]:
    return report_inputs.read(kind, folders() / folder, {})


@functools.cache
def page(kind: str, folder: str) -> str:
    return pages.html(read(kind, folder)[1])


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    return CASES[request.param]


# --- every page --------------------------------------------------------------------------------------------------------


def test_the_answer_comes_first_then_the_picture_then_the_table_then_the_method(case: tuple[str, str]) -> None:
    text = page(*case)
    order = [text.index(mark) for mark in ('class="lede', "<figure", "<table", "How it was measured", "<footer")]
    assert order == sorted(order)
    lede = read(*case)[1].lede
    assert 1 <= len(lede) <= 2 and sum(len(bit.text) for bits in lede for bit in bits) < 400


def test_page_names_nothing_outside_itself_and_runs_nothing(case: tuple[str, str]) -> None:
    text = page(*case)
    for tag, attributes in Reader(text).tags:
        assert tag not in ("script", "iframe", "object", "embed", "img", "base", "form")
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href", "action", "poster", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert not re.search(r"@import|@font-face|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_every_chart_has_a_name_and_says_in_words_what_it_shows(case: tuple[str, str]) -> None:
    drawn = re.findall(r"<svg .*?</svg>", page(*case), re.DOTALL)
    assert drawn
    for one in drawn:
        root = ET.fromstring(one)
        title, words = (node.text or "" for node in list(root)[:2])
        assert root.get("role") == "img" and len(title) > 3 and re.search(r"\d", words)
        colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', one))
        assert colours <= {"none", "transparent", "currentColor", *KNOWN}


def test_same_data_same_page() -> None:
    assert pages.html(report_inputs.read("step-trajectory", folders() / "run", {})[1]) == page("step-trajectory", "run")


def test_what_was_drawn_survives_json(case: tuple[str, str]) -> None:
    data = read(*case)[0]
    again = msgspec.json.decode(msgspec.json.encode(data), type=type(data))
    assert msgspec.json.encode(again) == msgspec.json.encode(data)


def test_no_number_is_missing_or_not_a_number(case: tuple[str, str]) -> None:
    assert not re.search(r"\b(nan|inf|None|null|undefined)\b", Reader(page(*case)).text)


@pytest.mark.slow
def test_same_folder_same_bytes_in_any_process() -> None:
    """In this process, where charts were drawn before, and in a fresh one with another hash seed; pages and pictures."""
    program = (
        "import sys, pathlib; from crucible.cli import report_inputs; from crucible.board.render import outline as p; "
        "o = report_inputs.read('pareto', pathlib.Path(sys.argv[1]), {})[1]; m = p.main_picture(o); "
        "sys.stdout.buffer.write(p.html(o).encode() + p.svg(m) + p.png(m))"
    )
    place = str(folders() / "ratio")
    made = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, check=True, env={"PYTHONHASHSEED": "5"}
    )
    picture = pages.main_picture(read("pareto", "ratio")[1])
    assert picture
    assert made.stdout == page("pareto", "ratio").encode() + pages.svg(picture) + pages.png(picture)


def test_importing_the_reports_does_not_load_altair() -> None:
    program = "import crucible.cli.report, sys; assert not {'altair', 'vl_convert', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


# --- text from outside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pareto", "summary", "dilution"])
def test_a_condition_called_script_stays_a_name(kind: str) -> None:
    text = page(kind, "hostile")
    read_back = Reader(text)
    assert "script" not in {tag for tag, _ in read_back.tags}
    assert not set(text) & set("\u202e\u202c\x1b")
    assert "</title><script>alert(1)</script>" in read_back.text
    assert "\\u202edlog" in read_back.text.replace(" ", "")
    for one in re.findall(r"<svg .*?</svg>", text, re.DOTALL):
        ET.fromstring(one)


def test_a_picture_on_its_own_is_safe_and_needs_no_page() -> None:
    picture = pages.main_picture(read("pareto", "hostile")[1])
    assert picture
    root = ET.fromstring(pages.svg(picture))
    tags = {node.tag.rpartition("}")[2] for node in root.iter()}
    assert "script" not in tags and "rect" in tags
    drawn = pages.svg(picture).decode()
    assert "currentColor" not in drawn.split("</desc>")[1] and charts.ALONE_PAPER in drawn
    assert pages.png(picture).startswith(b"\x89PNG\r\n")


# --- labels ------------------------------------------------------------------------------------------------------------

FRAME = (600.0, 400.0)
points = st.lists(st.tuples(st.floats(0, FRAME[0]), st.floats(0, FRAME[1])), max_size=14)


@given(points, st.lists(st.floats(8, 180), min_size=14, max_size=14))
def test_labels_lie_inside_off_the_points_and_off_each_other(
    at: list[tuple[float, float]], widths: list[float]
) -> None:
    marks = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in at]
    spots = place(at, widths[: len(at)], FRAME, marks)
    if spots is None:  # allowed where there is no room; numbers or nothing stand there instead
        return
    boxes = [labels._box(spot, width) for spot, width in zip(spots, widths, strict=False)]
    for i, box in enumerate(boxes):
        assert min(box.left, box.top) >= 0 and box.right <= FRAME[0] and box.bottom <= FRAME[1]
        assert not any(box.covers(mark) for mark in marks)
        assert not any(box.covers(other) for other in boxes[i + 1 :])


def test_a_single_label_always_finds_its_place() -> None:
    for x in (0.0, 300.0, 600.0):
        for y in (0.0, 200.0, 400.0):
            assert place([(x, y)], [150.0], FRAME, [Box(x - 5, y - 5, x + 5, y + 5)]) is not None


@given(st.lists(st.floats(0, 300), max_size=8))
def test_names_beside_a_plot_keep_their_order_and_their_distance(places: list[float]) -> None:
    moved = apart(places, 17.0, 8.0, 292.0)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    for one, two in pairwise(order):
        assert moved[two] - moved[one] >= 17.0 - 1e-9


@given(st.text(max_size=60), st.floats(20, 300))
def test_a_shortened_text_fits(text: str, pixels: float) -> None:
    short = shortened(text, pixels)
    assert short == text or (short.endswith("…") and width_of(short) <= pixels)


def marks_of(count: int, *, same: bool = False) -> list[Mark]:
    return [
        Mark(n + 1, f"condition number {n + 1} of many", *(0.4, 0.4) if same else (0.3 + n / 1000, 0.4 - n / 1500),
             0.01, 0.01, [(0.3, 0.4)] * 3, True, n == 0)
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("width", [charts.WIDE, charts.NARROW])
@pytest.mark.parametrize("count", [12, 45])
def test_a_crowd_of_conditions_is_drawn_whatever_its_size(count: int, width: int) -> None:
    drawn = charts.svg(scatter(marks_of(count), (0.0, 0.1), {"frozen_tier3": 0.3}, width), "T", "D")
    written = [node.text or "" for node in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert any("(knee)" in text for text in written) or count == 45
    assert any(text.startswith("base") for text in written)


def test_conditions_on_one_point_share_a_label_that_names_them() -> None:
    drawn = charts.svg(scatter(marks_of(3, same=True), None, {}, charts.NARROW), "T", "D")
    written = " ".join(node.text or "" for node in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text"))
    assert "1, 2, 3 (knee)" in written or written.count("condition number") == 3


# --- pareto ------------------------------------------------------------------------------------------------------------


def test_the_table_marks_exactly_those_that_nobody_dominates() -> None:
    report = read("pareto", "ratio")[0]
    means = [(point.frozen_tier3.mean, point.organic_holdout.mean) for point in report.points]
    for point, (x, y) in zip(report.points, means, strict=True):
        dominated = any(a >= x and b >= y and (a > x or b > y) for a, b in means)
        assert point.on_frontier != dominated
        row = re.search(rf"<bdi>{re.escape(point.condition)}</bdi></th>(.*?)</tr>", page("pareto", "ratio"))
        assert row and ("no, behind" in row[1]) == dominated


def test_the_floor_is_drawn_said_and_decides() -> None:
    report, outline = report_inputs.read("pareto", folders() / "ratio", {"frozen_tier3": 0.9})
    text = Reader(pages.html(outline)).text
    assert report.recommended is None and "No condition meets the floor frozen tier 3 ≥ 90.0%" in text
    assert not any(point.meets_floor for point in report.points)
    low, _ = report_inputs.read("pareto", folders() / "ratio", {"frozen_tier3": 0.2})
    assert low.recommended is not None and low.floors == {"frozen_tier3": 0.2}


def test_one_seed_has_no_spread_and_says_so(tmp_path: Path) -> None:
    folder = sample.sweep(tmp_path / "one", {"only": (0.75, 0.3, 0.1)}, seeds=(42,), run_steps=5)
    report, outline = report_inputs.read("pareto", folder, {})
    text = Reader(pages.html(outline)).text
    assert report.points[0].frozen_tier3.se is None
    assert "± 0.0" not in text and "one seed: there is no interval" in text


# --- margins -----------------------------------------------------------------------------------------------------------


def test_worse_worst_cases_are_said_only_where_the_pass_rate_holds() -> None:
    def group(passes: tuple[float, float], q10: tuple[float, float]) -> margins.Group:
        before, after = (margins.Margins(1, p, q, 0.0, 0.1) for p, q in zip(passes, q10, strict=True))
        return margins.Group("frozen tier 3", 90, before, after)

    assert margins.fell(group((0.4, 0.4), (-0.1, -0.2)))
    assert not margins.fell(group((0.4, 0.3), (-0.1, -0.2)))  # that is a plain loss, and the pass rate says it
    assert not margins.fell(group((0.4, 0.5), (-0.2, -0.1)))


def test_histograms_of_both_models_lose_no_item() -> None:
    report = read("margin-dist", "run")[0]
    for group in report.groups:
        if not group.whole:
            for which in ("base", "trained"):
                assert sum(report.histogram.counts[f"{group.name} {which}"]) == group.n
    by_name = {group.name: group for group in report.groups}
    assert by_name["frozen tier 3"].base.pass_rate == 0.0 and by_name["frozen tier 3"].n == sample.FROZEN[2]


# --- steps -------------------------------------------------------------------------------------------------------------


def test_the_cliff_is_marked_where_it_was_found_and_nowhere_else() -> None:
    report, outline = read("step-trajectory", "run")
    assert (
        report.cliff
        and report.cliff.from_step == 36
        and "There is an overfitting cliff" in Reader(page("step-trajectory", "run")).text
    )
    without = msgspec.structs.replace(report, cliff=None)
    text = pages.html(trajectory.outline(without))
    assert "No overfitting cliff" in text and ">cliff<" not in text and ">cliff<" in pages.html(outline)


def test_a_run_begins_with_its_base_and_ends_with_its_last_step() -> None:
    steps = [point.step for point in read("step-trajectory", "run")[0].points]
    assert steps == [0, 20, 40, 60]


@given(st.lists(st.floats(0, 10), min_size=1, max_size=500), st.integers(1, 50))
def test_a_thinned_curve_keeps_its_ends_its_range_and_its_mean(values: list[float], most: int) -> None:
    found = curves.thinned(list(range(1, len(values) + 1)), values, most)
    assert len(found) <= most
    assert min(low for _, _, low, _ in found) == min(values) and max(high for _, _, _, high in found) == max(values)
    assert all(low - 1e-9 <= mean <= high + 1e-9 for _, mean, low, high in found)
    assert 1 <= found[0][0] <= found[-1][0] <= len(values)


# --- dilution ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200))
def test_items_by_times_seen_lose_none_and_keep_the_unseen_apart(counts: list[int]) -> None:
    bars = exposure.stretches(counts)
    assert sum(items for _, _, items in bars) == len(counts) and len(bars) <= 61
    for low, high, items in bars:
        assert items == sum(low <= count <= high for count in counts)
    never = [items for low, high, items in bars if low == 0]
    assert never == ([counts.count(0)] if 0 in counts else [])
    assert all(high == 0 for low, high, _ in bars if low == 0)


def test_realised_exposures_are_those_of_the_log() -> None:
    report = read("dilution", "run")[0]
    lines = (folders() / "run" / "log.jsonl").read_text().splitlines()
    for row, counts in zip(report.rows, report.counts, strict=True):
        assert row.pool == counts.pool and row.realised_min == min(counts.times)
        assert sum(counts.times) == sum(json.loads(line)["pools"][row.pool] for line in lines)


def test_an_unseen_pool_is_forgotten_only_if_it_was_to_be_seen() -> None:
    report = read("dilution", "run")[0]
    row = msgspec.structs.replace(report.rows[0], realised_min=0, never_seen=7)
    forgotten = msgspec.structs.replace(report, rows=[row])
    assert "7 items were never seen" in Reader(pages.html(dilution.outline(forgotten))).text
    meant = msgspec.structs.replace(report, rows=[msgspec.structs.replace(row, expected=0.0, status="severe")])
    assert "never seen (" not in Reader(pages.html(dilution.outline(meant))).text


# --- mining ------------------------------------------------------------------------------------------------------------


def test_mining_bars_add_up_to_what_was_tested_and_accepted() -> None:
    report = read("mining", "mined")[0]
    assert sum(bar.items for bar in report.bars) == report.tested
    assert sum(bar.items for bar in report.bars if bar.passes >= report.min_passes) == report.accepted
    assert "1.63%" in page("mining", "mined")


# --- summary -----------------------------------------------------------------------------------------------------------


def test_an_unfinished_run_says_so_before_anything_else() -> None:
    report = read("summary", "run")[0]
    text = pages.html(summary_run.outline(msgspec.structs.replace(report, state="training", steps_done=12)))
    assert text.index("This run is not finished") < text.index("<h1>")
    assert "not finished" not in page("summary", "run")


def test_the_summary_says_both_truths_findings_overrides_and_the_caveat() -> None:
    report = read("summary", "run")[0]
    text = Reader(page("summary", "run")).text
    for truth in report.truths:
        assert truth.base and truth.trained
        for rate in (truth.base, truth.trained):
            assert charts.percent(rate.share) in text
    assert "G8" in text and "on record: G1" in text and "by construction" in text


def test_tiers_of_a_sweep_are_means_of_its_own_scoreboards() -> None:
    report = read("summary", "ratio")[0]
    one = report.conditions[0]
    rates = [
        json.loads((folders() / "ratio" / "runs" / one.name / f"seed-{seed}" / "scoreboards" / "frozen.json").read_text())["by_tier"]["tier1_easy"]["pass_rate"]
        for seed in one.seeds
    ]  # fmt: skip
    assert one.tiers["tier1_easy"].mean == pytest.approx(sum(rates) / len(rates)) and one.tiers["tier1_easy"].n == 3


def test_pareto_module_is_the_one_that_decides() -> None:
    """The page repeats the recommendation that `crucible pareto` gives; it has none of its own."""
    report = read("pareto", "ratio")[0]
    assert report.sentence.startswith("RECOMMENDATION") and html.escape(report.sentence[:60]) in page("pareto", "ratio")
    assert pareto.outline(report).sections[1].title == "The recommendation"
