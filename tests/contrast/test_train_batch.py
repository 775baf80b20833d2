"""Who competes with whom in a batch: own negatives, other positives, and never a false negative."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast import textset
from crucible.contrast.bundle import Bundle, normalised
from crucible.contrast.config import Training
from crucible.contrast.train.batch import NO_SENSE, Rivals, Senses, rivals, senses
from crucible.contrast.train.head import Head, first_weights, info_nce, learning_rate
from crucible.contrast.train.head import normalised as unit


def known(bundles: list[Bundle]) -> tuple[textset.TextSet, Senses]:
    items = textset.build(bundles)
    names: dict[str, int] = {}
    of_item = [NO_SENSE if b.sense is None else names.setdefault(b.sense, len(names)) for b in bundles]
    folded: dict[str, int] = {}
    same = [folded.setdefault(normalised(text), len(folded)) for text in items.texts]
    return items, senses(np.array(of_item), np.array(same), items)


def named(items: textset.TextSet, who: Rivals, row: int) -> set[str]:
    return {items.texts[i] for i in who.texts[who.negatives[row]]}


def draw(
    bundles: list[Bundle], rows: list[int], *, step: int = 0, most: int = 0, in_batch: bool = True
) -> tuple[textset.TextSet, Rivals]:
    items, senses_ = known(bundles)
    return items, rivals(items, senses_, np.array(rows), seed=3, step=step, max_negatives=most, in_batch=in_batch)


def one(number: int, anchor: str, positive: str, *negatives: str, sense: str | None) -> Bundle:
    return Bundle(id=str(number), anchor=anchor, positive=positive, negatives=negatives, sense=sense)


def test_other_positives_compete_and_false_ones_do_not() -> None:
    bundles = [
        one(0, "a0", "p0", "n0", sense="bank#1"),
        one(1, "a1", "p1", "n1", sense="bank#1"),  # same sense
        one(2, "a2", "P0 ", "n2", sense="bank#2"),  # the same text as the positive of 0
        one(3, "a3", "a0", "n3", sense="bank#3"),  # the anchor of 0
        one(4, "a4", "p1", "n4", sense="bank#4"),  # another event of the sense of 0, seen in 1
        one(5, "a5", "p5", "n5", sense="bank#5"),
        one(6, "a6", "p6", "n6", sense=None),
        one(7, "a7", "p7", "n7", sense=None),
    ]
    items, who = draw(bundles, list(range(8)))
    assert named(items, who, 0) == {"n0", "p5", "p6", "p7"}
    assert named(items, who, 6) >= {"p7"} and named(items, who, 7) >= {"p6"}  # no sense is not one sense
    # Also where the bundle that shows the event is not in this batch.
    items, who = draw(bundles, [0, 4, 5])
    assert named(items, who, 0) == {"n0", "p5"}
    items, who = draw(bundles, list(range(8)), in_batch=False)
    assert [named(items, who, row) for row in range(8)] == [{f"n{row}"} for row in range(8)]


texts = st.sampled_from([f"t{i}" for i in range(12)] + ["T1", " t2 "])
some = st.lists(
    st.builds(
        lambda anchor, positive, negatives, sense: (anchor, positive, negatives, sense),
        texts, texts, st.lists(texts, min_size=1, max_size=6), st.sampled_from([None, "s1", "s2", "s3"]),
    ),
    min_size=1, max_size=10,
)  # fmt: skip


@given(some, st.lists(st.integers(0, 99), min_size=1, max_size=8), st.integers(0, 5), st.integers(0, 4))
def test_every_row_is_exactly_what_the_definition_says(rows: list, places: list[int], step: int, most: int) -> None:
    bundles = []
    for number, (anchor, positive, negatives, sense) in enumerate(rows):
        own = {normalised(anchor), normalised(positive)}
        kept = [n for n in negatives if normalised(n) not in own] or ["always"]
        bundles.append(one(number, anchor, positive, *kept, sense=sense))
    chosen = [place % len(bundles) for place in places]
    items, who = draw(bundles, chosen, step=step, most=most)
    events = {(b.sense, normalised(t)) for b in bundles if b.sense for t in (b.anchor, b.positive)}
    assert list(who.texts) == sorted(set(who.texts))
    for row, place in enumerate(chosen):
        b = bundles[place]
        assert items.texts[who.texts[who.anchors[row]]] == b.anchor
        assert items.texts[who.texts[who.positives[row]]] == b.positive
        others = {
            o.positive
            for o in (bundles[i] for i in chosen)
            if not (b.sense is not None and o.sense == b.sense)
            and normalised(o.positive) not in (normalised(b.anchor), normalised(b.positive))
            and (b.sense, normalised(o.positive)) not in events
        }
        found, own = named(items, who, row), set(b.negatives)
        assert others <= found <= others | own
        if not most or len(b.negatives) <= most:
            assert found == others | own
        assert not who.negatives[row, who.positives[row]]


def test_drawn_negatives_are_as_many_as_asked_and_change_with_the_step() -> None:
    bundles = [one(i, f"a{i}", f"p{i}", *(f"n{i}.{k}" for k in range(3 + 4 * i)), sense=None) for i in range(4)]
    seen: list[set[str]] = []
    for step in range(40):
        items, who = draw(bundles, [3, 0, 2], step=step, most=5, in_batch=False)
        assert [len(named(items, who, row)) for row in range(3)] == [5, 3, 5]
        seen.append(named(items, who, 0))
    assert len(set(map(frozenset, seen))) > 30
    assert set().union(*seen) == {f"n3.{k}" for k in range(15)}  # every one has its turn
    again = draw(bundles, [3, 0, 2], step=7, most=5, in_batch=False)[1]
    assert named(items, again, 0) == seen[7]


def test_loss_is_the_cross_entropy_of_the_positive_among_its_rivals() -> None:
    bundles = [one(i, f"a{i}", f"p{i}", f"n{i}", f"m{i}", sense=f"s{i}") for i in range(3)]
    items, who = draw(bundles, [0, 1, 2])
    y = torch.randn(len(who.texts), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = y / y.norm(dim=1, keepdim=True)
    expected = []
    for row in range(3):
        sims = {items.texts[t]: float(y[who.anchors[row]] @ y[k]) / 0.1 for k, t in enumerate(who.texts)}
        rivals_ = [f"p{row}", f"n{row}", f"m{row}", *(f"p{i}" for i in range(3) if i != row)]
        expected.append(np.log(sum(np.exp(sims[name]) for name in rivals_)) - sims[f"p{row}"])
    found = info_nce(y, [torch.from_numpy(part) for part in who.parts[1:]], 0.1)
    assert float(found) == pytest.approx(np.mean(expected), abs=1e-9)


@pytest.mark.parametrize("hidden", [0, 6])
def test_first_loss_is_the_loss_of_the_base_vectors(hidden: int) -> None:
    bundles = [one(i, f"a{i}", f"p{i}", f"n{i}", sense=f"s{i}") for i in range(4)]
    items, who = draw(bundles, [0, 1, 2, 3])
    x = np.random.default_rng(0).normal(size=(len(items.texts), 8)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    base = info_nce(unit(torch.from_numpy(x[who.texts])), [torch.from_numpy(part) for part in who.parts[1:]], 0.05)
    head = Head(first_weights(8, hidden, 1), Training(learning_rate=0.01), "cpu", bf16=False)
    losses = [head.step(head.vectors(x), who, 0.05, step)[0] for step in range(200)]
    assert losses[0] == pytest.approx(float(base), rel=1e-6)
    assert losses[-1] < 0.5 * losses[0]


def test_step_with_a_gradient_that_is_not_finite_changes_no_weight() -> None:
    bundles = [one(i, f"a{i}", f"p{i}", f"n{i}", sense=f"s{i}") for i in range(2)]
    items, who = draw(bundles, [0, 1])
    x = np.ones((len(items.texts), 4), np.float32)
    x[0, 0] = np.inf
    head = Head(first_weights(4, 0, 1), Training(), "cpu", bf16=False)
    assert not all(map(np.isfinite, head.step(head.vectors(x), who, 0.05, 0)))
    assert not any(array.any() for array in head.weights().values())


def test_learning_rate_warms_up_and_ends_at_nothing() -> None:
    for schedule in ("constant", "linear", "cosine"):
        training = Training(steps=100, warmup_steps=10, learning_rate=2.0, lr_schedule=schedule)
        rates = [learning_rate(training, step) for step in range(100)]
        assert rates[:11] == pytest.approx([*(0.2 * i for i in range(1, 11)), 2.0])
        assert all(a >= b >= 0.0 for a, b in itertools.pairwise(rates[10:]))
        assert rates[-1] == 2.0 if schedule == "constant" else rates[-1] < 0.05
    assert learning_rate(Training(steps=5, warmup_steps=5), 4) == Training().learning_rate


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("hidden", [0, 6])
def test_steps_are_those_of_torch_with_its_own_adamw(hidden: int, clip: float) -> None:
    bundles = [one(i, f"a{i}", f"p{i}", f"n{i}", sense=f"s{i}") for i in range(4)]
    items, who = draw(bundles, [0, 1, 2, 3])
    x = np.random.default_rng(0).normal(size=(len(items.texts), 8)).astype(np.float32)
    training = Training(
        learning_rate=0.02, warmup_steps=3, weight_decay=0.1, gradient_clip=clip, lr_schedule="cosine", steps=40
    )
    head = Head(first_weights(8, hidden, 1), training, "cpu", bf16=False)
    theirs = Head(first_weights(8, hidden, 1), training, "cpu", bf16=False)
    parameters = list(theirs._w.values())
    optimiser = torch.optim.AdamW(parameters, weight_decay=0.1)
    for step in range(40):
        loss, norm = head.step(head.vectors(x), who, 0.05, step)
        y = theirs.forward(theirs.vectors(x)[torch.from_numpy(who.texts)])
        expected = info_nce(y, [torch.from_numpy(part) for part in who.parts[1:]], 0.05)
        optimiser.zero_grad()
        expected.backward()
        their_norm = torch.nn.utils.clip_grad_norm_(parameters, clip or float("inf"))
        optimiser.param_groups[0]["lr"] = learning_rate(training, step)
        optimiser.step()
        assert (loss, norm) == pytest.approx((float(expected.detach()), float(their_norm)), rel=2e-4)
    for name, array in head.weights().items():
        assert np.abs(array - theirs.weights()[name]).max() < 2e-4
