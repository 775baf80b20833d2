"""Does the exam tell weak from strong? Three byte models of one architecture, trained on three kinds of data, take one exam.

    text         ordinary text only                                              should stay low
    engineered   ari_synthetic.py's mix, made without the exam's generators, and text    should be clearly higher
    generators   questions of the exam's own generators, other seeds             should pass 70%

Needs torch and NumPy only and runs from a source tree:

    PYTHONPATH=src python3 benchmarks/ari_calibrate.py --text TEXT.xz --seconds 240 --out OUT.json --markdown OUT.md

Where a command may take ten minutes only, each call takes some of the arms (--arms text), all with the same --exam-seed, and
`--merge A.json B.json C.json --out ALL.json --markdown ALL.md` puts them together. `--size tiny --seconds 20` runs on a CPU.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import multiprocessing
import os
import queue
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ari_synthetic
import numpy as np

from crucible.ari.exam.draw import draw

ROW = 1024
BOS = 0
"""Begins every document and every prompt; text has no such byte."""
ANSWER_WEIGHT = 16
ARMS = {
    "text": {"text": 1.0},
    "engineered": {"synthetic": 0.8, "text": 0.2},
    "generators": {"generators": 1.0},
}


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    batch: int
    muon: float = 0.02
    adam: float = 6e-3
    questions_in_all: int = 1_500_000


SIZES = {
    "16m": Size(layers=9, width=384, heads=6, batch=64),
    "tiny": Size(layers=2, width=64, heads=2, batch=4, questions_in_all=4_000),
}


# --- data: made by other processes while the first model trains ----------------------------------------------------------


def packed(documents: Any) -> tuple[bytes, bytes, int]:
    """Documents as rows of 1,024 bytes and one more, and the weight of each byte as a target. No document is cut; one that does
    not fit into what is left of a row waits for the next."""
    rows, marks, count = bytearray(), bytearray(), 0
    waiting: list[tuple[bytes, bytes]] = []
    stream = iter(documents)
    while True:
        while len(waiting) < 64 and (document := next(stream, None)) is not None:
            data = b"".join(text.encode() for text, _ in document)
            mark = b"".join(bytes([ANSWER_WEIGHT if asked else 1]) * len(text.encode()) for text, asked in document)
            if len(data) < ROW:
                waiting.append((bytes([BOS]) + data, b"\0" + mark))
        if len(waiting) < 16:  # too few left to fill rows well
            return bytes(rows), bytes(marks), count
        left = ROW + 1
        while fitting := next((one for one in waiting if len(one[0]) <= left), None):
            waiting.remove(fitting)
            rows += fitting[0]
            marks += fitting[1]
            left -= len(fitting[0])
        rows += bytes([BOS]) * left
        marks += bytes(left)
        count += 1


def make_rows(job: tuple[str, int, int, frozenset[str]]) -> tuple[str, bytes, bytes, int]:
    kind, number, count, forbidden = job
    if kind == "synthetic":
        rng = random.Random(number)
        documents: Any = (ari_synthetic.document(rng) for _ in range(count))
    else:
        drawn = draw(b"calibration training %d" % number, count, "hidden")
        documents = ([(one.prompt, False), (one.answer, True)] for one in drawn if one.prompt not in forbidden)
    return kind, *packed(documents)


class Supply:
    """Rows by kind, arriving from the workers; `take` hands over what has come since."""

    def __init__(self, kinds: set[str], in_all: int, workers: int, forbidden: frozenset[str]) -> None:
        self._arrived: dict[str, queue.Queue[tuple[bytes, bytes, int]]] = {kind: queue.Queue() for kind in kinds}
        share = min(2_000, in_all)
        jobs = [(kind, n, share, forbidden) for n in range(max(1, in_all // share)) for kind in sorted(kinds)]
        if jobs and kinds:
            self._pool = multiprocessing.get_context("spawn").Pool(workers)
            threading.Thread(target=self._gather, args=(jobs,), daemon=True).start()

    def _gather(self, jobs: list[Any]) -> None:
        for kind, rows, marks, count in self._pool.imap_unordered(make_rows, jobs):
            self._arrived[kind].put((rows, marks, count))

    def take(self, kind: str, wait: bool) -> list[Any]:
        found = [self._arrived[kind].get()] if wait else []
        while not self._arrived[kind].empty():
            found.append(self._arrived[kind].get())
        return [
            np.frombuffer(rows + marks, np.uint8).reshape(2, count, ROW + 1) for rows, marks, count in found if count
        ]


class Source:
    """What a batch is drawn from: rows on the device, or windows of a text."""

    def __init__(self, torch: Any, device: str, text: Any = None) -> None:
        self._torch, self._device, self._text = torch, device, text
        self._rows: Any = None

    def add(self, chunks: list[Any]) -> None:
        if chunks:
            new = self._torch.from_numpy(np.concatenate(chunks, axis=1)).to(self._device)
            self._rows = new if self._rows is None else self._torch.cat([self._rows, new], dim=1)

    def batch(self, count: int) -> tuple[Any, Any]:
        torch = self._torch
        if self._text is not None:
            at = torch.randint(0, len(self._text) - ROW - 1, (count, 1), device=self._device)
            rows = self._text[at + torch.arange(ROW + 1, device=self._device)]
            return rows, torch.ones_like(rows)
        at = torch.randint(0, self._rows.shape[1], (count,), device=self._device)
        rows, marks = self._rows[:, at]
        return rows, marks


# --- the model and its optimiser -----------------------------------------------------------------------------------------


def new_model(torch: Any, size: Size) -> Any:
    """A transformer with rotary positions, a short convolution before attention, and matrices of all layers in one tensor."""
    nn, F = torch.nn, torch.nn.functional  # noqa: N806

    class Bytes(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers, width = size.layers, size.width
            self.embed = nn.Parameter(torch.empty(256, width))
            self.head = nn.Parameter(torch.empty(width, 256))
            self.shift = nn.Parameter(torch.empty(layers, 3, width))
            self.qkv = nn.Parameter(torch.empty(layers, 3, width, width))
            self.out = nn.Parameter(torch.empty(layers, width, width))
            self.up = nn.Parameter(torch.empty(layers, width, 4 * width))
            self.down = nn.Parameter(torch.empty(layers, 4 * width, width))
            angles = torch.outer(torch.arange(2 * ROW), 4096.0 ** -torch.linspace(0, 1, size.width // size.heads // 2))
            self.register_buffer("cos", angles.cos()[None, None], persistent=False)
            self.register_buffer("sin", angles.sin()[None, None], persistent=False)
            self.renew(0)

        @torch.no_grad()
        def renew(self, seed: int) -> None:
            torch.manual_seed(seed)
            self.embed.normal_(std=0.5)
            for matrix in (self.qkv, self.up):
                matrix.normal_(std=0.5 / math.sqrt(size.width))
            for zero in (self.head, self.shift, self.out, self.down):
                zero.zero_()

        def forward(self, x: Any, kind: Any) -> Any:
            """Scores in the number format `kind`; the weights themselves stay float32."""
            batch, length = x.shape
            cos, sin = self.cos[:, :, :length].to(kind), self.sin[:, :, :length].to(kind)
            shifts, qkvs, outs = self.shift.to(kind).unbind(), self.qkv.to(kind).unbind(), self.out.to(kind).unbind()
            ups, downs = self.up.to(kind).unbind(), self.down.to(kind).unbind()
            h = norm(F.embedding(x, self.embed)).to(kind)
            for layer in range(size.layers):
                here = near = norm(h)
                for back in range(3):  # the bytes just before: what a lookup needs to find its key
                    near = near + shifts[layer][back] * F.pad(here, (0, 0, back + 1, 0))[:, :length]
                q, k, v = [(near @ m).view(batch, length, size.heads, -1).transpose(1, 2) for m in qkvs[layer].unbind()]
                seen = F.scaled_dot_product_attention(
                    turned(norm(q), cos, sin), turned(norm(k), cos, sin), v, is_causal=True
                )
                h = h + seen.transpose(1, 2).reshape(batch, length, size.width) @ outs[layer]
                h = h + F.relu(norm(h) @ ups[layer]).square() @ downs[layer]
            return norm(h) @ self.head.to(kind)

    def norm(h: Any) -> Any:
        return F.rms_norm(h, (h.shape[-1],))

    def turned(h: Any, cos: Any, sin: Any) -> Any:
        a, b = h.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    return Bytes()


class Muon:
    """Momentum made orthogonal by five Newton-Schulz steps, for stacks of matrices (Jordan and others, 2024)."""

    def __init__(self, torch: Any, stacks: list[Any]) -> None:
        self._torch, self._stacks = torch, stacks
        self._momentum = [torch.zeros_like(stack) for stack in stacks]

    def step(self, rate: float, momentum: float = 0.95) -> None:
        torch = self._torch
        with torch.no_grad():
            for stack, kept in zip(self._stacks, self._momentum, strict=True):
                kept.lerp_(stack.grad, 1 - momentum)
                update = self._orthogonal(stack.grad.lerp(kept, momentum))
                stack.mul_(1 - 0.1 * rate)
                stack.add_(update.to(stack.dtype), alpha=-rate * max(1.0, stack.shape[-1] / stack.shape[-2]) ** 0.5)
                stack.grad = None

    def _orthogonal(self, g: Any) -> Any:
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g.bfloat16() if g.is_cuda else g
        wide = x.shape[-2] <= x.shape[-1]
        x = x if wide else x.mT
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x if wide else x.mT


# --- training and the exam -----------------------------------------------------------------------------------------------


def train(
    torch: Any,
    model: Any,
    forward: Any,
    size: Size,
    shares: dict[str, float],
    sources: dict[str, Any],
    supply: Supply,
    seconds: float,
) -> dict[str, float]:
    """Trains for so many seconds; the rate follows the clock."""
    F, device = torch.nn.functional, next(model.parameters()).device  # noqa: N806
    adam = torch.optim.AdamW([model.embed, model.head, model.shift], lr=size.adam, betas=(0.9, 0.95), weight_decay=0.0)
    muon = Muon(torch, [model.qkv, model.out, model.up, model.down])
    counts = {name: round(share * size.batch) for name, share in shares.items()}
    made = [name for name in shares if name != "text"]
    for name in made:
        sources[name].add(supply.take(name, wait=True))

    def loss_now() -> Any:
        parts = [sources[name].batch(count) for name, count in counts.items() if count]
        rows, marks = (torch.cat(column).long() for column in zip(*parts, strict=True))
        scores = forward(rows[:, :-1], torch.bfloat16 if device.type == "cuda" else torch.float32)
        weights = marks[:, 1:].reshape(-1).float()
        each = F.cross_entropy(scores.float().view(-1, 256), rows[:, 1:].reshape(-1), reduction="none")
        return (each * weights).sum() / weights.sum()

    loss_now().backward()  # compiles before the clock starts
    model.zero_grad(set_to_none=True)
    began, step, said, last = time.monotonic(), 0, 0.0, 0.0
    while (used := time.monotonic() - began) < seconds:
        progress = used / seconds
        rate = min(1.0, progress / 0.02 + 0.02) * (0.51 + 0.49 * math.cos(math.pi * progress))
        loss = loss_now()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adam.param_groups[0]["params"], 1.0)
        for group in adam.param_groups:
            group["lr"] = size.adam * rate
        adam.step()
        adam.zero_grad(set_to_none=True)
        muon.step(size.muon * rate)
        step += 1
        if step % 20 == 0 or device.type == "cpu":
            last = float(loss.detach())  # waits for the device, so that the clock means something
            for name in made:
                sources[name].add(supply.take(name, wait=False))
        if used - said > seconds / 10:
            said = used
            print(f"  {used:5.0f} s, step {step}: loss {last:.3f}", flush=True)
    return {"steps": step, "bytes": step * size.batch * ROW, "loss": last}


def examine(torch: Any, model: Any, questions: list[Any]) -> list[tuple[bool, float]]:
    """(exactly right, bits a byte) of each question.

    Greedy stepping gives the answer exactly if each of its bytes is the most likely one after the bytes before it.
    """
    device, found = next(model.parameters()).device, []
    with torch.no_grad():
        for question in questions:
            prompt, answer = question.prompt.encode(), question.answer.encode()
            x = torch.tensor([[BOS, *prompt, *answer[:-1]]], device=device)
            scores = model(x, torch.float32)[0, -len(answer) :].double()
            wanted = torch.tensor(list(answer), device=device)
            bits = -scores.log_softmax(-1).gather(1, wanted[:, None]).mean() / math.log(2)
            found.append((bool((scores.argmax(-1) == wanted).all()), float(bits)))
    return found


def graded(questions: list[Any], results: list[tuple[bool, float]]) -> dict[str, Any]:
    groups: dict[str, dict[str, list[bool]]] = {"by_category": defaultdict(list), "by_family": defaultdict(list)}
    for question, (right, _) in zip(questions, results, strict=True):
        groups["by_category"][question.family.category].append(right)
        groups["by_family"][question.family.name].append(right)
    bits = sum(bits * len(q.answer) for q, (_, bits) in zip(questions, results, strict=True)) / sum(
        len(q.answer) for q in questions
    )
    right = [right for right, _ in results]
    return {
        "passed": sum(right),
        "questions": len(right),
        "score": 100 * sum(right) / len(right),
        "wilson95": wilson(sum(right), len(right)),
        "bits_per_byte": bits,
        **{how: {name: [sum(group), len(group)] for name, group in sorted(one.items())} for how, one in groups.items()},
    }


def wilson(passed: int, count: int, z: float = 1.959964) -> list[float]:
    share, base = passed / count, 1 + z * z / count
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    middle = share + z * z / (2 * count)
    return [round(100 * (middle - half) / base, 1), round(100 * (middle + half) / base, 1)]


# --- the program ---------------------------------------------------------------------------------------------------------


def read_text(path: str | None) -> Any:
    shipped = Path(__file__).resolve().parent.parent / "src/crucible/ari/corpus/tiny.txt.xz"
    chosen = Path(path) if path else shipped
    data = chosen.read_bytes()
    return np.frombuffer(lzma.decompress(data) if chosen.suffix == ".xz" else data, np.uint8)


def calibrate(options: argparse.Namespace) -> dict[str, Any]:
    size = replace(SIZES[options.size], **({"batch": options.batch} if options.batch else {}))
    arms = options.arms.split(",")
    questions = draw(f"calibration exam {options.exam_seed}".encode(), options.questions, "hidden")
    kinds = {kind for arm in arms for kind in ARMS[arm] if kind != "text"}
    in_all = options.train_questions or size.questions_in_all
    workers = options.workers or max(1, (os.cpu_count() or 2) - 1)
    supply = Supply(kinds, in_all, workers, frozenset(question.prompt for question in questions))

    import torch  # after the workers began: they need none of it

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    if device == "cpu":
        torch.set_num_threads(1)
    text = read_text(options.text)
    sources = {kind: Source(torch, device) for kind in kinds}
    sources["text"] = Source(torch, device, torch.from_numpy(text.copy()).to(device))
    model = new_model(torch, size).to(device)
    forward = torch.compile(model) if device == "cuda" and not options.eager else model
    parameters = sum(p.numel() for p in model.parameters())
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(f"{parameters:,} parameters on {name}, {len(text):,} bytes of text, {len(questions)} questions", flush=True)
    found: dict[str, Any] = {}
    for arm in arms:
        print(arm, flush=True)
        model.renew(options.seed)
        facts = train(torch, model, forward, size, ARMS[arm], sources, supply, options.seconds)
        found[arm] = {**facts, "seconds": options.seconds, **graded(questions, examine(torch, model, questions))}
        print(
            f"  {arm}: {found[arm]['passed']} of {len(questions)}, {found[arm]['bits_per_byte']:.3f} bits a byte",
            flush=True,
        )
        print(f"  {found[arm]['by_family']}", flush=True)
        write(options.out, {"device": name, "torch": torch.__version__, "parameters": parameters, "size": options.size,
                            "text_bytes": len(text), "exam_seed": options.exam_seed, "arms": found})  # fmt: skip
    return json.loads(Path(options.out).read_text())


def write(path: str, document: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(document, indent=1) + "\n")


def merged(paths: list[str]) -> dict[str, Any]:
    documents = [json.loads(Path(path).read_text()) for path in paths]
    for key in ("exam_seed", "size", "parameters", "text_bytes"):
        if len({document[key] for document in documents}) > 1:
            raise SystemExit(f"these results differ in {key}: {[document[key] for document in documents]}")
    arms = {arm: facts for document in documents for arm, facts in document["arms"].items()}
    return {**documents[0], "arms": {arm: arms[arm] for arm in ARMS if arm in arms}}


def markdown(document: dict[str, Any]) -> str:
    """The table for docs/results/calibration.md."""
    arms = document["arms"]
    lines = [
        f"One architecture, bytes, {document['parameters'] / 1e6:.1f}M parameters, on {document['device']} with torch "
        f"{document['torch']}; text of {document['text_bytes']:,} bytes; exam seed {document['exam_seed']}.",
        "",
        "| | " + " | ".join(arms) + " |",
        "|---|" + "---:|" * len(arms),
        "| trained for | "
        + " | ".join(f"{a['seconds']:.0f} s, {a['bytes'] / 1e6:,.0f} MB" for a in arms.values())
        + " |",
        "| bits a byte of the answers | " + " | ".join(f"{a['bits_per_byte']:.3f}" for a in arms.values()) + " |",
        "| **exactly right** | "
        + " | ".join(f"**{a['passed']} of {a['questions']} ({a['score']:.1f}%)**" for a in arms.values())
        + " |",
        "| 95% interval (Wilson) | " + " | ".join("{} to {}%".format(*a["wilson95"]) for a in arms.values()) + " |",
    ]
    for how in ("by_category", "by_family"):
        names = sorted({name for a in arms.values() for name in a[how]})
        lines += ["", f"| {how.split('_')[1]} | " + " | ".join(arms) + " |", "|---|" + "---:|" * len(arms)]
        lines += [
            f"| {name} | " + " | ".join("{} of {}".format(*a[how][name]) for a in arms.values()) + " |"
            for name in names
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="16m")
    parser.add_argument("--seconds", type=float, default=240, help="training time of each model")
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--exam-seed", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--text", help="a text, plain or .xz; the shipped tiny tier if not given")
    parser.add_argument("--train-questions", type=int, help="how many synthetic documents and questions are made")
    parser.add_argument("--batch", type=int, help="rows a step")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--out", default="calibration.json")
    parser.add_argument("--markdown")
    parser.add_argument("--merge", nargs="+", help="results of several calls, instead of training")
    options = parser.parse_args()
    document = merged(options.merge) if options.merge else calibrate(options)
    if options.merge:
        write(options.out, document)
    if options.markdown:
        Path(options.markdown).write_text(markdown(document))
    print(markdown(document))


if __name__ == "__main__":
    main()
