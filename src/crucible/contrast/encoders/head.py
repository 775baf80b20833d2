"""Texts -> vectors by a trained head over another encoder: y = x + f(x), x from the cache. NumPy only; training is elsewhere.

    CHECKPOINT/
      head.json     what it is: the encoder it stands on with its digest, its shape, the digest of its weights
      head.npz      the weights, plain float32 arrays

        linear      f(x) = x W + b
        mlp         f(x) = gelu(x W + b) V + c        (the tanh form of gelu)

CHECKPOINT may also be the folder of a run, which holds a checkpoint/. The digest covers the encoder below, the kind and the
weights, so a head over a model that has changed since is refused and never scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from crucible.contrast.encoders import arrays
from crucible.contrast.encoders.arrays import Arrays
from crucible.contrast.progress import Progress
from crucible.documents import read_json
from crucible.errors import BadConfig, BadData, IntegrityBroken
from crucible.kernel import digest

ABOUT, WEIGHTS, CHECKPOINT = "head.json", "head.npz", "checkpoint"
Kind = Literal["linear", "mlp"]
_REVISION = 1
"""Raise it when the same weights give other vectors: the digest must change with it."""
_ROWS_AT_ONCE = 2048
_LARGEST = 1 << 16
_DEEPEST = 8
_WHAT = "a trained head"
_FIX = "Give a run folder of `crucible train` or its checkpoint/."


class Below(msgspec.Struct, frozen=True):
    """The encoder a head stands on."""

    id: str
    digest: str


class Trained(msgspec.Struct, frozen=True):
    steps: int
    seed: int
    config_sha256: str


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What head.json says."""

    schema: int
    kind: Kind
    base: Below
    dimension: int
    hidden: int
    weights_sha256: str
    trained: Trained


def shapes(dimension: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The weights of a head by name."""
    if hidden == 0:
        return {"w": (dimension, dimension), "b": (dimension,)}
    return {"w": (dimension, hidden), "b": (hidden,), "v": (hidden, dimension), "c": (dimension,)}


def applied(weights: Arrays, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x + f(x), not normalised. In float64, so that a vector does not depend on how many others are computed with it."""
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    made = np.empty_like(x)
    for start in range(0, len(x), _ROWS_AT_ONCE):
        part = x[start : start + _ROWS_AT_ONCE].astype(np.float64)
        inner = part @ wide["w"] + wide["b"]
        if "v" in wide:
            inner = _gelu(inner) @ wide["v"] + wide["c"]
        made[start : start + _ROWS_AT_ONCE] = part + inner
    return made


def head_encoder(asked: str, device: str, by_name: Callable[[str, str], Any], unit: Callable[..., Any]) -> HeadEncoder:
    """`head:CHECKPOINT`; `by_name` makes the encoder below, `unit` its vectors at length 1 through the cache."""
    folder = _folder_of(asked)
    about = _about(folder / ABOUT)
    _require_shallow(folder, about)
    below = by_name(about.base.id, device)
    if below.digest != about.base.digest:
        raise BadData.at(
            folder / ABOUT,
            f"stands on {about.base.id} with digest {about.base.digest[:16]}…, which now has {below.digest[:16]}…",
            field="base.digest",
            fix=f"Restore the model that {about.base.id} was, or train a head on the new one.",
        )
    actual = digest.of_file(folder / WEIGHTS)
    if actual != about.weights_sha256:
        raise IntegrityBroken(
            f"{folder / WEIGHTS} has the digest {actual[:16]}…, {ABOUT} says {about.weights_sha256[:16]}…: it was changed",
            fix="Restore the checkpoint from a copy, or train again.",
            facts={"file": str(folder / WEIGHTS)},
        )
    weights = arrays.unpacked(folder / WEIGHTS, shapes(about.dimension, about.hidden), _WHAT)
    return HeadEncoder(f"head:{asked}", about.kind, about.weights_sha256, weights, below, unit)


class HeadEncoder:
    """Cheap: the costly vectors are those of the encoder below, and the cache keeps them under its own digest."""

    cheap: ClassVar[bool] = True

    def __init__(
        self, name: str, kind: Kind, weights_sha256: str, weights: Arrays, below: Any, unit: Callable[..., Any]
    ) -> None:
        self.id = name
        self._kind, self._sha256, self._weights, self._below, self._unit = kind, weights_sha256, weights, below, unit

    @cached_property
    def digest(self) -> str:
        facts = {"revision": _REVISION, "kind": self._kind, "base": self._below.digest, "weights": self._sha256}
        return digest.of_json({"encoder": "head", **facts})

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        x: npt.NDArray[np.float32] = self._unit(self._below, texts, progress)[0]
        expected = self._weights["w"].shape[0]
        if x.shape[1] != expected:
            raise BadData(
                f"{self.id} takes vectors of {expected} numbers, {self._below.id} gives {x.shape[1]}",
                fix="Train a head on this encoder.",
            )
        return applied(self._weights, x)


def _gelu(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    made: npt.NDArray[np.float64] = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return made


def _folder_of(asked: str) -> Path:
    path = Path(asked)
    inner = path / CHECKPOINT
    folder = path if (path / ABOUT).is_file() or not (inner / ABOUT).is_file() else inner
    if (path / "run.json").is_file() and folder == path:
        raise BadData.at(
            path, "is a run that has no trained head yet", fix="Let it finish: run `crucible train` again."
        )
    return folder


def _about(path: Path) -> About:
    about = read_json(path, About, _WHAT, _FIX)
    if about.schema != 1:
        raise BadData.at(path, f"is {about.schema}, this crucible reads 1", field="schema", fix="Update crucible.")
    for name, value, least in (("dimension", about.dimension, 1), ("hidden", about.hidden, 0)):
        if not least <= value <= _LARGEST:
            raise BadData.at(path, f"is {value}, it must be from {least} to {_LARGEST}", field=name, fix=_FIX)
    if (about.kind == "linear") != (about.hidden == 0):
        raise BadData.at(path, f"is {about.kind!r} with {about.hidden} hidden units", field="kind", fix=_FIX)
    return about


def _require_shallow(folder: Path, about: About) -> None:
    """A head may stand on a head; one that stands on itself would never end."""
    for _ in range(_DEEPEST):
        kind, _, place = about.base.id.partition(":")
        if kind != "head":
            return
        about = _about(_folder_of(place) / ABOUT)
    raise BadConfig(
        f"{folder} is a head on more than {_DEEPEST} heads, or on itself", fix="Train on the encoder at the bottom."
    )
