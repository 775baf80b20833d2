"""A digest is equal exactly when the content is."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.errors import BadData
from crucible.kernel import digest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


def plant(root: Path, files: dict[str, bytes], order: list[str]) -> Path:
    for name in order:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return root


FILES = {"a.txt": b"one", "b/c.txt": b"two", "b/d/e.bin": b"\x00\xff", "z": b""}


# --- bytes, streams, files ---------------------------------------------------------------------------------------------


def test_bytes_chunks_stream_and_file_agree_with_hashlib(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3 * (1 << 20) + 17)  # more than one chunk, and not a whole number of them
    expected = hashlib.sha256(data).hexdigest()
    path = tmp_path / "data"
    path.write_bytes(data)
    assert digest.of_bytes(data) == expected
    assert digest.of_chunks([data[:5], b"", data[5:]]) == expected
    assert digest.of_stream(io.BytesIO(data)) == expected
    assert digest.of_file(path) == expected
    assert digest.of_bytes(b"") == digest.EMPTY


def test_a_large_file_is_hashed_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.truncate(256 << 20)
    program = (
        "import sys; from pathlib import Path; from crucible.kernel import digest\n"
        "digest.of_file(Path(sys.argv[1]))\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 10  # kilobytes: the whole process for a file of 256 MiB


@pytest.mark.parametrize("what", ["missing", "."])
def test_what_is_not_a_readable_file_is_bad_data_that_names_it(tmp_path: Path, what: str) -> None:
    with pytest.raises(BadData, match=str(tmp_path)):
        digest.of_file(tmp_path / what)


# --- trees -------------------------------------------------------------------------------------------------------------


def test_tree_digest_does_not_depend_on_the_order_of_creation_or_on_where_the_tree_stands(tmp_path: Path) -> None:
    names = list(FILES)
    seen = set()
    for seed in range(6):
        random.Random(seed).shuffle(names)
        seen.add(digest.of_tree(plant(tmp_path / str(seed), FILES, names)))
    assert len(seen) == 1


def test_tree_digest_does_not_depend_on_the_order_in_which_the_disk_lists_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plant(tmp_path, FILES, list(FILES))
    first, listed = digest.of_tree(root), Path.iterdir
    for order in (sorted, lambda paths: sorted(paths, reverse=True)):
        monkeypatch.setattr(Path, "iterdir", lambda folder, order=order: iter(order(list(listed(folder)))))
        assert digest.of_tree(root) == first


def test_tree_digest_ignores_times_and_sees_everything_else(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", FILES, list(FILES))
    first = digest.of_tree(root)

    os.utime(root / "a.txt", (1, 1))
    assert digest.of_tree(root) == first

    seen = {first}

    def changed() -> None:
        now = digest.of_tree(root)
        assert now not in seen
        seen.add(now)

    (root / "a.txt").write_bytes(b"One")
    changed()
    (root / "a.txt").rename(root / "A.txt")
    changed()
    (root / "A.txt").chmod(0o755)
    changed()
    (root / "b/c.txt").rename(root / "c.txt")
    changed()
    (root / "empty").mkdir()
    changed()
    (root / "z").unlink()
    changed()


def test_tree_digest_cannot_be_forged_by_names_that_look_like_entries(tmp_path: Path) -> None:
    one = plant(tmp_path / "one", {"a": b"x", "b": b"y"}, ["a", "b"])
    forged = f"a f {digest.of_bytes(b'x')}\n1 b"
    two = plant(tmp_path / "two", {forged: b"y"}, [forged])
    assert digest.of_tree(one) != digest.of_tree(two)


def test_tree_digest_takes_names_that_are_not_utf8(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    assert len(digest.of_tree(root)) == 64


@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "dangling link", "fifo"])
def test_tree_digest_refuses_links_and_special_files_by_name(tmp_path: Path, kind: str) -> None:
    root = plant(tmp_path / "tree", FILES, list(FILES))
    odd = root / "b" / "odd"
    match kind:
        case "link to a file":
            odd.symlink_to(root / "a.txt")
        case "link to a folder":
            odd.symlink_to(tmp_path)
        case "dangling link":
            odd.symlink_to("nowhere")
        case _:
            os.mkfifo(odd)
    with pytest.raises(BadData, match="odd"):
        digest.of_tree(root)


def test_tree_digest_wants_a_real_folder(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", FILES, list(FILES))
    (tmp_path / "link").symlink_to(root)
    for path in (root / "a.txt", tmp_path / "missing", tmp_path / "link"):
        with pytest.raises(BadData, match="is not a folder"):
            digest.of_tree(path)


# --- canonical JSON ----------------------------------------------------------------------------------------------------


@given(VALUES)
def test_canonical_json_reads_back_as_the_same_value(value: object) -> None:
    written = digest.canonical_json(value)
    for back in (json.loads(written), msgspec.json.decode(written)):
        assert repr(back) == repr(json.loads(json.dumps(value, sort_keys=True)))
        assert digest.canonical_json(back) == written


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_keys_never_changes_the_bytes(value: object, rng: random.Random) -> None:
    def shuffled(inner: Any) -> Any:
        if isinstance(inner, list):
            return [shuffled(item) for item in inner]
        if not isinstance(inner, dict):
            return inner
        pairs = [(key, shuffled(item)) for key, item in inner.items()]
        rng.shuffle(pairs)
        return dict(pairs)

    assert digest.canonical_json(shuffled(value)) == digest.canonical_json(value)


def typed(value: Any) -> Any:
    """A value with its types spelled out, so that Python's == tells 1, 1.0 and True apart."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return type(value).__name__, repr(value)


@given(VALUES, VALUES)
def test_digests_are_equal_exactly_when_the_values_are(left: object, right: object) -> None:
    assert (digest.of_json(left) == digest.of_json(right)) == (typed(left) == typed(right))


def test_canonical_json_has_one_spelling() -> None:
    assert (
        digest.canonical_json({"b": [1, 1.0, True, None], "a": "é\n"}) == '{"a":"é\\n","b":[1,1.0,true,null]}'.encode()
    )


def test_integers_floats_and_booleans_are_three_different_things() -> None:
    assert len({digest.of_json(value) for value in (1, 1.0, True, "1")}) == 4
    assert digest.of_json(0.0) != digest.of_json(-0.0)
    assert digest.of_json(2**80) != digest.of_json(float(2**80))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_refused_with_the_path_to_it(bad: float) -> None:
    with pytest.raises(BadData, match=r"\$\.a\[1\]\.b is (nan|inf|-inf)"):
        digest.of_json({"a": [0, {"b": bad}]})


@pytest.mark.parametrize("key", [1, None, True, 1.5])
def test_keys_that_are_not_text_are_refused_with_the_path_to_them(key: object) -> None:
    with pytest.raises(BadData, match=r"\$\.a has the key"):
        digest.of_json({"a": {key: 1}})


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["x", {"a": "\udcff"}]])
def test_half_of_a_surrogate_pair_is_refused(value: object) -> None:
    with pytest.raises(BadData, match="surrogate"):
        digest.of_json(value)


def test_bytes_never_pass_for_their_base64_text() -> None:
    with pytest.raises(BadData, match=r"\$\.a is bytes"):
        digest.of_json({"a": b"abc"})


def test_a_set_has_the_same_digest_in_every_process() -> None:
    program = "from crucible.kernel import digest; print(digest.of_json({'facts': set('abcdefgh')}))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(seen) == 1


def test_a_value_nested_too_deeply_is_bad_data() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(BadData, match="nested too deeply"):
        digest.of_json(value)
