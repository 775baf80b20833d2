from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari.exam.build import build_exam, generate
from crucible.ari.exam.draw import quotas
from crucible.ari.exam.families import CATEGORIES, FAMILIES
from crucible.ari.exam.family import Family
from crucible.ari.exam.questions import Question
from crucible.ari.exam.rules import broken, departures
from crucible.errors import BadConfig, MachineryFailed

SEED = bytes(range(7, 39))


def test_the_same_seed_gives_the_same_file_and_another_one_another() -> None:
    assert build_exam(SEED, 40, "1") == build_exam(SEED, 40, "1")
    assert build_exam(SEED, 40, "1") != build_exam(SEED[::-1], 40, "1")


def test_the_salt_is_not_known_without_the_seed() -> None:
    one, other = (build_exam(seed, 1, "1").split(b"\n")[0] for seed in (SEED, SEED[::-1]))
    assert one != other and SEED.hex().encode() not in one


@given(
    st.integers(1, 400),
    st.dictionaries(st.sampled_from(sorted(FAMILIES)), st.floats(0, 10), max_size=6),
    st.binary(min_size=16, max_size=20),
)
def test_categories_are_balanced_and_weights_are_kept_inside_them(
    count: int, weights: dict[str, float], seed: bytes
) -> None:
    families = {name: (family.category, weights.get(name, 1.0)) for name, family in FAMILIES.items()}
    shares = quotas(count, families, seed)
    assert sum(shares.values()) == count
    by_category = Counter(dict.fromkeys(CATEGORIES, 0))
    for name, share in shares.items():
        by_category[families[name][0]] += share
        inside = sum(weight for category, weight in families.values() if category == families[name][0])
        assert abs(share - count / 8 * families[name][1] / inside) < 2.01
    assert max(by_category.values()) - min(by_category.values()) <= 1
    assert all(weight > 0 for name, (_, weight) in families.items() if shares.get(name))


def test_a_weight_of_zero_leaves_a_family_out_and_no_weight_at_all_is_refused() -> None:
    made = generate(SEED, 64, "hidden", weights={"list-back": 0})
    assert "list-back" not in {question.family for question in made}
    with pytest.raises(BadConfig, match="weight"):
        generate(SEED, 8, "hidden", weights=dict.fromkeys(FAMILIES, 0))


def test_an_unknown_family_and_one_that_has_run_dry_are_named() -> None:
    with pytest.raises(BadConfig, match="no-such-family"):
        generate(SEED, 8, "hidden", ["no-such-family"])
    dull = Family("dull", "lists", 1, lambda dice, template: [("one? ", "two")], lambda prompt: {"two"})
    with pytest.raises(BadConfig, match="dull has no more than 1 different"):
        generate(SEED, 2, "hidden", known={"dull": dull})


@pytest.mark.parametrize(
    ("prompt", "answer", "solved", "why"),
    [
        ("text without its space:", "a", {"a"}, "delimiter"),
        ("text ", " a", {" a"}, "white space"),
        ("text ", "a", {"a", "b"}, "only reading"),
        ("text ", "a", set(), "only reading"),
        ("x" * 1023 + " ", "a", {"a"}, "window"),
    ],
)
def test_an_exam_is_never_built_over_a_broken_rule(prompt: str, answer: str, solved: set[str], why: str) -> None:
    bad = Family("bad", "lists", 1, lambda dice, template: [(prompt, answer)], lambda prompt: solved)
    with pytest.raises(MachineryFailed, match=why) as caught:
        build_exam(SEED, 1, "1", known={"bad": bad})
    assert "text" not in caught.value.message and "bad" in caught.value.message


def test_a_solver_that_is_wrong_about_its_own_family_stops_the_build() -> None:
    liar = replace(FAMILIES["list-back"], solve=lambda prompt: {"never this"})
    with pytest.raises(MachineryFailed, match="list-back"):
        build_exam(SEED, 1, "1", known={"list-back": liar})


def test_departures_of_a_foreign_exam_are_counted_and_never_quoted() -> None:
    fine = [Question(f"q{n}", "c", "f", f"secret prompt {n}: ".encode(), b"%03d" % n) for n in range(30)]
    assert departures(fine) == []
    bad = [
        Question("a", "c", "f", b"secret prompt ", b" secret"),
        Question("b", "c", "f", b"s" * 2000 + b" ", b"x"),
        Question("d", "c", "f", b"secret:", b"x"),
        Question("e", "c", "f", b"secret:", b"x"),
    ]
    found = departures([*fine, *bad])
    assert len(found) == 4 and not any("secret" in line for line in found)
    assert "2 of 34" in " ".join(found), "two prompts without a space"
    constant = departures([Question(f"q{n}", "c", "f", b"%d " % n, b"same") for n in range(30)])
    assert len(constant) == 1 and "30 of 30" in constant[0] and "same" not in constant[0]


def test_a_prompt_and_answer_of_exactly_the_window_fit() -> None:
    assert broken(Question("q", "c", "f", b"x" * 1022 + b" ", b"a")) is None
    assert "1025" in (broken(Question("q", "c", "f", b"x" * 1023 + b" ", b"a")) or "")
