"""The WordNet reader takes the format as it is, typing errors included, and refuses a broken file with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.corpus import gloss, inflect, senses, wordnet
from crucible.errors import BadConfig, BadData

LICENCE = "  1 This database comes under a licence.  \n  2   \n  3 WordNet 9.1 Copyright 2030 by Somebody.  \n"
TINY = {
    "noun": [
        "00000100 03 n 01 entity 0 001 ~ 00000200 n 0000 | that which is",
        '00000200 17 n 02 bank 1 Riverbank 0 001 @ 00000100 n 0000 | sloping land; "he sat on the bank of the river"',
        '00000300 14 n 01 bank 0 001 @i 00000100 n 0000 | a firm; "the bank holds my mortgage"; "she went to the bank"',
    ],
    "verb": [
        '00000100 38 v 01 go 0 000 02 + 01 00 + 02 00 | move; "she went to the bank"',
        "00000200 38 v 0a a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j a 000 01 + 02 00 | ten words, counted in hex",
    ],
    "adj": [
        "00000100 00 a 01 common(a) 0 000 | usual",
        "00000200 00 s 02 rife(p) 2 galore(ip) 0 001 & 00000100 a 0000 | plentiful",
    ],
    "adv": ["00000100 02 r 01 well 0 000 | in a good manner"],
}


def database(folder: Path, **changed: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for pos, lines in (TINY | changed).items():
        (folder / f"data.{pos}").write_text(LICENCE + "".join(f"{line}  \n" for line in lines))
    return folder


def refusal(folder: Path) -> BadData:
    with pytest.raises(BadData) as caught:
        wordnet.read(folder)
    assert caught.value.fix
    return caught.value


def by_id(folder: Path) -> dict[str, wordnet.Synset]:
    return {synset.id: synset for synset in wordnet.read(folder).synsets}


# --- the files ---------------------------------------------------------------------------------------------------------


def test_words_keys_and_hypernyms_are_those_of_the_file(tmp_path):
    found = by_id(database(tmp_path))
    assert found["n00000200"].words == (("bank", "n17.1"), ("riverbank", "n17"))
    assert found["n00000200"].hypernyms == found["n00000300"].hypernyms == ("n00000100",)
    assert len(found["v00000200"].words) == 10
    assert found["v00000200"].words[-1] == ("j", "v38.10")


def test_markers_are_stripped_and_satellites_are_adjectives_named_by_their_head(tmp_path):
    satellite = by_id(database(tmp_path))["a00000200"]
    assert satellite.pos == "adj"
    assert satellite.words == (("rife", "s00.2:common"), ("galore", "s00:common"))


def test_version_licence_and_digests_come_from_the_files(tmp_path):
    read = wordnet.read(database(tmp_path))
    assert read.version == "9.1"
    assert read.licence.startswith("This database comes") and read.licence.endswith("by Somebody.")
    assert set(read.digests) == {"data.noun", "data.verb", "data.adj", "data.adv"}


def test_files_without_a_licence_have_no_version(tmp_path):
    folder = database(tmp_path)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace(LICENCE, ""))
    assert wordnet.read(folder).version == "unknown"


def test_the_inner_dict_folder_of_a_package_is_found(tmp_path):
    database(tmp_path / "dict")
    assert wordnet.locate(tmp_path) == tmp_path / "dict"


def test_missing_database_says_what_to_install(tmp_path, monkeypatch):
    (database(tmp_path / "part") / "data.adv").unlink()
    monkeypatch.setattr(wordnet, "USUAL_FOLDERS", (tmp_path / "nowhere",))
    for folder in (None, tmp_path, tmp_path / "part"):
        with pytest.raises(BadConfig) as caught:
            wordnet.locate(folder)
        assert caught.value.fix == "Install wordnet-base or give --wordnet DIR."


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "00000100 03 n 01 entity 0 000",  # no gloss
        "100 03 n 01 entity 0 000 | short offset",
        "00000100 03 v 01 entity 0 000 | a verb among nouns",
        "00000100 03 n 02 entity 0 000 | more words counted than there are",
        "00000100 03 n zz entity 0 000 | not a count",
        "00000100 03 n 00 000 | no word",
        "00000100 03 n 01 entity 0 002 ~ 00000200 n 0000 | more pointers counted than there are",
        "00000100 03 n 01 entity 0 001 ~ 00000200 x 0000 | pointer to an unknown part of speech",
        "00000100 03 n 01 entity 0 000 left over | fields nobody counted",
        "00000100 03 n 01 entity 0 001 ~ 00000999 n 0000 | a pointer into nothing",
        "00000200 03 n 01 entity 0 000 | an offset twice",
    ],
)
def test_broken_line_is_refused_with_file_and_line(tmp_path, line):
    error = refusal(database(tmp_path, noun=[*TINY["noun"][1:], line]))
    assert (error.facts["file"], error.facts["line"]) == (str(tmp_path / "data.noun"), 6)


def test_satellite_without_a_head_is_refused(tmp_path):
    error = refusal(database(tmp_path, adj=["00000100 00 s 01 alone 0 000 | no head"]))
    assert (error.facts["file"], error.facts["line"]) == (str(tmp_path / "data.adj"), 4)


@pytest.mark.parametrize("name", ["data.noun", "data.verb", "data.adj", "data.adv"])
def test_every_truncation_within_a_line_is_refused(tmp_path, name):
    path = database(tmp_path) / name
    whole = path.read_bytes()
    for size in range(len(LICENCE), len(whole)):
        path.write_bytes(whole[:size])
        if not whole[:size].endswith(b"\n") or size == len(LICENCE):
            assert refusal(tmp_path).facts["file"] == str(path)


def test_truncation_between_lines_is_given_away_by_a_pointer(tmp_path):
    error = refusal(database(tmp_path, noun=TINY["noun"][:1]))
    assert error.facts["line"] == 4
    assert "n00000200" in error.message


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = database(tmp_path) / "data.adv"
    path.write_bytes(path.read_bytes() + b"00000200 02 r 01 \xff 0 000 | x  \n")
    assert refusal(tmp_path).facts["line"] == 5


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_any_bytes_are_read_or_refused(tmp_path_factory, lines):
    folder = database(tmp_path_factory.mktemp("wn"))
    (folder / "data.verb").write_bytes(b"\n".join([*lines, b""]))
    try:
        wordnet.read(folder)
    except BadData as error:
        assert error.facts["line"]


# --- glosses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "definition", "examples"),
    [
        ('move; "go home"; "run"', "move", ["go home", "run"]),
        ("no examples here; really", "no examples here; really", []),
        ('to compose:"This wall forms it"', "to compose", ["This wall forms it"]),
        ('reach a goal, e.g., "make the team"', "reach a goal", ["make the team"]),
        ('a; "x y" - George Meredith', "a", ["x y"]),
        ('a; "x y"--Ted Nelson; "z"', "a", ["x y", "z"]),
        ('a; "x y" "z w"', "a", ["x y", "z w"]),
        ('a; "x y;" "z w,"', "a", ["x y", "z w"]),
        ('progress (in the phrase "make strides"); "great strides"', 'progress (in the phrase "make strides")', ["great strides"]),
        ('reward as in "carrot and stick"', 'reward as in "carrot and stick"', []),
        ('sides; "Who?"; "I"m against him"', "sides", ["Who?", 'I"m against him']),
        ('of parts; "compound leaves; "compound heads"', "of parts", ["compound leaves", "compound heads"]),
        ('old; "classical Greek', "old", ["classical Greek"]),
        ('say; "drop a hint"; drop names"', "say", ["drop a hint"]),
        ('a post office"', 'a post office"', []),
        ('(of a ball) "a dead ball"', "(of a ball)", ["a dead ball"]),
        ('"only an example"', "", ["only an example"]),
        ('a; ""; " "', "a", []),
        ("", "", []),
    ],
)  # fmt: skip
def test_gloss_is_split_as_a_reader_would(text, definition, examples):
    assert gloss.split(text) == (definition, tuple(examples))


pieces = st.text(st.sampled_from('ab "";,.:-()\' \t'), max_size=40)


@given(pieces)
def test_no_gloss_crashes_or_gives_empty_examples(text):
    found = gloss.split(text)
    assert all(example.strip() == example != "" for example in found.examples)
    assert sum(map(len, found.examples)) + len(found.definition) <= len(text)


plain = st.from_regex(r"[a-z][a-z' ]{0,20}[a-z]", fullmatch=True).map(lambda text: " ".join(text.split()))


@given(plain, st.lists(plain, max_size=5), st.sampled_from(["; ", ";", " ; "]))
def test_well_formed_gloss_comes_back_exactly(definition, examples, separator):
    text = separator.join([definition, *(f'"{example}"' for example in examples)])
    assert gloss.split(text) == (definition, tuple(examples))


# --- which word an example shows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lemma", "pos", "text"),
    [
        ("bank", "noun", "two Banks failed"),
        ("go", "verb", "she went home"),
        ("swan", "verb", "planes were swanning over the hills"),
        ("look_up", "verb", "he looked the word up"),
        ("child", "noun", "The children's toys"),
        ("happy", "adj", "the happiest day"),
        ("well-done", "adj", "well-done beef"),
        ("u.s.", "noun", "back in the U.S."),
        ("carry", "verb", "he carried it"),
    ],
)
def test_a_word_is_found_in_its_forms(lemma, pos, text):
    assert inflect.uses(lemma, inflect.forms(text, pos))


@pytest.mark.parametrize(
    ("lemma", "pos", "text"),
    [
        ("bank", "noun", "the embankment broke"),
        ("look_up", "verb", "up he looked"),
        ("breathe", "verb", "the patient is respiring"),
        ("go", "noun", "she went home"),
    ],
)
def test_other_words_are_not_taken_for_it(lemma, pos, text):
    assert not inflect.uses(lemma, inflect.forms(text, pos))


@given(st.text(max_size=30), st.text(max_size=60), st.sampled_from(sorted(wordnet.FILES)))
def test_no_text_crashes_the_search_for_a_word(lemma, text, pos):
    assert inflect.uses(lemma, inflect.forms(text, pos)) in (True, False)


def test_events_have_readable_unique_ids_and_only_the_words_they_use(tmp_path):
    found = senses.harvest(wordnet.read(database(tmp_path)), glosses=True).events
    examples = {event.event_id: event.text for event in found if event.kind == "example"}
    assert examples == {
        "bank#n17.1/e1": "he sat on the bank of the river",
        "bank#n14/e1": "the bank holds my mortgage",
        "bank#n14/e2": "she went to the bank",
        "go#v38/e1": "she went to the bank",
    }
    ids = [event.event_id for event in found]
    assert len(set(ids)) == len(ids)
    assert "riverbank#n17/gloss" in ids and "rife#s00.2:common/gloss" in ids
    assert all(re.fullmatch(r"[^#]+#[nvasr]\d\d(\.\d+)?(:.+)?/(e\d+|gloss)", name) for name in ids)


def test_what_is_left_out_is_counted(tmp_path):
    lines = [
        '00000100 02 r 01 well 0 000 | good; "well done"; "he did it well"; "he did it well"; "nothing of it here"'
    ]
    found = senses.harvest(wordnet.read(database(tmp_path, adv=lines)), glosses=False)
    assert found.left_out == {"too_short": 1, "repeated": 1, "uses_no_word_of_its_synset": 1}
    assert [event.event_id for event in found.events if event.pos == "adv"] == ["well#r02/e2"]
