"""Prefix -> 256 numbers: the trained GPT, step by step, in NumPy. Loads in a moment and needs no torch.

A pure function of the prefix, to the last bit. What was computed for a shorter prefix is kept and used again (keys and
values of attention), and it is always computed the same way: whole blocks of bytes at once, the rest one by one.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

BLOCK = 64


class Model:
    def __init__(self, directory: str) -> None:
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as stream:
            config = json.load(stream)
        self.layers, self.heads, self.context = config["layers"], config["heads"], config["context"]
        flat = np.fromfile(os.path.join(directory, "weights.f16"), dtype="<f2").astype(np.float32)
        self.weights: dict[str, Any] = {}
        at = 0
        for name, shape in config["weights"]:
            size = int(np.prod(shape))
            self.weights[name] = flat[at : at + size].reshape(shape)
            at += size
        width = self.weights["norm"].size
        cache = (self.layers, self.heads, self.context, width // self.heads)
        self.keys, self.values = np.zeros(cache, np.float32), np.zeros(cache, np.float32)
        self.seen, self.last = b"", np.zeros(width, np.float32)

    def next_byte_logits(self, prefix: bytes) -> Any:
        prefix = prefix[-self.context :] or b"\n"
        if prefix != self.seen:
            done = len(self.seen) if prefix.startswith(self.seen) else 0
            # Single bytes that now fill a block are computed again, as that block.
            at = done if done // BLOCK == len(prefix) // BLOCK else done // BLOCK * BLOCK
            while at < len(prefix):
                count = BLOCK if at % BLOCK == 0 and at + BLOCK <= len(prefix) else 1
                self.last = self.advance(prefix[at : at + count], at)
                at += count
            self.seen = prefix
        return normal(self.last, self.weights["norm"]) @ self.weights["bytes"].T

    def advance(self, piece: bytes, at: int) -> Any:
        """The state at the last byte of `piece`, which begins at place `at`; fills in its keys and values."""
        w, count, end = self.weights, len(piece), at + len(piece)
        h = w["bytes"][list(piece)] + w["places"][at:end]
        later = np.arange(end)[None, :] > np.arange(at, end)[:, None]
        for layer in range(self.layers):
            qkv = normal(h, w[f"{layer}.norm1"]) @ w[f"{layer}.qkv"]
            q, k, v = qkv.reshape(count, 3, self.heads, -1).transpose(1, 2, 0, 3)
            self.keys[layer, :, at:end], self.values[layer, :, at:end] = k, v
            keys, values = self.keys[layer, :, :end], self.values[layer, :, :end]
            scores = q @ keys.transpose(0, 2, 1) / np.float32(np.sqrt(q.shape[-1]))
            scores = np.where(later, np.float32(-1e9), scores)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            seen = scores / scores.sum(axis=-1, keepdims=True) @ values
            h = h + seen.transpose(1, 0, 2).reshape(count, -1) @ w[f"{layer}.out"]
            h = h + gelu(normal(h, w[f"{layer}.norm2"]) @ w[f"{layer}.up"]) @ w[f"{layer}.down"]
        return h[-1]


def normal(h: Any, scale: Any) -> Any:
    centred = h - h.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * scale


def gelu(h: Any) -> Any:
    return 0.5 * h * (1.0 + np.tanh(np.float32(0.7978845608) * (h + np.float32(0.044715) * h * h * h)))
