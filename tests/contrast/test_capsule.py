"""A capsule proves its run: whatever is changed in it is found and named, and the scores come out of the weights again."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

import tinyloop
from crucible.contrast import encode, evalset, evaluate
from crucible.contrast.capsules import capsule, capsule_file, capsule_verify
from crucible.contrast.capsules.capsule import About, File
from crucible.contrast.capsules.capsule_verify import verify
from crucible.contrast.settings import load, with_overrides
from crucible.contrast.sweeps import production, selection
from crucible.contrast.sweeps.selection import SeedResult, select
from crucible.contrast.train.run import train
from crucible.contrast.train.rundir import RunDir
from crucible.documents import to_json
from crucible.errors import BadConfig, BadData, GuardrailTripped, IntegrityBroken, Mistake, NotComparable
from crucible.kernel import digest, ledger


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    before = os.environ.get("CRUCIBLE_CACHE_DIR")
    os.environ["CRUCIBLE_CACHE_DIR"] = str(folder / "cache")
    yield tinyloop.corpus(folder / "corpus")
    os.environ.pop("CRUCIBLE_CACHE_DIR") if before is None else os.environ.update(CRUCIBLE_CACHE_DIR=before)


@pytest.fixture(scope="module")
def run(project, tmp_path_factory):
    """A finished run that no test changes."""
    out = tmp_path_factory.mktemp("run") / "R"
    train(load(project), out, seed=1)
    return out


@pytest.fixture(scope="module")
def packed(run):
    path = run.parent / "c.tar.gz"
    capsule.pack(run, path)
    return path


def members(path: Path) -> dict[str, bytes]:
    return {member.name: b"".join(member.chunks) for member in capsule_file.members(path)}


def forged(path: Path, target: Path, changes: dict[str, bytes | None], **about) -> Path:
    """The capsule with other files, and a manifest and a ledger head that agree with them: a careful forger's work."""
    files = {name: data for name, data in members(path).items() if name != capsule.ABOUT}
    files |= {name: data for name, data in changes.items() if data is not None}
    files = {name: files[name] for name in sorted(files) if changes.get(name, b"") is not None}
    told = msgspec.json.decode(members(path)[capsule.ABOUT], type=About)
    manifest = {name: File(digest.of_bytes(data), len(data)) for name, data in files.items()}
    book = target.with_suffix(".ledger")
    book.write_bytes(files["ledger.jsonl"])
    told = msgspec.structs.replace(told, manifest=manifest, ledger=ledger.verify(book), **about)
    capsule_file.write(target, [(capsule.ABOUT, to_json(told)), *files.items()])
    return target


def rechained(folder: Path, files: dict[str, bytes], edit) -> bytes:
    """The ledger written anew with every body as `edit` gives it: what somebody can do who owns the machine."""
    old, new = folder / "old.jsonl", folder / "new.jsonl"
    old.write_bytes(files["ledger.jsonl"])
    new.unlink(missing_ok=True)
    ledger.append_all(new, [(line.entry.kind, edit(line.entry.kind, line.entry.body)) for line in ledger.read(old)])
    return new.read_bytes()


def broken(path: Path, *names: str, **more) -> IntegrityBroken:
    """Verifying fails with exit 6 and names the capsule and one of the files in it."""
    with pytest.raises(IntegrityBroken) as caught:
        verify(path, **more)
    assert caught.value.exit_code == 6 and str(path) in caught.value.message
    assert not names or any(name in caught.value.message for name in names), caught.value.message
    return caught.value


# --- a capsule that is right -------------------------------------------------------------------------------------------------


def test_a_capsule_holds_the_run_and_what_it_was_measured_on(run, packed):
    names = set(members(packed))
    own = {path.relative_to(run).as_posix() for path in [*RunDir(run).files(), run / "run.json", run / "ledger.jsonl"]}
    assert own < names and {"checkpoint/head.npz", "scoreboards/frozen.items.jsonl", "log.jsonl"} < own
    assert {
        "capsule.json",
        "eval/frozen/changelog.jsonl",
        "eval/frozen/v1/items.jsonl",
        "eval/organic/organic.jsonl",
    } < names
    assert not any(name.startswith("checkpoints/") for name in names)


