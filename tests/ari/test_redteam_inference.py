"""Every inference attack for real: a hostile bundle, the real jail, the real grader, and the verdict it must get."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible.ari.artefact import pack
from crucible.ari.boxes import cgroup, options
from crucible.ari.boxes.bwrap import BwrapBox
from crucible.ari.boxes.local import LocalBox
from crucible.ari.redteam import inference
from crucible.ari.redteam.stage import BUNDLES, HOSTILE, Stage, canaries, staged, track, write_bundle
from crucible.ari.submit import artefact_limits
from crucible.errors import Mistake

SLOW = {"I4", "I7", "I9", "I12", "C13"}


@pytest.fixture
def box() -> Iterator[BwrapBox]:
    box = BwrapBox()
    yield box
    assert box._jobs._running == []
    box.close()


@pytest.mark.parametrize(
    "attack",
    [pytest.param(a, id=a.id, marks=pytest.mark.slow if a.id in SLOW else ()) for a in inference.ATTACKS],
)
def test_the_attack_gains_nothing(
    box: BwrapBox, attack: inference.Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    row = inference.run_one(attack, box)
    assert row.verdict == "held", row
    left = [g for p in cgroup._own_folders().values() for g in p.glob(f"{cgroup.PREFIX}{os.getpid()}-*")]
    assert left == [] and list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_the_attacks_are_those_of_the_design_and_each_has_its_bundle() -> None:
    assert [a.id for a in inference.ATTACKS] == [*(f"I{n}" for n in range(1, 13)), "C13"]
    folders = {path.name for path in BUNDLES.iterdir() if path.is_dir()}
    assert {attack.bundle for attack in inference.ATTACKS} == folders
    assert all(path.name.endswith(HOSTILE) for path in BUNDLES.rglob("*") if path.is_file())


def test_only_some_attacks_can_be_asked_for(box: BwrapBox) -> None:
    assert [row.attack for row in inference.run(box, ["I11"])] == ["I11"]
    with pytest.raises(Mistake, match="I99"):
        inference.run(box, ["I99"])
    with pytest.raises(Mistake, match="isolates nothing"):
        inference.run(LocalBox(), ["I11"])


# --- the attacks bite: where a defence is taken away, they find something ----------------------------------------------


def test_without_worlds_of_their_own_questions_find_the_marks_of_earlier_ones(
    box: BwrapBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "_world", lambda shape: None)
    with staged("state", box) as stage:
        said = [reply.answer.rstrip(b".") for reply in stage.answers(canaries(3)).values()]
    assert said[0] == b"found nothing"
    for mark in (b"file /tmp", b"file /dev/shm", b"shm", b"mqueue", b"pid"):
        assert mark in said[1], said[1]


def test_the_search_finds_an_exam_that_lies_about(box: BwrapBox, tmp_path: Path) -> None:
    questions = canaries(2)
    source, archive = tmp_path / "source", tmp_path / "bundle.tar.gz"
    write_bundle("search", source)
    (source / "notes.txt").write_bytes(b"somebody left this here: " + questions[0].answer)
    with archive.open("wb") as stream:
        pack(source, stream, artefact_limits(track()))
    graded = Stage(box, archive, tmp_path, track()).graded(questions)
    assert graded.passed == 1


def test_a_verdict_is_broken_where_the_machinery_fails(box: BwrapBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        options, "_world", lambda shape: {"user_namespace": False, "scratch": {"/nowhere": 1}, "kept": {"/nowhere": []}}
    )
    row = inference.run_one(inference.ATTACKS[0], box)
    assert row.verdict == "broken" and "could not make a world" in row.observed
