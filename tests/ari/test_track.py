from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.ari import track as tracks
from crucible.errors import BadConfig


def write(tmp_path: Path, text: str, name: str = "mine.toml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_official_track_has_the_numbers_of_the_methodology() -> None:
    track = tracks.load("official-1h")
    assert (track.budget_s, track.call_cap_s, track.reserve_s) == (3600, 1200, 300)
    assert (track.artifact_bytes, track.context_bytes, track.questions, track.seeds) == (16_000_000, 1024, 100, 3)
    assert (track.load_limit_s, track.question_limit_s, track.grade_limit_s) == (60, 30, 900)


def test_what_a_file_leaves_out_comes_from_the_mini_track(tmp_path: Path) -> None:
    track = tracks.load(write(tmp_path, 'name = "quick"\nversion = 2\nbudget_s = 9\nreserve_s = 1\n'))
    mini = tracks.load("mini")
    assert (track.name, track.version, track.budget_s, track.reserve_s) == ("quick", "2", 9.0, 1.0)
    assert (track.call_cap_s, track.artifact_bytes) == (mini.call_cap_s, mini.artifact_bytes)


def test_other_numbers_never_go_by_the_name_of_the_mini_track(tmp_path: Path) -> None:
    assert tracks.load(write(tmp_path, "budget_s = 30\n")).name == "mine"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("budget_s = -1", "budget_s"),
        ("budget_s = nan", "budget_s"),
        ("budget_s = inf", "budget_s"),
        ("budget_s = 0", "budget_s"),
        (f"artifact_bytes = {10**400}", "artifact_bytes"),
        ("artifact_bytes = 1.5", "artifact_bytes"),
        ("questions = true", "questions"),
        ("budget_s = 100\nreserve_s = 100", "reserve_s"),
        ("budgets_s = 100", "budgets_s"),
        ('name = "../evil"', "name"),
        ('name = ""', "name"),
        ("budget_s = [", "track file"),
        ("\x00", "track file"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(BadConfig) as caught:
        tracks.load(write(tmp_path, text))
    assert named in caught.value.message
    assert "mine.toml" in caught.value.message


def test_an_unknown_track_names_the_shipped_ones() -> None:
    with pytest.raises(BadConfig) as caught:
        tracks.load("marathon")
    assert all(name in caught.value.message for name in ("marathon", "mini", "official-1h"))


@given(st.binary(max_size=200))
def test_any_file_is_a_track_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("track") / "any.toml"
    path.write_bytes(data)
    try:
        tracks.load(str(path))
    except BadConfig as error:
        assert "any.toml" in error.message


def test_every_number_is_a_fact_of_the_pin_and_changes_its_digest() -> None:
    import msgspec

    mini = tracks.load("mini")
    before = tracks.pin(mini, box="local")
    for field in tracks.Track.__struct_fields__:
        value = getattr(mini, field)
        other = msgspec.structs.replace(mini, **{field: value + "x" if isinstance(value, str) else value + 1})
        changed = tracks.pin(other, box="local").differences(before)
        assert [difference.fact for difference in changed] == [f"track.{field}"]


def test_the_pin_holds_box_and_exam_and_no_host() -> None:
    mini = tracks.load("mini")
    here, there = tracks.pin(mini, box="local"), tracks.pin(mini, box="bwrap", exam_sha256="ab")
    assert {difference.fact for difference in here.differences(there)} == {"box", "exam"}
    assert tracks.with_exam(here, "ab").facts["exam"] == "ab"
    assert tracks.pin(mini, box="local", notes={"host": "elsewhere"}).digest == here.digest