def test_what_is_verified_is_said_and_the_scores_come_out_again(packed, run):
    report = verify(packed)
    assert report.not_recomputed == {} and set(report.recomputed) == {
        "frozen",
        "organic",
        "base-frozen",
        "base-organic",
    }
    for one in report.recomputed.values():
        assert one.largest_difference <= 1e-9 and one.passes == one.passes_recorded
    info = RunDir(run).read_info()
    assert report.metrics == info.metrics and report.ledger_head == ledger.verify(run / "ledger.jsonl").digest
    assert report.sha256 == digest.of_file(packed)
    assert len(report.holds) == 6


def test_packing_twice_gives_the_same_bytes(run, packed, tmp_path):
    capsule.pack(run, tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == packed.read_bytes()


def test_an_unpacked_capsule_is_the_run_wherever_it_lies(packed, run, tmp_path):
    capsule.unpack(packed, tmp_path / "elsewhere" / "open")
    folder = tmp_path / "elsewhere" / "open"
    assert (folder / "checkpoint/head.npz").read_bytes() == (run / "checkpoint/head.npz").read_bytes()
    encoder = encode.by_name(f"head:{folder}")
    made = evaluate.evaluate(evalset.load(folder / "eval/frozen"), encoder)
    assert made.board.overall.correct == json.loads((run / "scoreboards/frozen.json").read_text())["overall"]["correct"]


def test_a_published_digest_is_compared(packed):
    assert verify(packed, expected=digest.of_file(packed).upper(), recompute=False).holds
    broken(packed, "its digest is", expected="0" * 64)


# --- changed -----------------------------------------------------------------------------------------------------------------


def test_a_changed_byte_anywhere_is_exit_6_and_names_the_capsule_and_mostly_the_file_in_it(packed, tmp_path):
    whole = packed.read_bytes()
    rng = random.Random(3)
    places = [*range(0, 48, 5), *range(len(whole) - 8, len(whole), 3), *rng.sample(range(48, len(whole)), 60)]
    inner = 0
    for place in places:
        path = tmp_path / "c.tar.gz"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :])
        error = broken(path)
        inner += error.facts["member"] is not None
        with pytest.raises(IntegrityBroken):
            capsule.unpack(path, tmp_path / "open")
        assert not (tmp_path / "open").exists()
    assert inner >= 55  # of the 60 in the content: a checksum and an end of a block belong to no file


def test_a_file_changed_by_unpacking_and_packing_with_other_tools_is_named(packed, tmp_path):
    folder = tmp_path / "open"
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    again = tmp_path / "again.tar.gz"
    subprocess.run(["tar", "czf", again, "-C", folder, "."], check=True)
    assert "packed by something else" in broken(again).message
    board = folder / "scoreboards/frozen.json"
    board.write_text(board.read_text().replace('"correct": ', '"correct": 1'))
    subprocess.run(["tar", "czf", again, "-C", folder, "."], check=True)
    broken(again, "scoreboards/frozen.json")
    (folder / "scoreboards/extra.json").write_text("{}")
    board.write_bytes(members(packed)["scoreboards/frozen.json"])
    subprocess.run(["tar", "czf", again, "-C", folder, "."], check=True)
    broken(again, "scoreboards/extra.json")


def test_something_that_is_no_capsule_is_said_to_be_none(tmp_path):
    (tmp_path / "x").write_text("hello")
    broken(tmp_path / "x", "not those of a capsule")
    (tmp_path / "empty").touch()
    broken(tmp_path / "empty")
    with pytest.raises(BadData, match="no such file"):
        verify(tmp_path / "missing")


