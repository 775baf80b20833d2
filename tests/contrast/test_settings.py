"""A configuration says exactly what its files, the environment and the command line say, and refuses everything else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast import settings
from crucible.contrast.config import Config
from crucible.errors import BadConfig, CrucibleError


def config(tmp_path: Path, text: str, name: str = "crucible.yaml", **overrides: str) -> Config:
    path = tmp_path / name
    path.write_text(text)
    return settings.load(path, {key.replace("__", "."): value for key, value in overrides.items()})


def refusal(tmp_path: Path, text: str, **overrides: str) -> str:
    with pytest.raises(BadConfig) as caught:
        config(tmp_path, text, **overrides)
    assert caught.value.exit_code == 2
    return caught.value.message


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert config(tmp_path, "") == Config()


def test_extends_merges_key_by_key_and_the_nearer_file_wins(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("training: {steps: 100, batch_size: 8}\ncurriculum: {tier_caps: [1, 2, 3]}\n")
    found = config(tmp_path, "extends: base.yaml\ntraining: {steps: 200}\ncurriculum: {tier_caps: [null, null, 5]}\n")
    assert (found.training.steps, found.training.batch_size) == (200, 8)
    assert found.curriculum.tier_caps == (None, None, 5)


def test_of_several_parents_the_later_wins(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("training: {steps: 1, batch_size: 1}\n")
    (tmp_path / "b.yaml").write_text("training: {steps: 2}\n")
    found = config(tmp_path, "extends: [a.yaml, b.yaml]\n").training
    assert (found.steps, found.batch_size) == (2, 1)


def test_a_circle_of_extends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: crucible.yaml\n")
    assert "extends itself" in refusal(tmp_path, "extends: a.yaml\n")


def test_paths_mean_the_same_wherever_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/base.yaml").write_text("data: {bundles: x.jsonl, frozen_eval: ../f}\n")
    monkeypatch.chdir("/")
    found = config(tmp_path, "extends: deep/base.yaml\ndata: {organic_eval: o.jsonl}\n", data__embeddings_cache="here")
    assert found.data.bundles == (str(tmp_path / "deep/x.jsonl"),)
    assert found.data.frozen_eval == str(tmp_path / "f") and found.data.organic_eval == str(tmp_path / "o.jsonl")
    assert found.data.embeddings_cache == "here"


def test_variables_come_from_the_environment_or_their_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", "77")
    found = config(
        tmp_path, "training: {steps: '${STEPS}', batch_size: '${NOT_SET:-9}'}\nexperiment: {name: '$${STEPS}'}\n"
    )
    assert (found.training.steps, found.training.batch_size, found.experiment.name) == (77, 9, "${STEPS}")


def test_a_variable_that_is_not_set_is_named_with_its_key(tmp_path: Path) -> None:
    os.environ.pop("NOWHERE_SET", None)
    message = refusal(tmp_path, "data: {frozen_eval: '${NOWHERE_SET}/x'}\n")
    assert "NOWHERE_SET" in message and "data.frozen_eval" in message


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("trainig: {steps: 1}\n", "trainig", "training"),
        ("training: {step: 1}\n", "training.step", "training.steps"),
        ("curriculum: {tier3_ratios: {legcy: 1.0}}\n", "legcy", "curriculum.tier3_ratios.legacy"),
        ("steps: 5\n", "steps", "training.steps"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known(tmp_path: Path, text: str, key: str, near: str) -> None:
    message = refusal(tmp_path, text)
    assert key in message and f"did you mean {near}?" in message


def test_an_unknown_override_is_refused_with_the_nearest_known(tmp_path: Path) -> None:
    assert "did you mean training.learning_rate?" in refusal(tmp_path, "", training__lerning_rate="1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training: {steps: many}\n", "training.steps"),
        ("training: {steps: 0}\n", "training.steps is 0"),
        ("training: {learning_rate: .nan}\n", "training.learning_rate is nan"),
        ("training: {steps: 1}\ntraining: {steps: 2}\n", "crucible.yaml:2: is not YAML: the key 'training' stands twice"),
        ("training: [1\n", "is not YAML"),
        ("- 1\n", "sections are expected"),
        ("1: 2\n", "no word"),
        ("experiment: {seeds: [1, 1]}\n", "experiment.seeds"),
        ("model: {train: full, encoder: hashing}\n", "model.encoder"),
        ("curriculum: {tier_probabilities: [0.5, 0.3, 0.1]}\n", "curriculum.tier_probabilities"),
        ("curriculum: {tier3_ratios: {legacy: 0.5}}\n", "curriculum.tier3_ratios"),
        ("device: {type: tpu}\n", "device.type"),
        ("curriculum: {mode: phasd}\n", "it is one of uniform, phased, phased_v2"),
        ("device: {precision: fp8}\n", "it is one of fp32, bf16"),
        ("data: !!python/object/apply:os.system [ls]\n", "is not YAML"),
        ("a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]\n", "too large"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


def test_numbers_without_a_dot_are_numbers(tmp_path: Path) -> None:
    """YAML 1.1 reads 1e-3 as a word."""
    assert config(tmp_path, "training: {learning_rate: 1e-3}\n").training.learning_rate == 0.001


def test_overrides_are_values_not_only_words(tmp_path: Path) -> None:
    found = config(
        tmp_path, "", training__steps="500", curriculum__tier_probabilities="[0.2, 0.3, 0.5]", data__bundles="a.jsonl",
        experiment__checkpoint_every="null", curriculum__tier3_ratios="{legacy: 1.0, organic: 0.0, expanded: 0.0}",
    )  # fmt: skip
    assert found.training.steps == 500 and found.curriculum.tier_probabilities == (0.2, 0.3, 0.5)
    assert found.data.bundles == ("a.jsonl",) and found.curriculum.tier3_ratios.legacy == 1.0


def test_what_is_dumped_loads_as_the_same(tmp_path: Path) -> None:
    found = config(
        tmp_path, "data: {bundles: [a, b]}\nexperiment: {name: 'x: ${HOME}', seeds: [7]}\nmodel: {hidden: 3}\n"
    )
    (tmp_path / "again.yaml").write_bytes(settings.dump(found))
    assert settings.load(tmp_path / "again.yaml") == found


def test_files_that_are_missing_are_all_named(tmp_path: Path) -> None:
    found = config(tmp_path, "data: {bundles: gone.jsonl, frozen_eval: away}\n")
    with pytest.raises(BadConfig) as caught:
        settings.require_files(found)
    assert "gone.jsonl" in caught.value.message and "away" in caught.value.message


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(settings.known_keys()), value=JSONISH)
def test_any_value_at_any_key_is_taken_or_refused_never_a_crash(key: str, value: Any) -> None:
    try:
        found = settings.with_overrides(Config(), {key: value})
    except CrucibleError as error:
        assert error.exit_code == 2 and error.fix
    else:
        assert settings.problems(found) == []
        msgspec.json.encode(found)


def test_what_is_wrong_on_the_command_line_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    assert refusal(tmp_path, "training: {steps: 5}\n", training__steps="abc").startswith("command line: training.steps")
    assert "crucible.yaml: training.batch_size" in refusal(tmp_path, "training: {batch_size: 0}\n", training__steps="7")


def test_a_parent_that_is_missing_is_named_with_the_file_that_extends_it(tmp_path: Path) -> None:
    message = refusal(tmp_path, "extends: gone.yaml\n")
    assert "crucible.yaml: extends" in message and "gone.yaml" in message
