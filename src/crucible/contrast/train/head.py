"""Vectors and rivals -> loss, gradient and a step of a projection head, in torch. Loads torch when it is used, not before.

    y = normalise(x + f(x))       f is linear, or two layers with a gelu between them

The last layer begins at zero, so that step 0 is the base encoder itself and training only ever adds what it learned. The
weights are those that `encoders/head.py` applies with NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crucible.contrast.config import Training
from crucible.contrast.encoders.arrays import Arrays
from crucible.contrast.encoders.head import shapes
from crucible.contrast.train.batch import Rivals, key

_BETAS, _ADAM_EPSILON = (0.9, 0.999), 1e-8
_EPSILON = 1e-12
"""A vector of length 0 stays 0: its cosine with everything is 0, as in the scores."""


def info_nce(y: Any, who: Sequence[Any], temperature: float) -> Any:
    """Mean cross-entropy of each positive among its rivals; `y` are unit vectors, `who` three parts of `Rivals` as tensors."""
    import torch

    anchors, positives, negatives = who
    logits = y.index_select(0, anchors) @ y.T / temperature
    candidates = negatives.scatter(1, positives[:, None], True)
    return torch.nn.functional.cross_entropy(logits.masked_fill(~candidates, -math.inf), positives)


def normalised(v: Any) -> Any:
    return v / v.norm(dim=1, keepdim=True).clamp_min(_EPSILON)


def learning_rate(training: Training, step: int) -> float:
    """At step 0, 1, …: up in a straight line through the warmup, then as the schedule says, to 0 at the end of the run."""
    if step < training.warmup_steps:
        return training.learning_rate * (step + 1) / training.warmup_steps
    if training.lr_schedule == "constant":
        return training.learning_rate
    way = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    rest = 1.0 - way if training.lr_schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * way))
    return training.learning_rate * max(0.0, rest)


def first_weights(dimension: int, hidden: int, seed: int) -> Arrays:
    """Zero where the head ends; a hidden layer begins as small random numbers, from raw bits that NumPy promises to keep."""
    made = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes(dimension, hidden).items()}
    if hidden:
        raw = np.random.Philox(key=key(seed, "first weights")).random_raw(dimension * hidden)
        uniform = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53 * 2.0 - 1.0
        made["w"] = (uniform * math.sqrt(1.0 / dimension)).astype(np.float32).reshape(dimension, hidden)
    return made


class Head:
    """Weights and optimiser on a device; `step` changes them, `weights` and `moments` are what a checkpoint keeps.

    AdamW is written out here: torch's own takes three seconds to construct (it loads the compiler), as long as a short run.
    """

    def __init__(self, weights: Arrays, training: Training, device: str, *, bf16: bool) -> None:
        import torch

        self._torch, self._training, self._device = torch, training, device
        self._bf16 = bf16 and device.startswith("cuda")
        self._w = {name: torch.tensor(array, device=device, requires_grad=True) for name, array in weights.items()}
        self._m = {name: torch.zeros_like(tensor) for name, tensor in self._w.items()}
        self._v = {name: torch.zeros_like(tensor) for name, tensor in self._w.items()}

    def vectors(self, x: npt.NDArray[np.float32]) -> Any:
        """Base vectors where they are needed: all of them go to a GPU once, on a CPU they stay the array they are."""
        return self._torch.from_numpy(x).to(self._device)

    def forward(self, x: Any) -> Any:
        with self._torch.autocast("cuda", dtype=self._torch.bfloat16, enabled=self._bf16):
            inner = self._torch.addmm(self._w["b"], x, self._w["w"])
            if "v" in self._w:
                active = self._torch.nn.functional.gelu(inner, approximate="tanh")
                inner = self._torch.addmm(self._w["c"], active, self._w["v"])
        return normalised(x + inner.float())

    def step(self, x: Any, who: Rivals, temperature: float, step: int) -> tuple[float, float]:
        """Step 0, 1, …: one update; loss and gradient norm before it. Nothing is changed where either is not finite."""
        torch = self._torch
        rows, *competing = (torch.from_numpy(part).to(self._device) for part in who.parts)
        loss = info_nce(self.forward(x.index_select(0, rows)), competing, temperature)
        gradients = dict(zip(self._w, torch.autograd.grad(loss, list(self._w.values())), strict=True))
        norm = float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())
        value = float(loss.detach())
        if math.isfinite(value) and math.isfinite(norm):
            clip = self._training.gradient_clip
            self._update(gradients, clip / norm if clip and norm > clip else 1.0, step)
        return value, norm

    def _update(self, gradients: dict[str, Any], scale: float, step: int) -> None:
        """AdamW: decay that does not pass through the moments pulls the head towards nothing, which is the base encoder."""
        rate, decay = learning_rate(self._training, step), self._training.weight_decay
        first, second = 1.0 - _BETAS[0] ** (step + 1), 1.0 - _BETAS[1] ** (step + 1)
        with self._torch.no_grad():
            for name, w in self._w.items():
                g, m, v = gradients[name] * scale, self._m[name], self._v[name]
                m.lerp_(g, 1.0 - _BETAS[0])
                v.mul_(_BETAS[1]).addcmul_(g, g, value=1.0 - _BETAS[1])
                w.mul_(1.0 - rate * decay)
                w.addcdiv_(m, (v.sqrt() / math.sqrt(second)).add_(_ADAM_EPSILON), value=-rate / first)

    def weights(self) -> Arrays:
        return {name: _array(tensor) for name, tensor in self._w.items()}

    def moments(self) -> Arrays:
        """The optimiser's memory, under names that `restore` knows."""
        both = (("m", self._m), ("v", self._v))
        return {f"{name}.{part}": _array(tensor) for part, held in both for name, tensor in held.items()}

    def restore(self, moments: Arrays) -> None:
        for part, held in (("m", self._m), ("v", self._v)):
            for name in held:
                held[name] = self._torch.tensor(moments[f"{name}.{part}"], device=self._device)


def moment_shapes(dimension: int, hidden: int) -> dict[str, tuple[int, ...]]:
    named = shapes(dimension, hidden).items()
    return {f"{name}.{part}": shape for part in ("m", "v") for name, shape in named}


def _array(tensor: Any) -> npt.NDArray[np.float32]:
    made: npt.NDArray[np.float32] = tensor.detach().float().cpu().numpy().copy()
    return made