def test_files_that_the_manifest_does_not_know_or_misses_are_named(packed, tmp_path):
    files = members(packed)
    path = tmp_path / "c"
    capsule_file.write(path, [*files.items(), ("zz", b"")])
    broken(path, "zz")
    capsule_file.write(path, [item for item in files.items() if item[0] != "log.jsonl"])
    broken(path, "log.jsonl")
    capsule_file.write(path, [(name, data) for name, data in files.items() if name != capsule.ABOUT])
    broken(path, "capsule.json")
    capsule_file.write(path, (files | {"log.jsonl": b"{}"}).items())
    broken(path, "log.jsonl")


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "log.jsonl", "items.jsonl", "run.json", "checkpoint/head.npz", "scoreboards/organic.items.jsonl"],
)
def test_a_forged_manifest_does_not_hide_a_changed_file_from_the_ledger(packed, tmp_path, name):
    data = members(packed)[name]
    changed = data[:-2] + b" " + data[-2:] if name != "checkpoint/head.npz" else data[:-1] + bytes([data[-1] ^ 1])
    broken(forged(packed, tmp_path / "c", {name: changed}), name, Path(name).stem)


def test_a_ledger_with_a_changed_or_missing_line_is_found(packed, tmp_path):
    files = members(packed)
    lines = files["ledger.jsonl"].splitlines(keepends=True)
    for book in (b"".join(lines[:2] + lines[3:]), files["ledger.jsonl"].replace(b'"seed":1', b'"seed":2', 1)):
        about = msgspec.json.decode(files[capsule.ABOUT], type=About)
        manifest = about.manifest | {"ledger.jsonl": File(digest.of_bytes(book), len(book))}
        told = to_json(msgspec.structs.replace(about, manifest=manifest))
        capsule_file.write(tmp_path / "c", (files | {capsule.ABOUT: told, "ledger.jsonl": book}).items())
        broken(tmp_path / "c", "ledger.jsonl")
    broken(forged(packed, tmp_path / "d", {"ledger.jsonl": b"".join(lines[:-1])}), "ledger.jsonl")


def test_other_eval_data_is_found_by_the_pin(packed, tmp_path):
    data = members(packed)["eval/organic/organic.jsonl"].replace(b"river0", b"river1")
    broken(forged(packed, tmp_path / "c", {"eval/organic/organic.jsonl": data}), "eval/organic/organic.jsonl")
    told = members(packed)["eval/frozen/v1/source-1.jsonl"].replace(b"river0", b"river1")
    broken(forged(packed, tmp_path / "d", {"eval/frozen/v1/source-1.jsonl": told}), "eval/frozen/v1/source-1.jsonl")


def test_better_numbers_with_a_ledger_and_digests_to_match_fail_at_the_weights(packed, run, tmp_path):
    """Everything that can be forged is: items, scoreboard, run.json, records, closing line, manifest. The weights say no."""
    files = members(packed)
    items = [json.loads(line) for line in files["scoreboards/organic.items.jsonl"].splitlines()]
    for item in items:
        item |= {"margin": abs(item["margin"]) + 0.01, "danger": -abs(item["margin"]) - 0.01}
    lines = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    board = json.loads(files["scoreboards/organic.json"])
    board["overall"] |= {"correct": len(items), "accuracy": 1.0, "pass_rate": 1.0}
    board["eval_header"]["items"]["sha256"] = digest.of_bytes(lines)
    told = json.loads(files["run.json"])
    told["metrics"]["organic_holdout"] = 1.0
    changes = {
        "scoreboards/organic.items.jsonl": lines,
        "scoreboards/organic.json": to_json(board),
        "run.json": to_json(told),
    }

    def edit(kind, body):
        if kind == "record" and body["artefact"] == told["checkpoint"] and body["pin"]["kind"] == "contrast.file":
            body["metrics"]["overall.pass_rate"] = 1.0
        if kind == "run.finished":
            body["files"] |= {name: digest.of_bytes(data) for name, data in changes.items()}
        return body

    changes["ledger.jsonl"] = rechained(tmp_path, files, edit)
    path = forged(packed, tmp_path / "c", changes)
    assert verify(path, recompute=False).metrics["organic_holdout"] == 1.0  # nothing but the weights can tell
    assert "recomputed, the margin of" in broken(path, "scoreboards/organic.json").message


