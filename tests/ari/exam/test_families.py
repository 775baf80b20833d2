"""The rules of the exam, held against thousands of documents of every family and template."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crucible.ari.exam.families
from crucible.ari.exam import words
from crucible.ari.exam.build import generate
from crucible.ari.exam.dice import Dice
from crucible.ari.exam.draw import draw
from crucible.ari.exam.families import CATEGORIES, FAMILIES, PUBLIC
from crucible.ari.exam.families.numbers import continuations
from crucible.ari.exam.family import MASK, Family, prompts
from crucible.ari.exam.questions import encode

DOCUMENTS = 120
"""Of each template: some twelve thousand documents in all."""
NAMES = sorted(FAMILIES)
SIDES: tuple[words.Side, ...] = ("hidden", "public")


@functools.cache
def documents(name: str, template: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    family = FAMILIES[name]
    return tuple(
        tuple(prompts(family.make(Dice(b"tests", side, name, template, number), template)))
        for number, side in zip(range(DOCUMENTS), itertools.cycle(SIDES), strict=False)
    )


def questions(name: str) -> list[tuple[str, str]]:
    family = FAMILIES[name]
    return [q for template in range(family.templates) for document in documents(name, template) for q in document]


def test_the_eight_categories_have_three_families_and_two_templates_each() -> None:
    assert len(CATEGORIES) == 8 and len(FAMILIES) >= 24
    counted = Counter(family.category for family in FAMILIES.values())
    assert set(counted) == set(CATEGORIES) and min(counted.values()) >= 3
    assert all(family.templates >= 2 for family in FAMILIES.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_document_has_one_answer_and_the_shape_of_the_exam(name: str) -> None:
    for prompt, answer in questions(name):
        assert FAMILIES[name].solve(prompt) == {answer}
        assert prompt.endswith(" ") and answer and not answer[0].isspace()
        assert len(prompt.encode()) >= 150 and len((prompt + answer).encode()) <= 1024
        assert (prompt + answer).isascii() and (prompt + answer).replace("\n", "").isprintable()
        assert "*" not in answer and MASK not in answer


@pytest.mark.parametrize("name", NAMES)
def test_candidates_are_prefix_free_or_the_prompt_shows_the_terminator(name: str) -> None:
    for template in range(FAMILIES[name].templates):
        asked = [question for document in documents(name, template) for question in document]
        if len({len(answer) for _, answer in asked}) == 1:
            continue
        ends = {answer[-1] for _, answer in asked}
        assert len(ends) == 1 and not ends & set("abcdefghijklmnopqrstuvwxyz0123456789 ")
        for prompt, answer in asked:
            assert prompt.count(answer[-1] + "\n") >= 5, "worked rows show where a value ends"
            assert answer[-1] not in answer[:-1]


@pytest.mark.parametrize("name", NAMES)
def test_no_constant_answers_a_family(name: str) -> None:
    answers = Counter(answer for _, answer in questions(name))
    assert answers.most_common(1)[0][1] <= 0.03 * answers.total()


@pytest.mark.parametrize("name", NAMES)
def test_templates_are_different_surfaces(name: str) -> None:
    """What all documents of a template have in common (its words and signs) is not that of another template."""

    def frame(template: int) -> frozenset[str]:
        tokens = [set(re.findall(r"[a-z]{2,}|[^\w\s]", doc[0][0])) for doc in documents(name, template)[:40]]
        return frozenset.intersection(*map(frozenset, tokens))

    def skeleton(template: int) -> str:
        return re.sub(r"[A-Za-z]+|\d+", "x", documents(name, template)[0][0][0].split("\n")[0])

    seen = [(frame(template), skeleton(template)) for template in range(FAMILIES[name].templates)]
    assert len(set(seen)) == len(seen)


def test_several_questions_of_a_document_hide_the_earlier_answers_behind_a_fixed_mask() -> None:
    several = 0
    for name in NAMES:
        for template in range(FAMILIES[name].templates):
            for document in documents(name, template):
                for place, (prompt, _) in enumerate(document):
                    assert prompt.count(MASK) == place
                for (before, answer), (after, _) in itertools.pairwise(document):
                    several += 1
                    assert after.startswith(before + MASK), (
                        "the mask stands where the answer stood, and is as wide as ever"
                    )
                    assert not after[len(before) :].startswith(answer)
    assert several > 1000


def test_the_answer_of_a_question_does_not_change_what_later_prompts_say() -> None:
    text = [("a: ", "long answer"), ("\nb: ", "x"), ("\nc: ", "y")]
    other = [("a: ", "s"), ("\nb: ", "another"), ("\nc: ", "y")]
    assert [prompt for prompt, _ in prompts(text)] == [prompt for prompt, _ in prompts(other)]


# --- words -----------------------------------------------------------------------------------------------------------------


def test_pools_are_disjoint_and_large_enough() -> None:
    for kind, least in (("things", 20), ("animals", 10), ("labels", 20), ("sentences", 12)):
        public, hidden = set(words.english(kind, "public")), set(words.english(kind, "hidden"))
        assert not public & hidden and min(len(public), len(hidden)) >= least
    for shape, least in (("cv", 25), ("cvc", 400), ("cvcv", 2000), ("cvcvc", 30_000), ("cvmvc", 30_000)):
        public, hidden = set(words.invented(shape, "public")), set(words.invented(shape, "hidden"))
        assert not public & hidden and min(len(public), len(hidden)) >= least


def test_public_and_hidden_questions_share_no_word_but_those_of_the_frames() -> None:
    """Frames are written in the families' own files; every other word is drawn, and drawn words have a side."""
    sources = Path(crucible.ari.exam.families.__file__).parent.glob("*.py")
    frames = {
        word.lower() for path in sources for word in re.findall(r"[A-Za-z]+", path.read_text().replace("\\n", " "))
    }
    spelled = {"record-code", "record-order", "glossary-affix", "extract-letters"}
    spelled |= {name for name in NAMES if name.startswith("symbol-")} | {"glossary-code"}

    def drawn(side: words.Side) -> set[str]:
        made = draw(b"words" * 4, 1600, side, [name for name in NAMES if name not in spelled])
        found = {word.lower() for one in made for word in re.findall(r"[A-Za-z]{3,}", one.prompt + one.answer)}
        return {word for word in found if word not in frames}

    public, hidden = drawn("public"), drawn("hidden")
    lines = [*words.english("sentences", "public"), *words.english("sentences", "hidden")]
    sentences = {word for line in lines for word in re.findall(r"[a-z]+", line.lower())}
    assert min(len(public), len(hidden)) > 3000
    assert public & hidden <= sentences
    assert all(words.side_of(word) == "hidden" for word in hidden - sentences)


