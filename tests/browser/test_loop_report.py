"""The reports of the loop as a reader meets them: opened from disk in a real browser, on a phone and a desk, in both schemes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crucible.board.render import outline as pages
from crucible.cli import report_inputs

from . import loop_sample as sample
from .test_report_in_a_browser import CONTRAST, SCHEMES, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

WIDTHS = (390, 1280)
FINDINGS = [
    {"guardrail": "G1", "level": "warning", "when": "before", "message": "each of 210 legacy items is expected 8.6 times, below 10: regression highly likely", "numbers": {}},
    {"guardrail": "G7", "level": "critical", "when": "after", "message": "frozen tier 3 fell from 0.4711 to 0.4333, by more than 0.02", "numbers": {}, "overridden": True},
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Twelve conditions with long and equal ones among them, one condition alone, and names that are attacks."""
    root = tmp_path_factory.mktemp("loop")
    sample.run(root / "run", steps=100, eval_every=10, cliff=True, findings=FINDINGS, overrides=["G7"])
    sample.sweep(root / "many", sample.MANY, run_steps=20)
    sample.sweep(root / "one", {"75_15_10": (0.75, 0.3, 0.12)}, seeds=(42,), run_steps=5)
    sample.sweep(root / "hostile", {sample.HOSTILE: (0.8, 0.3, 0.1), "x" * 300: (0.7, 0.2, 0.12)}, run_steps=5)
    sample.steps_sweep(root / "steps")
    sample.mining(root / "mined" / "organic.stats.json")
    wanted = {
        "summary-run": ("summary", "run"),
        "summary-many": ("summary", "many"),
        "pareto-many": ("pareto", "many"),
        "pareto-one": ("pareto", "one"),
        "pareto-hostile": ("pareto", "hostile"),
        "margins": ("margin-dist", "run"),
        "steps-run": ("step-trajectory", "run"),
        "steps-sweep": ("step-trajectory", "steps"),
        "dilution-run": ("dilution", "run"),
        "dilution-many": ("dilution", "many"),
        "mining": ("mining", "mined"),
    }
    found = {}
    for name, (kind, folder) in wanted.items():
        floors = {"frozen_tier3": 0.3} if name == "pareto-many" else {}
        found[name] = root / f"{name}.html"
        found[name].write_text(pages.html(report_inputs.read(kind, root / folder, floors)[1]), encoding="utf-8")
    return found


NAMES = (
    "summary-run", "summary-many", "pareto-many", "pareto-one", "pareto-hostile", "margins", "steps-run", "steps-sweep",
    "dilution-run", "dilution-many", "mining",
)  # fmt: skip

CLIPPED = """() => [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).flatMap(s => {
  const frame = s.getBoundingClientRect();
  return [...s.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
    return b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 2 || b.bottom > frame.bottom + 2; })
    .map(t => t.textContent); })"""
OVERLAPPING = """() => [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).flatMap(s => {
  const boxes = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
    p.left < q.right - 1 && q.left < p.right - 1 && p.top + 3 < q.bottom - 3 && q.top + 3 < p.bottom - 3)
    .map(([b]) => a + ' / ' + b)); })"""


@pytest.mark.parametrize("name", NAMES)
def test_page_asks_for_nothing_fits_its_window_and_can_be_read(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    for width, scheme in zip(WIDTHS, SCHEMES, strict=True):
        with opened(browser, files[name], width, scheme) as (page, unwanted):
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            page.wait_for_load_state("networkidle")
            assert unwanted == []
            reach = page.evaluate("document.documentElement.scrollWidth")
            assert reach <= width, f"{name} is {reach} px wide in a window of {width}"
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate(CLIPPED) == [], f"{name} at {width}"
            assert page.evaluate(OVERLAPPING) == [], f"{name} at {width}"
            smallest = page.evaluate(
                "Math.min(...[...document.querySelectorAll('svg text')].filter(t => t.checkVisibility())"
                ".map(t => t.getBoundingClientRect().height))"
            )
            assert smallest >= 11
            answer = page.locator(".lede").first.bounding_box()
            assert answer and answer["y"] + answer["height"] < 800, "the answer is not on the first screen"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_colour_stands_out_in_the_other_scheme_too(browser: Browser, files: dict[str, Path], scheme: str) -> None:
    for name in ("mining", "pareto-many", "dilution-many", "summary-run"):
        with opened(browser, files[name], 1280, scheme) as (page, _):
            assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("name", NAMES)
def test_figures_tables_and_headings_are_named_and_in_order(
    browser: Browser, files: dict[str, Path], name: str
) -> None:
    with opened(browser, files[name]) as (page, _):
        figures = page.locator("figure")
        assert figures.count() >= 1
        for place in range(figures.count()):
            assert figures.nth(place).get_by_role("img").count() == 1  # one of the two widths is shown
        assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-labelledby'))")
        assert page.evaluate(
            "[...document.querySelectorAll('table')].every(t => t.caption && t.caption.textContent.trim())"
        )
        assert page.evaluate("[...document.querySelectorAll('th')].every(t => ['col', 'row'].includes(t.scope))")
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        refs = page.evaluate(
            "[...document.querySelectorAll('[aria-labelledby]')].flatMap(e => e.getAttribute('aria-labelledby').split(' '))"
        )
        assert set(refs) <= set(ids)
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
        assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))


def test_hostile_names_are_read_as_the_letters_they_are(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["pareto-hostile"]) as (page, unwanted):
        text = page.evaluate("document.body.textContent")
        assert "</title><script>alert(1)</script>" in text and "\\u202edlog\\u202c" in text
        assert not set(text) & set("\u202e\u202c\x1b")
        assert page.evaluate("document.querySelectorAll('script, img, [onerror], [onload]').length") == 0
        assert unwanted == []


def test_print_is_light(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["pareto-many"], scheme="dark") as (page, _):
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