def test_a_capsule_cannot_read_outside_itself(packed, tmp_path):
    about = msgspec.json.decode(members(packed)[capsule.ABOUT], type=About)
    data = about.data | {"organic": capsule.EvalData("../../../../etc", None)}
    broken(forged(packed, tmp_path / "c", {}, data=data), "capsule.json")


# --- what is missing ---------------------------------------------------------------------------------------------------------


def test_without_its_data_a_capsule_says_what_was_not_recomputed_and_takes_the_data_from_outside(
    run, project, tmp_path
):
    path = tmp_path / "c.tar.gz"
    capsule.pack(run, path, with_data=False)
    assert not any(name.startswith("eval/") for name in members(path))
    report = verify(path)
    assert set(report.not_recomputed) == {"frozen", "organic", "base-frozen", "base-organic"} and not report.recomputed
    refused = capsule_verify.refused(report)
    assert refused.exit_code == 1 and "not recomputed: its eval data is not in the capsule" in refused.message
    assert capsule_verify.refused(verify(path, recompute=False)) is None
    data = {"frozen": project.parent / "evalset", "organic": project.parent / "organic.jsonl"}
    given = verify(path, data=data)
    assert given.not_recomputed == {} and set(given.recomputed) == set(report.not_recomputed)
    with pytest.raises(NotComparable, match=r"is not what organic\.json"):
        verify(path, data=data | {"organic": project.parent / "bundles.jsonl"})


def test_a_missing_base_encoder_is_named_and_is_no_success(run, project, tmp_path):
    below = tmp_path / "below"
    shutil.copytree(run, below)
    config = with_overrides(load(project), {"model.encoder": f"head:{below}"})
    train(config, tmp_path / "R", seed=5)
    path = tmp_path / "c.tar.gz"
    capsule.pack(tmp_path / "R", path)
    assert verify(path).not_recomputed == {}
    shutil.rmtree(below)
    report = verify(path)
    assert report.recomputed == {} and all(f"needs head:{below}" in why for why in report.not_recomputed.values())
    assert "not recomputed: needs head:" in capsule_verify.refused(report).message
    assert capsule_verify.refused(verify(path, recompute=False)) is None


