"""Charts: what a reader who cannot see them is told, what they may not fetch, and that they come out the same."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import altair as alt
import pytest

from crucible.board import charts
from crucible.board.charts import NARROW, WIDE, TierRate, margin_histogram, svg, tier_bars

RATES = [
    TierRate("All tiers", 400, 0.72, (0.674, 0.762), of_all=True),
    TierRate("tier1_easy", 280, 0.793, (0.742, 0.836)),
    TierRate("tier3_adversarial", 0, None, None),
]
EDGES = (-0.2, -0.1, 0.0, 0.1, 0.2)
COUNTS = {"tier1_easy": (1, 2, 40, 8), "tier3_adversarial": (3, 0, 1, 0)}

MAKE = """
from crucible.board.charts import margin_histogram, svg
for _ in range(REPEATS):
    text = svg(margin_histogram((-0.1, 0.0, 0.1), {"a": (1, 2), "b": (0, 3)}), "Title", "Words.")
import sys; sys.stdout.write(text)
"""


def texts(drawn: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("draw", [lambda w: tier_bars(RATES, w), lambda w: margin_histogram(EDGES, COUNTS, w)])
def test_chart_has_a_text_alternative_and_no_colour_of_its_own_behind_it(draw: object, width: int) -> None:
    drawn = svg(draw(width), "A <title>", 'Words & "quotes"')  # type: ignore[operator]
    root = ET.fromstring(drawn)  # well-formed, so that it can stand alone as a file
    inside = {node.get("id"): node.text for node in root.iter() if node.get("id")}
    named = [inside[name] for name in root.get("aria-labelledby", "").split()]
    assert root.get("role") == "img" and named == ["A <title>", 'Words & "quotes"']
    assert not root.findall("{http://www.w3.org/2000/svg}rect")
    assert not re.search(r'aria-label="|aria-roledescription', drawn)
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', drawn))
    assert colours <= {"none", "transparent", "currentColor", charts.BLUE, charts.ORANGE, charts.GREY}


@pytest.mark.slow
def test_same_data_same_bytes_in_any_process_and_at_any_time() -> None:
    """Vega counts its ids up through the life of a process; hash seeds differ between processes."""
    made = {
        subprocess.run(
            [sys.executable, "-c", MAKE.replace("REPEATS", repeats)],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for repeats, seed in (("1", "1"), ("3", "2"))
    }
    assert len(made) == 1 and made.pop().startswith(b"<svg")


def test_two_charts_on_one_page_share_no_id() -> None:
    clipped = alt.Chart(alt.InlineData(values=[{"a": 1}])).mark_bar(clip=True).encode(x="a:Q")
    drawn = [svg(clipped, "One", ""), svg(clipped, "Two", ""), svg(clipped, "Two", "", key="again")]
    ids = [name for text in drawn for name in re.findall(r'\bid="([^"]+)"', text)]
    assert len(ids) == len(set(ids)) >= 9
    for text in drawn:
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(re.findall(r'\bid="([^"]+)"', text))


def test_a_chart_that_names_a_url_is_an_error_and_not_a_request() -> None:
    far = alt.Chart("http://192.0.2.1/data.json").mark_bar().encode(x="a:Q")
    with pytest.raises(ValueError, match="not allowed"):
        svg(far, "", "")


def test_a_theme_of_the_caller_does_not_reach_the_chart() -> None:
    plain = svg(tier_bars(RATES), "T", "D")
    with alt.theme.enable("dark"):
        assert svg(tier_bars(RATES), "T", "D") == plain


def test_empty_tier_gets_a_dash_and_no_bar() -> None:
    drawn = svg(tier_bars(RATES), "T", "D")
    assert [text for text in texts(drawn) if text.startswith("of ")] == ["of 400", "of 280", "of 0"]
    assert "–" in texts(drawn) and "0.0%" not in texts(drawn)
    assert drawn.count(f'fill="{charts.BLUE}"') == 1 and drawn.count(f'fill="{charts.GREY}"') == 1


def test_a_pass_rate_of_zero_is_not_shown_as_an_empty_tier() -> None:
    drawn = svg(tier_bars([TierRate("t", 9, 0.0, (0.0, 0.3))]), "T", "D")
    assert "0.0%" in texts(drawn) and "–" not in texts(drawn)


def test_tiers_of_the_same_name_keep_a_bar_each() -> None:
    drawn = svg(tier_bars([TierRate("same", 1, 1.0, None), TierRate("same", 2, 0.5, None)]), "T", "D")
    assert texts(drawn).count("same") == 2 and drawn.count(f'fill="{charts.BLUE}"') == 2


def test_bars_left_of_zero_fail_and_bars_right_of_it_pass() -> None:
    drawn = svg(margin_histogram(EDGES, COUNTS), "T", "D")
    assert (drawn.count(f'fill="{charts.ORANGE}"'), drawn.count(f'fill="{charts.BLUE}"')) == (3, 3)
    astride = svg(margin_histogram((-0.1, 0.1), {"t": (1,)}), "T", "D")
    assert charts.GREY in astride and charts.BLUE not in astride and charts.ORANGE not in astride


@pytest.mark.parametrize(
    ("edges", "counts"), [((), {"t": ()}), ((0.0, 1.0), {"t": ()}), ((0.0, 1.0), {"t": (0,)}), ((0.0, 1.0), {})]
)
def test_a_histogram_that_cannot_be_drawn_says_so(edges: tuple[float, ...], counts: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="need"):
        margin_histogram(edges, counts)


@pytest.mark.parametrize("top", [1, 2, 3, 7, 10, 99, 100, 12345, 1_000_000])
def test_counts_on_the_axis_are_whole_few_and_below_the_top(top: int) -> None:
    drawn = texts(svg(margin_histogram((0.0, 1.0), {"t": (top,)}), "T", "D"))
    ticks = [int(text.replace(",", "")) for text in drawn if re.fullmatch(r"[\d,]+", text) and text != "0"]
    assert 1 <= len(set(ticks)) == len(ticks) <= 2 and max(ticks) <= top


def test_names_are_data_and_never_expressions_or_markup() -> None:
    name = """datum.n + '"<b>&{{7*7}} id="x" role="y" url(#z)"""
    bars = texts(svg(tier_bars([TierRate(name, 1, 1.0, None)]), name, name))
    panel = texts(svg(margin_histogram((0.0, 1.0), {name: (1,)}), name, name))
    assert any(text.startswith("datum.n + '") for text in bars) and f"{name}  (1)" in panel


@pytest.mark.parametrize("odd", ["\x00", "\x1b", "\udcff", "\ufffe"])
def test_a_character_that_xml_cannot_hold_is_spelled_out_and_ends_nothing(odd: str) -> None:
    drawn = svg(tier_bars([TierRate(f"a{odd}", 1, 1.0, None)]), odd, odd)
    assert f"a\\u{ord(odd):04x}" in texts(drawn) and odd not in drawn
    assert f"\\u{ord(odd):04x}</title>" in drawn
