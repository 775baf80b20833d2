from __future__ import annotations

from collections import Counter

from crucible.ari import track as tracks
from crucible.ari.exam.build import generate
from crucible.ari.exam.families import FAMILIES, PUBLIC
from crucible.ari.exam.overlap import Limits, with_questions
from crucible.ari.exam.public import public_set
from crucible.ari.exam.questions import load
from crucible.ari.exam.rules import broken, departures
from crucible.kernel import digest


def test_the_shipped_public_set_is_what_the_generator_makes_and_never_changes() -> None:
    assert tracks.PUBLIC.read_bytes() == public_set()
    assert digest.of_bytes(public_set()) == "5d70d47277a89e65590b8e25569fb0556a1f511a0c935126344d717a2610c7e5"


def test_it_is_smaller_and_less_diverse_than_an_exam() -> None:
    shown = load(tracks.PUBLIC).questions
    assert 30 <= len(shown) <= 50
    assert {question.family for question in shown} == set(PUBLIC)
    assert max(Counter(question.family for question in shown).values()) <= 6
    assert len(PUBLIC) < 0.4 * len({question.family for question in generate(b"e" * 16, 100, "hidden")})


def test_it_obeys_the_rules_of_the_exam() -> None:
    shown = load(tracks.PUBLIC).questions
    assert departures(shown) == []
    assert [broken(question, FAMILIES[question.family]) for question in shown] == [None] * len(shown)


def test_knowing_it_by_heart_is_worth_nothing_in_an_exam() -> None:
    hidden, shown = generate(b"f" * 16, 1000, "hidden"), load(tracks.PUBLIC).questions
    found = with_questions(hidden, shown, tracks.PUBLIC, Limits())
    assert found.too_much == [] and found.shared_prompts == 0 and found.ngram_share < 0.01
    assert found.shared_answers <= 10
