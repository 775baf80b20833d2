"""What a log says was drawn is counted item by item, and set against what the settings promise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast.config import Config, Curriculum, Phase, Training
from crucible.contrast.curriculum import Groups, Sampler
from crucible.contrast.realised import realised
from crucible.contrast.shares import POOLS
from crucible.documents import as_builtins
from crucible.errors import BadData

SIZES = {"tier1_easy": 40, "tier2_robust": 30, "legacy": 20, "organic": 10, "expanded": 5}
UNIFORM = Curriculum()
PHASED = Curriculum(
    mode="phased",
    phases=(Phase(until_step=100, tier_probabilities=(0.8, 0.2, 0.0)),),
    tier_probabilities=(0.2, 0.3, 0.5),
)


def groups(sizes=SIZES) -> Groups:
    ends = np.cumsum(list(sizes.values()))
    one, two, *three = np.split(np.arange(ends[-1]), ends[:-1])
    return Groups(one, two, dict(zip(POOLS, three, strict=True)))


def write_items(folder: Path, sizes=SIZES) -> None:
    lines = []
    for name, size in sizes.items():
        tier, pool = (name, "legacy") if name.startswith("tier") else ("tier3_adversarial", name)
        for _ in range(size):
            i = len(lines)
            lines.append({"index": i, "id": f"i{i}", "digest": "x", "tier": tier, "pool": pool, "sense": None})
    (folder / "items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_log(folder: Path, batches) -> Path:
    lines = (
        {"step": step, "loss": 1.0, "lr": 0.1, "grad_norm": None, "tiers": [1, 1, 1], "pools": {}, "drawn": list(drawn)}
        for step, drawn in enumerate(batches, 1)
    )
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "log.jsonl"


def trained(folder: Path, curriculum=UNIFORM, steps=300, sizes=SIZES, seed=1) -> Path:
    """The folder of a run that drew what its settings say."""
    sampler = Sampler(groups(sizes), curriculum, batch_size=16, seed=seed)
    write_items(folder, sizes)
    config = Config(curriculum=curriculum, training=Training(steps=steps, batch_size=16))
    (folder / "config.yaml").write_text(yaml.safe_dump(as_builtins(config)))
    return write_log(folder, (sampler.batch(step).items.tolist() for step in range(steps)))


@given(st.lists(st.lists(st.integers(0, 104), min_size=4, max_size=4), min_size=1, max_size=30))
def test_draws_are_counted_item_by_item(tmp_path_factory, batches):
    folder = tmp_path_factory.mktemp("log")
    write_items(folder)
    made = realised(write_log(folder, batches))
    seen = Counter(index for batch in batches for index in batch)
    begin = 0
    for one, (name, size) in zip(made.groups, SIZES.items(), strict=True):
        counts = [seen[index] for index in range(begin, begin + size)]
        begin += size
        assert (one.group, one.items, one.draws) == (name, size, sum(counts))
        assert (one.minimum, one.maximum, one.never_seen) == (min(counts), max(counts), counts.count(0))
        assert one.mean == pytest.approx(sum(counts) / size)
        assert one.quantiles["q50"] == pytest.approx(float(np.quantile(counts, 0.5)))
        assert one.never_seen_ids == [f"i{begin - size + i}" for i, count in enumerate(counts) if not count][:10]
        assert one.expected is None
    assert (made.steps, made.batch_size) == (len(batches), 4)


@pytest.mark.parametrize("curriculum", [Curriculum(), PHASED], ids=lambda c: c.mode)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_that_follows_its_settings_has_no_complaint(tmp_path, curriculum, seed):
    made = realised(trained(tmp_path, curriculum, steps=2000, seed=seed))
    assert [warning for warning in made.warnings if "standard deviations" in warning or "never" in warning] == []
    for one in made.groups:
        assert one.mean == pytest.approx(one.expected, rel=0.1)
        assert one.minimum >= one.mean - 1 and one.maximum <= one.mean + 1


def test_an_unfinished_run_is_measured_against_the_steps_it_has_done(tmp_path):
    """After 80 of 300 steps of a curriculum that begins without tier 3, nothing of tier 3 is expected."""
    log = trained(tmp_path, PHASED)
    log.write_bytes(b"".join(log.open("rb").readlines()[:80]))
    made = realised(log)
    assert made.steps == 80 and made.warnings == []
    assert [one.expected for one in made.groups[2:]] == [0, 0, 0]


def test_draws_that_do_not_follow_the_settings_are_named(tmp_path):
    log = trained(tmp_path, steps=600)
    config = Config(curriculum=Curriculum(tier_probabilities=(0.5, 0.3, 0.2)))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_builtins(config)))
    made = realised(log)
    assert any(w.startswith("legacy: ") and "the draws did not follow the settings" in w for w in made.warnings)
    assert any(w.startswith("tier1_easy: ") for w in made.warnings)
    assert not any(w.startswith("tier2_robust: ") for w in made.warnings)


def test_a_rarest_item_in_a_worse_class_than_the_expectation_is_a_warning(tmp_path):
    """Half of the draws of one legacy item go to another: the mean stays, the minimum falls from warning to critical."""
    log = trained(tmp_path, steps=800)
    before = realised(log)
    lines, swap = [json.loads(line) for line in log.open()], True
    for line in lines:
        for place, index in enumerate(line["drawn"]):
            if index == 70:
                line["drawn"][place] = 71 if swap else 70
                swap = not swap
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    after = realised(log)
    legacy, same = after.groups[2], before.groups[2]
    assert same.expected_status == same.minimum_status == "warning" and legacy.minimum_status == "critical"
    assert legacy.mean == same.mean and legacy.expected == same.expected
    assert not any("rarest" in w for w in before.warnings)
    (warning,) = [w for w in after.warnings if w.startswith("legacy")]
    assert f"the rarest item was seen {legacy.minimum} times ({legacy.minimum_status})" in warning


def test_items_that_were_never_seen_are_a_warning_with_their_ids(tmp_path):
    log = trained(tmp_path, steps=100)
    lines = [json.loads(line) for line in log.open()]
    for line in lines:
        line["drawn"] = [71 if index == 70 else index for index in line["drawn"]]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = realised(log)
    assert made.groups[2].never_seen_ids == ["i70"]
    assert any("legacy: 1 of 20 items were never seen" in w for w in made.warnings)


def test_what_a_cap_leaves_out_is_neither_rare_nor_never_seen(tmp_path):
    curriculum = Curriculum(tier_caps=(10, None, 14))
    made = realised(trained(tmp_path, curriculum, steps=1000))
    assert [one.items for one in made.groups] == [10, 30, 8, 4, 2]
    assert all(one.never_seen == 0 and one.minimum >= one.mean - 1 for one in made.groups)
    assert not any("never" in w or "deviations" in w for w in made.warnings)
    assert "tier1 is capped: 10 of its 40 bundles are used" in made.notes


def test_without_settings_the_summary_of_the_run_says_what_to_expect(tmp_path):
    log = trained(tmp_path, steps=200)
    (tmp_path / "config.yaml").unlink()
    assert realised(log).notes == ["neither config.yaml nor run.json stands beside the log: nothing to expect"]
    summary = {"steps": 400, "exposure": {"legacy": {"expected": 24.0}, "expanded": {"expected": None}}, "seed": 1}
    (tmp_path / "run.json").write_text(json.dumps(summary))
    made = realised(log)
    assert made.notes == ["200 of 400 steps are done: expectations are scaled to them"]
    assert [one.expected for one in made.groups] == [None, None, 12.0, None, None]


def test_a_torn_last_line_is_left_out_and_said(tmp_path):
    log = trained(tmp_path, steps=20)
    log.write_bytes(log.read_bytes()[:-30])
    made = realised(log)
    assert made.steps == 19 and any("the last line of log.jsonl breaks off" in note for note in made.notes)


def test_a_whole_last_line_without_a_line_end_counts(tmp_path):
    log = trained(tmp_path, steps=20)
    log.write_bytes(log.read_bytes()[:-1])
    assert realised(log).steps == 20


GOOD = '{"step": 1, "drawn": [0, 1]}\n'


@pytest.mark.parametrize(
    ("text", "line", "field", "said"),
    [
        ("", None, None, "holds no step"),
        ('{"step": 1', None, None, "holds no step"),
        ("nonsense\n", 1, None, "malformed"),
        (GOOD + '{"step": 2}\n', 2, "drawn", "missing"),
        (GOOD + '{"step": "2", "drawn": []}\n', 2, "step", "Expected `int`, got `str`"),
        (GOOD + '{"step": 2, "drawn": [0, null]}\n', 2, "drawn[1]", "Expected `int`, got `null`"),
        (GOOD + '{"step": 2, "drawn": [0, 105]}\n', 2, "drawn[1]", "105 is no item: there are 105"),
        (GOOD + '{"step": 2, "drawn": [-1, 0]}\n', 2, "drawn[0]", "-1 is no item"),
        (GOOD + '{"step": 3, "drawn": [0, 1]}\n', 2, "step", "is 3, but 2 is expected"),
        (GOOD + GOOD, 2, "step", "is 1, but 2 is expected"),
        (GOOD + '{"step": 2, "drawn": [0]}\n', 2, "drawn", "holds 1 items, the first line 2"),
        ('{"step": 1, "drawn": []}\n', 1, "drawn", "holds 0 items"),
        (GOOD + '{"step": 2, "drawn": [0, 1]\n' + GOOD, 2, None, "truncated"),
        (GOOD + '{"step": 2, "drawn": 5}', 2, "drawn", "Expected `array`"),
    ],
)
def test_a_bad_log_line_is_named_by_file_line_and_field(tmp_path, text, line, field, said):
    write_items(tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_text(text)
    with pytest.raises(BadData) as caught:
        realised(log)
    assert (caught.value.facts["line"], caught.value.facts["field"]) == (line, field)
    assert said in caught.value.message and "log.jsonl" in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no item"),
        ('{"index": 0}\n', "items.jsonl:1: id: missing"),
        ('{"index": 1, "id": "a"}\n', "items.jsonl:1: index: is 1, but the line is number 1"),
        ('{"index": 0, "id": 5}\n', "items.jsonl:1: id: Expected `str`"),
    ],
)
def test_bad_items_are_named_by_file_line_and_field(tmp_path, text, said):
    (tmp_path / "items.jsonl").write_text(text)
    (tmp_path / "log.jsonl").write_text(GOOD)
    with pytest.raises(BadData) as caught:
        realised(tmp_path / "log.jsonl")
    assert said in caught.value.message


def test_settings_that_were_edited_into_something_else_are_refused(tmp_path):
    log = trained(tmp_path, steps=5)
    (tmp_path / "config.yaml").write_text("curriculum: [1")
    with pytest.raises(BadData, match=r"config.yaml: is not the settings of a run"):
        realised(log)
