"""The evaluation report: nothing but the data on the page, every attack is text, and the same data is the same file."""

from __future__ import annotations

import functools
import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser.sample import HOSTILE, hostile, realistic, tier_row
from crucible.board.render.bins import MOST, binned
from crucible.board.render.eval_report import Bundle, EvalReport, Negative, render
from crucible.board.render.page import between, count, decimal, pieces, share, signed, visible

FIXED = {"95%", "80%", "10%", "90%", "1"}
"""Numbers that the page says about itself: the level of intervals and quantiles, the best rank."""


class Reader(HTMLParser):
    """The words of a page without style, charts and what only screen readers get; and its tags and links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._skip = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._skip += tag in ("style", "svg")
        if tag in ("td", "th", "dd", "dt", "p", "li", "h2", "h3", "span", "tr"):
            self.words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._skip -= tag in ("style", "svg")

    def handle_data(self, data: str) -> None:
        if not self._skip:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


@functools.cache
def plain_page() -> str:
    return render(realistic())


@functools.cache
def hostile_page() -> str:
    return render(hostile())


def numbers(text: str) -> set[str]:
    return set(re.findall(r"[+\N{MINUS SIGN}]?\d[\d,]*(?:\.\d+)?%?", text))


def written(report: EvalReport) -> set[str]:
    """Every number of the data, in every form in which the page may write it."""
    found: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, str):
            found.update(numbers(value))
        elif isinstance(value, int):
            found.add(count(value))
        elif isinstance(value, float):
            found.update(
                (share(value), signed(value), signed(value, 3), signed(value, 2), decimal(value), decimal(value, 4))
            )
        elif isinstance(value, dict):
            for key, inner in value.items():
                walk(key), walk(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)

    walk(msgspec.to_builtins(report))
    for row in (report.overall, *report.tiers):
        found |= numbers(between(row.interval))
    for place, bundle in enumerate(report.worst, 1):
        more = len(bundle.negatives) - 5
        beat = sum(negative.similarity > bundle.positive_similarity for negative in bundle.negatives) - 5
        found |= {f"{n}" for n in (place, len(bundle.negatives) + 1, more, beat)}
    return found


# --- numbers -----------------------------------------------------------------------------------------------------------


def test_every_number_on_the_page_is_in_the_data() -> None:
    report = realistic()
    shown = numbers(Reader(plain_page()).text)
    assert shown - written(report) - FIXED == set()
    assert len(shown) > 150


def test_a_number_that_is_not_in_the_data_would_be_found() -> None:
    report = realistic()
    page = plain_page().replace(share(report.overall.pass_rate), "12.3%")
    assert numbers(Reader(page).text) - written(report) - FIXED == {"12.3%"}


def test_every_statistic_of_every_tier_is_on_the_page() -> None:
    report = realistic()
    shown = Reader(plain_page()).text
    for row in (report.overall, *report.tiers):
        margins = [signed(value) for value in (row.mean_margin, row.median, row.q10, row.q90)]
        for value in (
            row.name,
            count(row.n),
            share(row.pass_rate),
            between(row.interval),
            decimal(row.mean_rank),
            *margins,
        ):
            assert value in shown


def test_charts_say_the_numbers_of_the_data_in_words() -> None:
    report = realistic()
    page = html.unescape(plain_page())
    (words,) = {words for words in re.findall(r"<desc[^>]*>(.*?)</desc>", page) if "interval" in words}
    for row in (report.overall, *report.tiers):
        assert f"{row.name}: {share(row.pass_rate)} of {row.n} pass, 95% interval {between(row.interval)}." in words


def test_empty_tier_shows_a_dash_not_zero() -> None:
    full = realistic()
    empty = tier_row("tier3_adversarial", [])
    page = render(realistic(tiers=[*full.tiers[:2], empty]))
    (row,) = re.findall(r'<tr><th scope="row"><bdi>tier3_adversarial</bdi></th>(.*?)</tr>', page)
    assert re.findall(r"<td>(.*?)</td>", row) == ["0", *["–"] * 9]
    assert "tier3_adversarial: empty." in page
    assert "0.0%" not in Reader(page).text


def test_an_eval_set_without_items_is_said_and_nothing_is_drawn() -> None:
    tiers = [tier_row(row.name, []) for row in realistic().tiers]
    histogram = binned({row.name: [] for row in tiers})
    page = render(realistic(overall=tier_row("All tiers", []), tiers=tiers, histogram=histogram, worst=[], notes=[]))
    assert "nothing was measured" in page and "<svg" not in page
    assert "0.0" not in Reader(page).text and "nan" not in page.lower()


def test_collapsed_encoder_cannot_look_perfect() -> None:
    row = msgspec.structs.replace(
        realistic().overall, mean_rank=1.0, mean_rank_pessimistic=9.0, n_ties=400, correct=0, pass_rate=0.0
    )
    assert "9.00 with ties counted against" in Reader(render(realistic(overall=row))).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *(
            (0.0, "0.0000"),
            (-0.0, "0.0000"),
            (-0.00001, "0.0000"),
            (0.12345, "+0.1235"),
            (-1.5, "\N{MINUS SIGN}1.5000"),
        ),
        *((None, "–"), (float("nan"), "–"), (float("inf"), "–")),
    ],
)
def test_signs_say_the_side_of_zero_and_nothing_else(value: float | None, text: str) -> None:
    assert signed(value) == text


# --- bundles -----------------------------------------------------------------------------------------------------------


def bundle(positive: float, *negatives: float) -> Bundle:
    texts = [Negative(f"negative at {value}", value) for value in negatives]
    return Bundle("b", "t", positive - max(negatives), 1, "the anchor", "the positive", positive, texts)


def test_negatives_that_beat_the_positive_come_first_and_say_so_in_words() -> None:
    page = Reader(render(realistic(worst=[bundle(0.5, 0.1, 0.9, 0.5, 0.7)]))).text
    said = re.findall(r"(Beats the positive|Ties with it|Negative)\s+similarity\s+([\d.]+)", page)
    assert said == [
        ("Beats the positive", "0.9000"),
        ("Beats the positive", "0.7000"),
        ("Ties with it", "0.5000"),
        ("Negative", "0.1000"),
    ]


def test_no_negative_is_lost_however_many_there_are() -> None:
    page = render(realistic(worst=[bundle(0.0, *(n / 1000 for n in range(1, 301)))]))
    assert all(f"negative at {n / 1000}<" in page for n in range(1, 301))
    assert "295 more negatives, 295 of them ahead of the positive" in page


# --- text --------------------------------------------------------------------------------------------------------------


def test_hostile_text_stays_text() -> None:
    page = hostile_page()
    page.encode("utf-8")  # half a surrogate would not be
    read, plain = Reader(page), Reader(plain_page())
    kinds = {tag for tag, _ in plain.tags}
    assert {tag for tag, _ in read.tags} - kinds <= {"bdi", "span", "p", "strong"}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert not set(page) & set("\x00\x07\x1b\r\u202e\u202c\u2066\u2069\ufeff\u00ad\u2028\u200e\u200f")
    text = read.text.replace(" ", "")
    for attack in HOSTILE:
        assert visible(attack).replace(" ", "") in text
    assert "49" not in numbers(read.text) - written(hostile())


def test_template_marks_in_the_data_are_not_run() -> None:
    assert "{{ 7 * 7 }}" in render(realistic(title="{{ 7 * 7 }}", notes=["{% include 'page.css' %}"]))


@given(st.text(st.characters(), max_size=60))
def test_any_text_comes_back_when_the_escapes_are_read(text: str) -> None:
    back = "".join(
        piece.text.encode().decode("unicode_escape") if piece.escapes else piece.text for piece in pieces(text)
    )
    assert back == text
    assert visible(text) == "".join(piece.text for piece in pieces(text))
    visible(text).encode("utf-8")


def test_letters_that_look_like_an_escape_are_not_marked_as_one() -> None:
    page = render(realistic(title="\\u202e", notes=["\u202e"]))
    assert "<bdi>\\u202e</bdi>" in page
    assert '<span class="escape" title="right-to-left override">\\u202e</span>' in page


def test_languages_and_emoji_are_left_alone() -> None:
    for text in ("می‌خواهم", "क्‍ष", "👩‍🔬", "a\u00a0b", "naïve", "日本語"):
        assert visible(text) == text


# --- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_same_data_same_bytes() -> None:
    """In this process, where charts were drawn before, and in a fresh one with another hash seed."""
    program = "import sys; from browser.sample import realistic; from crucible.board.render.eval_report import render; "
    program += "sys.stdout.buffer.write(render(realistic()).encode())"
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONHASHSEED": "5"}
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    assert render(realistic()) == plain_page()
    assert other.stdout == plain_page().encode()


def test_page_names_nothing_outside_itself() -> None:
    for tag, attributes in Reader(plain_page()).tags:
        assert tag not in ("script", "iframe", "object", "embed", "img", "base", "form")
        for name in ("src", "href", "xlink:href", "action", "poster", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert not re.search(r"@import|@font-face|url\((?!#)", plain_page())


def test_watermark_stands_at_the_top_and_in_the_title_and_nowhere_else() -> None:
    page = render(realistic(watermark="NOT COMPARABLE"))
    assert re.search(r"<title>NOT COMPARABLE · ", page)
    assert page.index("NOT COMPARABLE</bdi>") < page.index("<h1>")
    assert "atermark" not in Reader(plain_page()).text


def test_a_million_items_stay_a_small_page() -> None:
    wave = [((n * 7919) % 20001 - 10000) / 10000 for n in range(1_000_000)]
    histogram = binned({"t": wave})
    assert sum(histogram.counts["t"]) == 1_000_000
    assert len(render(realistic(histogram=histogram))) < 200_000


def test_report_survives_json() -> None:
    report = realistic()
    assert render(msgspec.json.decode(msgspec.json.encode(report), type=EvalReport)) == plain_page()


def test_importing_the_report_does_not_load_altair() -> None:
    program = "import crucible.board.render.eval_report, sys; assert not {'altair', 'vl_convert'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


# --- bins --------------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.floats(-2, 2), max_size=30), min_size=1))
def test_bins_lose_no_item_and_split_exactly_where_passing_begins(margins: dict[str, list[float]]) -> None:
    histogram = binned(margins)
    edges = list(histogram.edges)
    assert edges == sorted(set(edges)) and len(edges) <= MOST + 1
    for tier, values in margins.items():
        counts = histogram.counts[tier]
        assert sum(counts) == len(values)
        passing = sum(number for low, number in zip(edges, counts, strict=False) if low >= 0)
        assert passing == sum(value > 0 for value in values)


def test_a_margin_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="nan"):
        binned({"t": [0.1, float("nan")]})
