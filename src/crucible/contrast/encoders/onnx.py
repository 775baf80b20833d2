"""Texts -> vectors by an ONNX model and a tokenizer.json on this disk. Exports, quantises and downloads nothing.

A three-dimensional output (token vectors) is averaged over the attention mask, a two-dimensional one is used as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast.encoders import batching, foreign
from crucible.contrast.encoders.modelfiles import Hashed
from crucible.contrast.progress import Progress
from crucible.documents import read_bytes
from crucible.errors import BadData, DeviceUnavailable

_REVISION = 1
"""Raise it when the same files give other vectors here: the digest must change with it."""
_TOKENS_AT_ONCE = 1024
_MODEL = "an ONNX text encoder"
_LONGEST = 512
"""Where neither the model's settings nor its tokenizer name a limit."""
_EXTERNAL = re.compile(rb"\x0a\x08location\x12([\x80-\xff]?[\x00-\x7f])", re.DOTALL)
"""How an ONNX file names weights that lie in a file of their own: a key, then the length of the name, then the name."""


class _Loaded(NamedTuple):
    session: Any
    tokenizer: Any
    pad: int
    inputs: dict[str, npt.DTypeLike]
    output: str


class OnnxEncoder:
    cheap: ClassVar[bool] = False

    def __init__(self, asked: str, device: str = "auto") -> None:
        self.id = f"onnx:{asked}"
        foreign.require("onnxruntime", self.id, "onnx")
        foreign.require("tokenizers", self.id, "onnx")
        path = Path(asked)
        self._file = path if path.suffix == ".onnx" else path / "model.onnx"
        self._tokenizer_file = self._file.with_name("tokenizer.json")
        for needed in (self._file, self._tokenizer_file):
            if not needed.is_file():
                raise BadData.at(needed, "no such file", fix="Give a folder with model.onnx and tokenizer.json.")
        self._providers = _providers(device)

    @cached_property
    def _hashed(self) -> Hashed:
        settings = {"revision": _REVISION, "max_tokens": self._max_tokens}
        files = {"model.onnx": self._file, "tokenizer.json": self._tokenizer_file}
        return Hashed("onnx", settings, files | {name: self._file.parent / name for name in _external(self._file)})

    @property
    def digest(self) -> str:
        return self._hashed.digest

    @cached_property
    def _max_tokens(self) -> int:
        """The model's own limit; the one inside tokenizer.json is often only that of its training run."""
        for name, key in (
            ("sentence_bert_config.json", "max_seq_length"),
            ("tokenizer_config.json", "model_max_length"),
        ):
            file = self._file.with_name(name)
            if file.is_file():
                limit = _decoded(file).get(key)
                if isinstance(limit, int | float) and 0 < limit <= 1 << 20:
                    return int(limit)
        truncation = _decoded(self._tokenizer_file).get("truncation") or {}
        return int(truncation.get("max_length", _LONGEST))

    @cached_property
    def _loaded(self) -> _Loaded:
        import onnxruntime
        from tokenizers import Tokenizer

        hashed = self._hashed
        with foreign.Reading(self._tokenizer_file, "a tokenizer"):
            tokenizer = Tokenizer.from_file(str(self._tokenizer_file))
            pad = int((tokenizer.padding or {}).get("pad_id", 0))
            tokenizer.no_padding()
            tokenizer.enable_truncation(self._max_tokens)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
        with foreign.Reading(self._file, _MODEL):
            session = onnxruntime.InferenceSession(str(self._file), options, providers=self._providers)
        hashed.require_unchanged()
        inputs: dict[str, npt.DTypeLike] = {
            entry.name: "int32" if "int32" in entry.type else "int64" for entry in session.get_inputs()
        }
        unknown = inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"}
        if "input_ids" not in inputs or unknown:
            raise BadData.at(
                self._file,
                f"takes {sorted(inputs)}, not input_ids and attention_mask",
                fix="Export a text encoder (feature extraction).",
            )
        return _Loaded(session, tokenizer, pad, inputs, _output([entry.name for entry in session.get_outputs()]))

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        loaded, done = self._loaded, 0
        rows = [entry.ids for entry in loaded.tokenizer.encode_batch(list(texts))]
        result: npt.NDArray[np.float32] | None = None
        for places in batching.batches([len(row) for row in rows], _TOKENS_AT_ONCE):
            with foreign.Reading(self._file, _MODEL):
                vectors = _run(loaded, [rows[i] for i in places])
            if result is None:
                result = np.empty((len(texts), vectors.shape[1]), dtype=np.float32)
            result[places] = vectors
            done += len(places)
            if progress:
                progress(done, len(texts))
        return np.empty((0, 1), dtype=np.float32) if result is None else result


def _run(loaded: _Loaded, rows: batching.Tokens) -> npt.NDArray[np.float32]:
    ids, mask = batching.padded(rows, loaded.pad)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    fed = {name: given[name].astype(kind) for name, kind in loaded.inputs.items()}
    (output,) = loaded.session.run([loaded.output], fed)
    values: npt.NDArray[np.float32] = np.asarray(output, dtype=np.float32)
    if values.ndim == 3 and values.shape[:2] == mask.shape:
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((values * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9))
    if values.ndim == 2 and len(values) == len(rows):
        return values
    raise ValueError(f"its output {loaded.output!r} has the shape {values.shape} for {len(rows)} texts")


def _output(names: Sequence[str]) -> str:
    """A finished vector if the model makes one, else its token vectors."""
    preferred = [name for name in ("sentence_embedding", "last_hidden_state", "token_embeddings") if name in names]
    return (preferred or list(names))[0]


def _providers(device: str) -> list[str]:
    import onnxruntime

    there = onnxruntime.get_available_providers()
    cuda = "CUDAExecutionProvider" in there
    if device.startswith("cuda") and not cuda:
        raise DeviceUnavailable(
            f"the device {device} was asked for, and this onnxruntime only has {', '.join(there)}",
            fix="Use --device auto or cpu, or install onnxruntime-gpu.",
        )
    return ["CUDAExecutionProvider", "CPUExecutionProvider"] if cuda and device != "cpu" else ["CPUExecutionProvider"]


def _external(file: Path) -> list[str]:
    """Names of the files beside the model that hold its weights, as the model itself gives them."""
    data = read_bytes(file, _MODEL)
    names = set()
    for at in _EXTERNAL.finditer(data):
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(at[1]))
        names.add(data[at.end() : at.end() + length].decode(errors="replace"))
    return sorted(names)


def _decoded(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_bytes(file, "a JSON object"), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadData.at(file, f"is not a JSON object: {error}", fix="Check the files of the model.") from None
