from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.exam import baselines
from crucible.ari.exam.build import generate
from crucible.ari.exam.calibrate import LIMIT, calibrate
from crucible.ari.exam.questions import Question
from crucible.kernel.stats import wilson


@pytest.mark.parametrize(
    ("name", "prompt", "answer"),
    [
        ("longest-suffix copy", b"red: apple; blue: plum; red: ", b"apple;"),
        ("longest-suffix copy", b"a1 a2 b a1 ", b"a2 b"),
        ("prompt n-gram", b"x=one x=two x=two x=", b"two"),
        ("last value", b"7 -> 12, 9 -> 40, 3 -> ", b"40"),
        ("last value", b"5 10 15 ", b"15"),
        ("line retrieval", b"Tavok, green\nMikel, brown\nRolos, black\n\nThe colour of Mikel is ", b"brown"),
        ("line end", b"Tavok at 7, green\nMikel at 8, brown\nRolos at 9, black\n\nThe colour of Mikel: ", b"brown"),
        ("line retrieval", b"Mikel gets [____]\nMikel, brown\nGive it to Mikel, ", b"brown"),
    ],
)
def test_a_baseline_finds_what_its_rule_can_find(name: str, prompt: bytes, answer: bytes) -> None:
    assert baselines.GUESSES[name](prompt, len(answer)) == answer


@given(st.binary(max_size=80), st.integers(1, 20))
def test_every_baseline_answers_anything_with_exactly_the_bytes_asked_for(prompt: bytes, length: int) -> None:
    for guess in baselines.GUESSES.values():
        answer = guess(prompt + b" ", length)
        assert len(answer) == length and answer == guess(prompt + b" ", length)


@given(st.lists(st.sampled_from([b"ab", b"ba", b"aab", b" "]), min_size=1, max_size=20))
def test_the_copier_copies_what_followed_the_longest_end(parts: list[bytes]) -> None:
    """Against the plain definition, one byte."""
    text = b"".join(parts)
    best = next(
        (
            text[at + size : at + size + 1]
            for size in range(len(text) - 1, 0, -1)
            for at in range(len(text) - size - 1, -1, -1)
            if text[at : at + size] == text[-size:]
        ),
        text[-1:],
    )
    assert baselines.suffix_copy(text, 1) == best


def test_the_constant_knows_the_other_questions_and_never_its_own() -> None:
    made = [Question(f"q{n}", "c", "f", b"p ", answer) for n, answer in enumerate([b"x", b"x", b"y", b"z"])]
    guess = baselines.constant(made)
    assert [guess(question) for question in made] == [b"x", b"x", b"x", b"x"]
    alone = [Question("q", "c", "f", b"p ", b"x")]
    assert baselines.constant(alone)(alone[0]) != b"x"


def test_no_baseline_comes_near_the_limit_on_a_thousand_questions() -> None:
    """The limit is 15%; the families are made so that copying is worth next to nothing."""
    found = calibrate(generate(b"a thousand questions", 1000, "hidden"))
    assert set(found.baselines) == {*baselines.GUESSES, "constant"} and found.above_limit == []
    for name, baseline in found.baselines.items():
        assert baseline.overall.rate < 0.10 < LIMIT, name
        assert baseline.overall.ci95[1] < LIMIT
        assert len(baseline.by_family) == found.families and len(baseline.by_category) == 8


def test_the_numbers_add_up_and_an_exam_for_copiers_is_told() -> None:
    easy = [
        Question(f"q{n}", f"c{n % 2}", f"f{n % 3}", b"key%02d: value%02d; key%02d: " % (n, n, n), b"value%02d" % n)
        for n in range(30)
    ]
    found = calibrate(easy)
    copier = found.baselines["longest-suffix copy"]
    assert copier.overall.rate == 1.0 and "longest-suffix copy" in found.above_limit
    assert copier.overall.ci95 == pytest.approx(wilson(30, 30), abs=1e-6)
    for groups in (copier.by_family, copier.by_category):
        assert sum(rate.passed for rate in groups.values()) == copier.overall.passed
        assert sum(rate.questions for rate in groups.values()) == 30
