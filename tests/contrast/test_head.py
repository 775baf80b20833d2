"""A trained head is an encoder: the numbers torch gives, a digest that covers all it depends on, and no trust in its files."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible.contrast import encode
from crucible.contrast.config import Training
from crucible.contrast.encoders import arrays
from crucible.contrast.encoders.head import shapes
from crucible.contrast.train.head import Head, first_weights
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest

DIM = 16
BASE = f"hashing:{DIM}"
TEXTS = [
    "a steep river bank",
    "an account at the bank",
    "x",
    "naïve café 日本語",
    *(f"text number {i}" for i in range(40)),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))


def some_weights(hidden: int, scale: float = 0.3) -> arrays.Arrays:
    rng = np.random.default_rng(5)
    return {name: (rng.normal(size=shape) * scale).astype(np.float32) for name, shape in shapes(DIM, hidden).items()}


def save(folder: Path, weights: arrays.Arrays, hidden: int = 0, **changed: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    data = arrays.packed(weights)
    (folder / "head.npz").write_bytes(data)
    about = {
        "schema": 1, "kind": "mlp" if hidden else "linear", "base": {"id": BASE, "digest": encode.by_name(BASE).digest},
        "dimension": DIM, "hidden": hidden, "weights_sha256": digest.of_bytes(data),
        "trained": {"steps": 3, "seed": 1, "config_sha256": "0" * 64},
    }  # fmt: skip
    (folder / "head.json").write_text(json.dumps(about | changed))
    return folder


@pytest.mark.parametrize("hidden", [0, 24])
def test_head_encoder_gives_what_torch_gives(tmp_path: Path, hidden: int) -> None:
    weights = some_weights(hidden)
    x = encode.unit_vectors(encode.by_name(BASE), TEXTS)
    head = Head(weights, Training(), "cpu", bf16=False)
    expected = head.forward(head.vectors(x)).detach().numpy()
    found = encode.unit_vectors(encode.by_name(f"head:{save(tmp_path / 'h', weights, hidden)}"), TEXTS)
    assert np.abs(found - expected).max() < 1e-5
    assert np.abs(found - x).max() > 0.1


@pytest.mark.parametrize("hidden", [0, 24])
def test_untrained_head_is_the_base_encoder_bit_for_bit(tmp_path: Path, hidden: int) -> None:
    folder = save(tmp_path / "h", first_weights(DIM, hidden, 7), hidden)
    found = encode.unit_vectors(encode.by_name(f"head:{folder}"), TEXTS)
    assert found.tobytes() == encode.unit_vectors(encode.by_name(BASE), TEXTS).tobytes()


def test_vector_does_not_depend_on_the_company_it_keeps(tmp_path: Path) -> None:
    encoder = encode.by_name(f"head:{save(tmp_path / 'h', some_weights(24), 24)}")
    together = encoder.encode(TEXTS)
    assert np.array_equal(np.concatenate([encoder.encode([text]) for text in TEXTS]), together)


def test_run_folder_and_its_checkpoint_are_the_same_encoder(tmp_path: Path) -> None:
    save(tmp_path / "run" / "checkpoint", some_weights(0))
    names = [f"head:{tmp_path / 'run'}", f"head:{tmp_path / 'run' / 'checkpoint'}"]
    one, two = map(encode.by_name, names)
    assert one.digest == two.digest and [one.id, two.id] == names and one.cheap


def test_digest_covers_base_kind_and_weights_and_not_the_place(tmp_path: Path) -> None:
    first = encode.by_name(f"head:{save(tmp_path / 'a', some_weights(0))}").digest
    assert (
        encode.by_name(
            f"head:{save(tmp_path / 'b', some_weights(0), trained={'steps': 9, 'seed': 2, 'config_sha256': ''})}"
        ).digest
        == first
    )
    changed = some_weights(0)
    changed["w"][0, 0] += 1e-6
    assert encode.by_name(f"head:{save(tmp_path / 'c', changed)}").digest != first
    other = {"id": "hashing:16", "digest": encode.by_name("hashing:16").digest}
    assert encode.by_name(f"head:{save(tmp_path / 'd', some_weights(0), base=other)}").digest == first
    assert encode.by_name(f"head:{save(tmp_path / 'e', some_weights(8), 8)}").digest != first


def test_head_on_a_model_that_has_changed_since_is_refused_with_both_digests(tmp_path: Path) -> None:
    folder = save(tmp_path / "h", some_weights(0), base={"id": BASE, "digest": "ab" * 32})
    with pytest.raises(BadData, match="abababababababab") as caught:
        encode.by_name(f"head:{folder}")
    assert encode.by_name(BASE).digest[:16] in caught.value.message and "base.digest" in caught.value.message
    assert "train a head" in caught.value.fix


def test_head_on_a_head_works_and_on_itself_is_refused(tmp_path: Path) -> None:
    first = save(tmp_path / "first", some_weights(0))
    below = {"id": f"head:{first}", "digest": encode.by_name(f"head:{first}").digest}
    second = encode.by_name(f"head:{save(tmp_path / 'second', some_weights(0), base=below)}")
    assert encode.unit_vectors(second, TEXTS).shape == (len(TEXTS), DIM)
    ring = save(tmp_path / "ring", some_weights(0), base={"id": f"head:{tmp_path / 'ring'}", "digest": "00" * 32})
    with pytest.raises(BadConfig, match="or on itself"):
        encode.by_name(f"head:{ring}")


def test_weights_that_are_not_those_the_head_was_sealed_with_are_an_integrity_fault(tmp_path: Path) -> None:
    folder = save(tmp_path / "h", some_weights(0))
    data = bytearray((folder / "head.npz").read_bytes())
    data[-200] ^= 1
    (folder / "head.npz").write_bytes(data)
    with pytest.raises(IntegrityBroken, match="it was changed") as caught:
        encode.by_name(f"head:{folder}")
    assert caught.value.exit_code == 6 and "head.npz" in caught.value.message


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", compression) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return whole.getvalue()


def npy(array: Any, *, pickled: bool = False) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array(made, np.asarray(array), allow_pickle=pickled)
    return made.getvalue()


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("exploded"),))


GOOD = {"w.npy": npy(np.zeros((DIM, DIM), np.float32)), "b.npy": npy(np.zeros(DIM, np.float32))}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a trained head"),
        (b"PK\x03\x04 and so on", "is not a trained head"),
        (pickle.dumps(Bomb()), "is not a trained head"),
        (archive({"w.npy": GOOD["w.npy"]}), "holds w, a trained head holds b, w"),
        (archive(GOOD | {"../../etc/x.npy": b""}), "holds ../../etc/x, b, w"),
        (archive(GOOD | {"b.npy": npy(np.array([Bomb()] * DIM), pickled=True)}), "b: is object"),
        (archive(GOOD | {"b.npy": npy(np.zeros(DIM, np.float64))}), "b: is float64"),
        (archive(GOOD | {"b.npy": npy(np.zeros(DIM + 1, np.float32))}), r"b: is float32 \(17,\), expected float32 \(16,\)"),
        (archive(GOOD | {"b.npy": GOOD["b.npy"][:-4]}), "b: has 60 bytes of numbers, 64 are expected"),
        (archive(GOOD | {"b.npy": npy(np.full(DIM, np.nan, np.float32))}), "b: holds numbers that are not finite"),
        (archive(GOOD | {"b.npy": GOOD["b.npy"] + b"\0" * (64 << 20)}, zipfile.ZIP_DEFLATED), "is larger than"),
        (archive(GOOD) + b"\0" * (1 << 20), "is larger than the"),
        (archive(GOOD | {"b.npy": b"\x93NUMPY\x01\x00\x10\x00{'descr': [[[["}), "is not a trained head"),
        (archive(GOOD | {"b.npy": b""}), "is not a trained head"),
    ],
)  # fmt: skip
def test_bad_weights_are_refused_with_file_and_field_and_nothing_in_them_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "h", some_weights(0), weights_sha256=digest.of_bytes(data))
    (folder / "head.npz").write_bytes(data)
    with pytest.raises(BadData, match=said) as caught:
        encode.by_name(f"head:{folder}")
    assert "head.npz" in caught.value.message and caught.value.fix
    assert not (tmp_path / "exploded").exists()


def test_a_member_is_never_unpacked_beyond_its_shape(tmp_path: Path) -> None:
    """A few kilobytes that would unpack to gigabytes are refused within the memory of the array they claim to be."""
    import tracemalloc

    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("w.npy", GOOD["w.npy"])
        with made.open("b.npy", "w") as stream:
            stream.write(GOOD["b.npy"])
            for _ in range(256):
                stream.write(b"\0" * (1 << 20))
    path = tmp_path / "bomb.npz"
    path.write_bytes(whole.getvalue())
    most = {"w": (1024, DIM), "b": (DIM,)}
    tracemalloc.start()
    with pytest.raises(BadData):
        arrays.unpacked(path, {"w": (DIM, DIM), "b": (DIM,)}, "a trained head")
    with pytest.raises(BadData):
        arrays.unpacked(path, most | {"w": (1 << 16, DIM)}, "a trained head")
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": 2}, "schema: is 2"),
        ({"kind": "cubic"}, "kind"),
        ({"kind": "mlp"}, "kind: is 'mlp' with 0 hidden units"),
        ({"dimension": 0}, "dimension: is 0"),
        ({"dimension": 1 << 40}, "dimension: is"),
        ({"hidden": -1}, "hidden: is -1"),
        ({"base": {"id": BASE}}, "base"),
        ({"extra": 1}, "extra"),
        ({"dimension": 8}, "head.npz"),
    ],
)
def test_bad_description_is_refused_with_its_field(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadData, match=said):
        encode.by_name(f"head:{save(tmp_path / 'h', some_weights(0), **changed)}")


@pytest.mark.parametrize("gone", ["head.json", "head.npz", "."])
def test_missing_files_are_named(tmp_path: Path, gone: str) -> None:
    folder = save(tmp_path / "h", some_weights(0))
    shutil.rmtree(folder) if gone == "." else (folder / gone).unlink()
    with pytest.raises(BadData, match=str(folder)):
        encode.by_name(f"head:{folder}")


def test_run_without_a_finished_head_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BadData, match="no trained head yet"):
        encode.by_name(f"head:{tmp_path}")


def test_head_without_a_place_names_the_known_encoders() -> None:
    with pytest.raises(BadConfig, match="unknown encoder 'head'") as caught:
        encode.by_name("head")
    assert "head:CHECKPOINT" in caught.value.fix


def test_packed_arrays_are_the_same_bytes_every_time_and_numpy_reads_them() -> None:
    weights = some_weights(24)
    assert arrays.packed(weights) == arrays.packed({name: array.copy() for name, array in weights.items()})
    read = np.load(io.BytesIO(arrays.packed(weights)), allow_pickle=False)
    assert all(np.array_equal(read[name], array) for name, array in weights.items())
