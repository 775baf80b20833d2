"""The evaluation report as a reader meets it: opened from disk in a real browser, at three widths, in both colour schemes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crucible.board.render.eval_report import EvalReport, render

from .sample import HOSTILE, hostile, realistic

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

WIDTHS = (360, 768, 1280)
SCHEMES = ("light", "dark")
WATERMARK = "NOT COMPARABLE: the fingerprints differ"

CONTRAST = """() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/rgba\\(0, 0, 0, 0\\)/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  const texts = [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg')
    && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const fills = [...document.querySelectorAll('svg [fill^="#"]')].filter(e => e.checkVisibility());
  const low = (e, colour, least) => ratio(colour, paper(e)) < least ? [e.outerHTML.slice(0, 80) + ' ' + colour] : [];
  return [...texts.flatMap(e => low(e, getComputedStyle(e).color, 4.5)),
    ...fills.flatMap(e => low(e, getComputedStyle(e).fill, 3))];
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    reports: dict[str, EvalReport] = {
        "realistic": realistic(),
        "hostile": hostile(),
        "watermarked": realistic(watermark=WATERMARK),
    }
    for name, report in reports.items():
        (folder / f"{name}.html").write_text(render(report), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in reports}


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1280, scheme: Any = "light") -> Iterator[tuple[Page, list[str]]]:
    """The page, and everything it asked for or complained about besides its own file."""
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        page, unwanted = context.new_page(), []
        context.on(
            "request", lambda request: request.url == path.as_uri() or unwanted.append(f"asked for {request.url}")
        )
        page.on("console", lambda message: unwanted.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: unwanted.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (unwanted.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(path.as_uri())
        yield page, unwanted


@pytest.mark.parametrize("name", ["realistic", "hostile", "watermarked"])
def test_report_makes_no_request_off_the_page(browser: Browser, files: dict[str, Path], name: str) -> None:
    for width in WIDTHS:
        for scheme in SCHEMES:
            with opened(browser, files[name], width, scheme) as (page, unwanted):
                page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                page.wait_for_load_state("networkidle")
                reach = page.evaluate("document.documentElement.scrollWidth")
                assert unwanted == []
                assert reach <= width, f"{name} is {reach} px wide in a window of {width}"


def test_a_request_off_the_page_would_be_seen(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://192.0.2.1/x.png'><script>console.error('loud')</script>")
    with opened(browser, bad) as (page, unwanted):
        page.wait_for_load_state("networkidle")
        assert any("192.0.2.1" in line for line in unwanted) and any("loud" in line for line in unwanted)


def test_hostile_text_is_read_as_the_letters_it_is(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["hostile"]) as (page, unwanted):
        text = page.evaluate("document.body.textContent")
        for attack in (HOSTILE[0], HOSTILE[1], HOSTILE[4], HOSTILE[5], HOSTILE[7], HOSTILE[8], HOSTILE[9]):
            assert attack in text
        assert "\\x1b[31mred\\x1b[0m\\x0d\\u202eevil\\u202c" in text and "\\udcff" in text
        assert not set(text) & set("\x00\x07\x1b\r\u202e\u202c\u2066\u2069\ufeff\u200f\u200e\u2028")
        assert page.evaluate("document.querySelectorAll('script, img, [onerror], [onload], [onmouseover]').length") == 0
        assert unwanted == []


def test_long_texts_are_folded_and_reached_by_keyboard(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["hostile"], 360) as (page, _):
        tallest, whole = page.evaluate(
            "[Math.max(...[...document.querySelectorAll('.said, .fold')].map(e => e.clientHeight)),"
            " [...document.querySelectorAll('.long .said, .fold')].every(e => e.tabIndex === 0 && e.getAttribute('aria-label'))]"
        )
        assert tallest < 400 and whole


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_and_marks_stand_out_in_both_schemes(browser: Browser, files: dict[str, Path], scheme: str) -> None:
    with opened(browser, files["watermarked"], scheme=scheme) as (page, _):
        assert page.evaluate(CONTRAST) == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert dark == (scheme == "dark")


def test_one_chart_of_each_pair_is_there_at_every_width(browser: Browser, files: dict[str, Path]) -> None:
    for width in WIDTHS:
        with opened(browser, files["realistic"], width) as (page, _):
            assert page.get_by_role("img", name="Pass rate by tier").count() == 1
            assert page.get_by_role("img", name="Margins by tier").count() == 1
            smallest = page.evaluate(
                "Math.min(...[...document.querySelectorAll('svg text')].filter(t => t.checkVisibility())"
                ".map(t => t.getBoundingClientRect().height))"
            )
            assert smallest >= 11


def test_chart_words_stay_inside_the_chart_and_apart(browser: Browser, files: dict[str, Path]) -> None:
    clipped = """() => [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).flatMap(s => {
      const frame = s.getBoundingClientRect();
      return [...s.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();
        return b.left < frame.left - 1 || b.right > frame.right + 1; }).map(t => t.textContent); })"""
    overlapping = """() => [...document.querySelectorAll('svg')].filter(s => s.checkVisibility()).flatMap(s => {
      const boxes = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
      return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
        p.left < q.right - 1 && q.left < p.right - 1 && p.top + 3 < q.bottom - 3 && q.top + 3 < p.bottom - 3)
        .map(([b]) => a + ' / ' + b)); })"""
    for width in WIDTHS:
        with opened(browser, files["realistic"], width) as (page, _):
            assert page.evaluate(clipped) == []
            assert page.evaluate(overlapping) == []


def test_landmarks_headings_and_the_skip_link_lead_through_the_page(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["realistic"]) as (page, _):
        for role in ("banner", "main", "contentinfo"):
            assert page.get_by_role(role).count() == 1
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"


def test_every_table_names_itself_and_its_headers(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["realistic"]) as (page, _):
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


def test_print_is_light_and_folds_nothing(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["hostile"], scheme="dark") as (page, _):
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        folded = (
            "[...document.querySelectorAll('.said, .fold')].filter(e => e.scrollHeight > e.clientHeight + 4).length"
        )
        assert page.evaluate(folded) == 0
        assert page.locator(".more-negatives .said").first.is_visible()


def test_watermark_is_the_first_thing_on_the_page_and_in_its_title(browser: Browser, files: dict[str, Path]) -> None:
    with opened(browser, files["watermarked"], 360) as (page, _):
        assert page.title().startswith(WATERMARK)
        note = page.get_by_role("note")
        assert WATERMARK in (note.text_content() or "") and note.is_visible()
        assert note.bounding_box()["y"] < page.get_by_role("heading").first.bounding_box()["y"] < 400  # type: ignore[index]