def test_an_unfinished_or_changed_run_is_not_packed(run, tmp_path):
    with pytest.raises(BadData, match="is not the folder of a training run"):
        capsule.pack(tmp_path, tmp_path / "c")
    other = tmp_path / "R"
    shutil.copytree(run, other)
    told = (other / "run.json").read_text()
    (other / "run.json").write_text(told.replace('"state": "done"', '"state": "training"'))
    with pytest.raises(Mistake, match="is not finished: training, 20 of 20 steps"):
        capsule.pack(other, tmp_path / "c")
    (other / "run.json").write_text(told)
    (other / "log.jsonl").write_text("")
    with pytest.raises(IntegrityBroken, match=r"log.jsonl: has the digest"):
        capsule.pack(other, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_an_eval_set_that_changed_since_is_not_packed_as_the_one_that_was_used(project, tmp_path):
    corpus = tmp_path / "corpus"
    path = tinyloop.corpus(corpus)
    train(load(path), tmp_path / "R", seed=1)
    organic = corpus / "organic.jsonl"
    organic.write_text("".join(organic.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(IntegrityBroken, match="is not what the run was evaluated on: item_count"):
        capsule.pack(tmp_path / "R", tmp_path / "c")
    capsule.pack(tmp_path / "R", tmp_path / "c", with_data=False)


def test_unpacking_never_writes_into_a_folder_that_is_there(packed, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "mine").touch()
    with pytest.raises(Mistake, match="already there"):
        capsule.unpack(packed, tmp_path / "open")
    assert [path.name for path in (tmp_path / "open").iterdir()] == ["mine"]


# --- three seeds -------------------------------------------------------------------------------------------------------------


def results(*values: float) -> list[SeedResult]:
    return [SeedResult(seed, f"c{seed}", {"organic_holdout": value}) for seed, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("values", "chosen"),
    [((0.3, 0.1, 0.2), 3), ((0.1, 0.2), 1), ((0.4, 0.1, 0.3, 0.2), 4), ((0.2, 0.2, 0.2), 2), ((0.5,), 1)],
)
def test_the_median_seed_is_chosen_the_lower_one_of_two_and_the_lower_seed_of_equals(values, chosen):
    found = select(results(*values))
    assert found.chosen == chosen and [one.metrics["organic_holdout"] for one in found.seeds] == sorted(values)
    assert select(results(*values)[::-1]) == found


def test_one_checkpoint_under_two_seeds_selects_nothing():
    same = [SeedResult(seed, "same", {"organic_holdout": 0.1}) for seed in (1, 2)]
    with pytest.raises(BadData, match="seeds 1 and 2 gave the same checkpoint"):
        select(same)
    with pytest.raises(BadData, match="seed 1 has no organic_holdout"):
        select([SeedResult(1, "c", {"organic_holdout": None})])


@pytest.fixture(scope="module")
def built(project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    made = production.build(load(project), (1, 2, 3), folder / "P", folder / "c.tar.gz", by="inline")
    return folder, made


def test_a_production_build_packs_the_median_seed_with_the_numbers_of_all(built):
    folder, made = built
    infos = [RunDir(folder / f"P/seed-{seed}").read_info() for seed in (1, 2, 3)]
    ordered = sorted(infos, key=lambda info: (info.metrics["organic_holdout"], info.seed))
    assert made.selection.chosen == ordered[1].seed
    report = verify(folder / "c.tar.gz")
    assert report.run["seed"] == made.selection.chosen and report.selection == made.selection
    assert {one.seed: one.metrics for one in report.selection.seeds} == {info.seed: info.metrics for info in infos}
    names = set(members(folder / "c.tar.gz"))
    for one in ordered[::2]:
        assert {f"seeds/seed-{one.seed}/run.json", f"seeds/seed-{one.seed}/ledger.jsonl"} < names


def test_building_again_trains_nothing_and_gives_the_same_capsule(built, project):
    folder, made = built
    before = (folder / "c.tar.gz").read_bytes()
    events = []
    again = production.build(
        load(project), (1, 2, 3), folder / "P", folder / "c.tar.gz", by="inline", on_event=events.append
    )
    assert again == made and {event.kind for event in events} == {"skipped"}
    assert (folder / "c.tar.gz").read_bytes() == before


def test_a_selection_that_its_rule_would_not_make_is_found(built, tmp_path):
    path = built[0] / "c.tar.gz"
    told = built[1].selection
    luckier = msgspec.structs.replace(told, chosen=told.seeds[-1].seed)
    broken(forged(path, tmp_path / "a", {"selection.json": to_json(luckier)}), "selection.json", "run.json")
    first, *others = told.seeds
    worse = msgspec.structs.replace(first, metrics=first.metrics | {"organic_holdout": 0.0})
    nicer = msgspec.structs.replace(told, seeds=[worse, *others])
    broken(forged(path, tmp_path / "b", {"selection.json": to_json(nicer)}), "selection.json")
    name = f"seeds/seed-{first.seed}/run.json"
    lowered = json.loads(members(path)[name])
    lowered["metrics"]["organic_holdout"] = 0.0
    broken(
        forged(path, tmp_path / "c", {name: to_json(lowered), "selection.json": to_json(select([worse, *others]))}),
        name,
    )


def test_a_build_needs_seeds_both_truths_and_obeys_the_guardrails(project, tmp_path):
    config = load(project)
    with pytest.raises(BadConfig, match="no median"):
        production.build(config, (1,), tmp_path / "P", tmp_path / "c", by="inline")
    with pytest.raises(BadConfig, match="both truths"):
        production.build(
            with_overrides(config, {"data.organic_eval": None}), (1, 2), tmp_path / "P", tmp_path / "c", by="inline"
        )
    with pytest.raises(GuardrailTripped, match="guardrail G1"):
        production.build(config, (1, 2), tmp_path / "P", tmp_path / "c", by="inline", enforce=True)
    assert not (tmp_path / "c").exists() and selection.RULE in selection.select(results(0.1)).rule