# --- numbers ---------------------------------------------------------------------------------------------------------------


def test_a_sequence_with_two_readings_is_seen_as_such() -> None:
    assert continuations([1, 2, 3, 4, 5, 6]) == {7}
    assert continuations([1, 2, 4, 7, 11, 16]) == {22}
    assert continuations([1, 2, 4, 8, 16, 32]) == {64}
    assert continuations([1, 2, 3, 5, 8, 13]) == {21}
    assert continuations([5, 1, 6, 2, 7, 3]) == {8}
    assert continuations([2, 4, 6, 10]) == {16, 10}, "sums of the two before, or two sequences in turn"


@pytest.mark.parametrize("name", [name for name in NAMES if FAMILIES[name].category == "numeric sequences"])
def test_every_row_of_numbers_has_one_continuation_under_every_rule(name: str) -> None:
    """Not by the families' own reader: each rule is written out here once more, and every worked row is held to them too."""

    def rules(t: list[int]) -> set[int]:
        n, found = len(t), set()
        if all(t[i] - t[i - 1] == t[1] - t[0] for i in range(1, n)):
            found.add(2 * t[-1] - t[-2])
        if all(t[i] - 3 * t[i - 1] + 3 * t[i - 2] - t[i - 3] == 0 for i in range(3, n)):
            found.add(3 * t[-1] - 3 * t[-2] + t[-3])
        if all(t[i] * t[i - 2] == t[i - 1] ** 2 for i in range(2, n)):
            found.add(t[-1] ** 2 // t[-2])
        if all(t[i] == t[i - 1] + t[i - 2] for i in range(2, n)):
            found.add(t[-1] + t[-2])
        if all(t[i] - t[i - 2] == t[i - 2] - t[i - 4] for i in range(4, n)):
            found.add(2 * t[-2] - t[-4])
        return found

    for prompt, answer in questions(name):
        for line in (prompt + answer).split("\n"):
            *shown, last = [int(term) for term in re.findall(r"\d+", line)]
            assert rules(shown) == {last}


# --- drawing ---------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_questions_on_every_python() -> None:
    """The digest is the promise: a change of a family, a pool or the dice changes every exam built before it."""
    made = encode([*generate(b"0123456789abcdef", 64, "hidden"), *generate(b"0123456789abcdef", 64, "public")])
    assert hashlib.sha256(made).hexdigest() == "b4154fe53b04cc969f74c5c4beba431fd5c2a767010df203543bcf7ce7722480"


@given(st.binary(min_size=16, max_size=40), st.integers(1, 200))
def test_any_seed_gives_exactly_the_questions_asked_for(seed: bytes, count: int) -> None:
    made = generate(seed, count, "hidden")
    assert len(made) == len({question.prompt for question in made}) == len({question.id for question in made}) == count
    counted = Counter(question.category for question in made)
    assert max(counted.values()) - min([*counted.values(), 0] if len(counted) < 8 else counted.values()) <= 1


def test_another_seed_and_another_side_give_other_questions() -> None:
    one, two = generate(b"a" * 16, 64, "hidden"), generate(b"b" * 16, 64, "hidden")
    other = generate(b"a" * 16, 64, "public")
    assert not {q.prompt for q in one} & {q.prompt for q in two} and not {q.prompt for q in one} & {
        q.prompt for q in other
    }


def test_leaving_families_out_changes_none_of_the_others() -> None:
    every = draw(b"c" * 16, 320, "hidden")
    some = draw(b"c" * 16, 10, "hidden", ["list-back"])
    assert {one.prompt for one in some} == {one.prompt for one in every if one.family.name == "list-back"}


def test_the_window_is_used() -> None:
    sizes = [len(question.prompt) for question in generate(b"d" * 16, 960, "hidden")]
    assert 340 <= sum(sizes) / len(sizes) <= 460


def test_a_third_of_the_families_is_visible_in_public() -> None:
    assert 0.25 <= len(PUBLIC) / len(FAMILIES) <= 0.4
    assert {FAMILIES[name].category for name in PUBLIC} == set(CATEGORIES)


def test_a_reader_that_shared_the_makers_mistake_would_be_found() -> None:
    """The checks above bite: a document with the asked fact taken out, or told twice, is not solved to one answer."""
    family: Family = FAMILIES["record-field"]
    ((prompt, answer), *_) = prompts(family.make(Dice(b"bite", "hidden"), 0))
    assert family.solve(prompt) == {answer}
    table, asked = prompt.split("\n\n")
    assert family.solve(table.replace(answer, "bobob") + "\n\n" + asked) == {"bobob"}
    name = re.findall(r"[A-Z]\w+", asked.split("\n")[-1])[-1]
    gone = "\n".join(line for line in table.split("\n") if name not in line)
    assert family.solve(gone + "\n\n" + asked) == set()
