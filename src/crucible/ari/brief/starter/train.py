"""Text -> a small byte-level GPT, trained from scratch -> a bundle to submit. Plain, correct, beatable.

    runner run starter/train.py --text text.txt --out model --size unit --seed 1

Sizes: unit trains in seconds on a CPU, smoke in about two minutes, hour is meant for a GPU. A call that runs out of its time
leaves a checkpoint and exits with 3: the same command again goes on from there. What comes out (OUT/) holds the weights as
float16, their shapes, and model.py, which answers without torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tarfile
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
COME_AGAIN = 3
LIMIT_BYTES = 16_000_000


@dataclasses.dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    context: int
    batch: int
    steps: int
    rate: float
    seconds: float = 1e9
    """Training time in all: the learning rate reaches its end with the last step or with this, whichever comes first."""
    call_seconds: float = 1e9
    """Training time in one call."""


SIZES = {
    "unit": Size(layers=2, width=64, heads=2, context=128, batch=4, steps=160, rate=5e-3),
    "smoke": Size(layers=4, width=128, heads=4, context=256, batch=8, steps=400, rate=3e-3, seconds=150),
    "hour": Size(6, 256, 8, context=1024, batch=64, steps=20_000, rate=2e-3, seconds=2400, call_seconds=1080),
}


# --- the model: a dictionary of tensors and one function ---------------------------------------------------------------


def new_weights(size: Size, seed: int) -> dict[str, Any]:
    """Random weights; nothing else ever enters them but training."""
    torch.manual_seed(seed)
    width, usual = size.width, 0.5 / math.sqrt(size.width)
    small = usual / math.sqrt(2 * size.layers)  # what is added to the stream, so that depth does not make it grow
    weights = {"bytes": torch.randn(256, width) * 0.1, "places": torch.randn(size.context, width) * 0.1}
    for layer in range(size.layers):
        weights |= {
            f"{layer}.norm1": torch.ones(width),
            f"{layer}.qkv": torch.randn(width, 3 * width) * usual,
            f"{layer}.out": torch.randn(width, width) * small,
            f"{layer}.norm2": torch.ones(width),
            f"{layer}.up": torch.randn(width, 4 * width) * usual,
            f"{layer}.down": torch.randn(4 * width, width) * small,
        }
    return weights | {"norm": torch.ones(width)}


def logits(weights: dict[str, Any], size: Size, x: Any) -> Any:
    """Bytes (batch, time) -> a score for each possible next byte (batch, time, 256)."""
    batch, time_ = x.shape
    h = F.embedding(x, weights["bytes"]) + weights["places"][:time_]
    for layer in range(size.layers):
        w = {name.split(".")[1]: weights[name] for name in weights if name.startswith(f"{layer}.")}
        q, k, v = (F.layer_norm(h, (size.width,), w["norm1"]) @ w["qkv"]).split(size.width, dim=-1)
        q, k, v = (part.view(batch, time_, size.heads, -1).transpose(1, 2) for part in (q, k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + seen.transpose(1, 2).reshape(batch, time_, size.width) @ w["out"]
        up = F.layer_norm(h, (size.width,), w["norm2"]) @ w["up"]
        h = h + F.gelu(up, approximate="tanh") @ w["down"]
    return F.layer_norm(h, (size.width,), weights["norm"]) @ weights["bytes"].T


# --- training ----------------------------------------------------------------------------------------------------------


def windows(text: Any, size: Size, seed: int, step: int) -> tuple[Any, Any]:
    """A batch of random windows and the same one byte later; a function of (seed, step), so that resuming changes nothing."""
    rng = np.random.default_rng([seed, step])
    at = torch.from_numpy(rng.integers(0, len(text) - size.context, size.batch)).to(text.device)
    rows = text[at[:, None] + torch.arange(size.context + 1, device=text.device)].long()
    return rows[:, :-1], rows[:, 1:]


def loss_of(weights: dict[str, Any], size: Size, x: Any, y: Any) -> Any:
    # bfloat16 on a GPU only: on some CPUs it is missing, on others it is slow.
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=x.is_cuda):
        scores = logits(weights, size, x)
    return F.cross_entropy(scores.float().view(-1, 256), y.reshape(-1))


def rate_at(size: Size, progress: float) -> float:
    """A short warm-up, then a cosine down to a tenth."""
    return size.rate * min(1.0, progress / 0.03 + 0.01) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, progress)))


def train(size: Size, text: Any, held_out: Any, seed: int, checkpoint: str, run: str) -> tuple[dict[str, Any], bool]:
    """The weights, and whether training is complete; if not, the checkpoint holds everything to go on."""
    device = text.device
    weights = {name: tensor.to(device).requires_grad_() for name, tensor in new_weights(size, seed).items()}
    groups = [
        {"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": 0.1},
        {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=size.rate, betas=(0.9, 0.95))
    step, before = resume(checkpoint, run, weights, adam, device)
    began = time.monotonic()
    used = 0.0

    def keep() -> None:
        state = {"run": run, "step": step, "seconds": before + used, "weights": weights, "adam": adam.state_dict()}
        save(checkpoint, state)

    while step < size.steps and before + used < size.seconds:
        for group in adam.param_groups:
            group["lr"] = rate_at(size, max(step / size.steps, (before + used) / size.seconds))
        loss = loss_of(weights, size, *windows(text, size, seed, step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        used = time.monotonic() - began
        if step % max(1, size.steps // 10) == 0:
            bits = validate(weights, size, held_out)
            print(f"step {step} of {size.steps}, {before + used:.0f} s: {bits:.3f} bits a byte held out", flush=True)
            keep()  # in case this call is ended from outside
        if used >= size.call_seconds and step < size.steps and before + used < size.seconds:
            keep()
            print(f"stopped at step {step} of {size.steps}: run the same command again to go on", flush=True)
            return weights, False
    return weights, True


def validate(weights: dict[str, Any], size: Size, held_out: Any) -> float:
    with torch.no_grad():
        losses = [float(loss_of(weights, size, *windows(held_out, size, 0, step))) for step in range(4)]
    return sum(losses) / len(losses) / math.log(2)


def resume(checkpoint: str, run: str, weights: dict[str, Any], adam: Any, device: Any) -> tuple[int, float]:
    """(steps done, seconds used) of an earlier call of the same run, whose state is put back; otherwise (0, 0)."""
    if not os.path.exists(checkpoint):
        return 0, 0.0
    state = torch.load(checkpoint, map_location=device, weights_only=True)
    if state["run"] != run:
        print(f"{checkpoint} belongs to another text, size or seed: training begins anew", flush=True)
        return 0, 0.0
    with torch.no_grad():
        for name, tensor in state["weights"].items():
            weights[name].copy_(tensor)
    adam.load_state_dict(state["adam"])
    print(f"going on from step {state['step']}", flush=True)
    return int(state["step"]), float(state["seconds"])


def save(path: str, state: dict[str, Any]) -> None:
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)  # a call that is ended here leaves the old checkpoint or the new one


# --- the bundle --------------------------------------------------------------------------------------------------------


def write_bundle(out: str, weights: dict[str, Any], size: Size) -> None:
    """manifest.json, model.py, the shapes in config.json, and every weight as float16 in weights.f16."""
    os.makedirs(out, exist_ok=True)
    for name in ("manifest.json", "model.py"):
        shutil.copyfile(os.path.join(HERE, name), os.path.join(out, name))
    arrays = {name: tensor.detach().float().cpu().numpy() for name, tensor in weights.items()}
    config = {
        "layers": size.layers,
        "heads": size.heads,
        "context": size.context,
        "weights": [[name, list(array.shape)] for name, array in arrays.items()],
    }
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as stream:
        json.dump(config, stream)
    with open(os.path.join(out, "weights.f16"), "wb") as stream:
        stream.writelines(array.astype("<f2").tobytes() for array in arrays.values())


def packed_bytes(out: str) -> int:
    """About what the harness will count: tar, then gzip."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.add(out, arcname=".")
    return len(gzip.compress(plain.getvalue(), 9))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, help="the text to train on")
    parser.add_argument("--out", required=True, help="the folder of the bundle; OUT.checkpoint lies beside it")
    parser.add_argument("--size", choices=SIZES, default="unit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="instead of the size's own")
    parser.add_argument("--seconds", type=float, help="training time in all, instead of the size's own")
    parser.add_argument("--call-seconds", type=float, help="training time in this call, instead of the size's own")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    options = parser.parse_args(arguments)

    given = {key: value for key in ("steps", "seconds", "call_seconds") if (value := getattr(options, key)) is not None}
    size = dataclasses.replace(SIZES[options.size], **given)
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = np.fromfile(options.text, dtype=np.uint8)
    if len(data) < 40 * size.context:
        sys.exit(f"{options.text} has {len(data)} bytes: too short, this size needs {40 * size.context}")
    cut = len(data) - max(len(data) // 50, 2 * size.context)
    text, held_out = (torch.from_numpy(part).to(device) for part in (data[:cut], data[cut:]))
    settings = dataclasses.replace(size, call_seconds=0)
    run = hashlib.sha256(repr((settings, options.seed)).encode() + data.tobytes()).hexdigest()
    checkpoint = options.out.rstrip("/") + ".checkpoint"

    print(f"{options.size} on {device}: {len(text)} bytes of text, seed {options.seed}", flush=True)
    weights, complete = train(size, text, held_out, options.seed, checkpoint, run)
    if not complete:
        return COME_AGAIN
    write_bundle(options.out, weights, size)
    if os.path.exists(checkpoint):
        os.remove(checkpoint)
    count, packed = sum(w.numel() for w in weights.values()), packed_bytes(options.out)
    print(f"wrote {options.out}: {count} parameters, {packed} of {LIMIT_BYTES} bytes packed", flush=True)
    if shutil.which("runner") and os.environ.get("RUNNER_SOCKET"):
        return subprocess.run(["runner", "submit", options.out], check=False).returncode
    print(f"submit it with `runner submit {options.out}`", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
