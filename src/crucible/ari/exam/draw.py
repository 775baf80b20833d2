"""A seed and a count -> questions as plain text: categories in equal shares, families by weight, templates in turn.

Needs the standard library alone, so that a training script can draw from the very families of the exam on a machine that has
nothing else installed. Checks nothing: `build.py` holds every question of an exam against the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crucible.ari.exam.dice import Dice
from crucible.ari.exam.families import FAMILIES
from crucible.ari.exam.family import Family, prompts
from crucible.ari.exam.words import Side
from crucible.errors import BadConfig

_TRIES = 1000
"""Documents in a row that bring no new prompt, after which a family has run dry."""


@dataclass(frozen=True)
class Drawn:
    family: Family
    prompt: str
    answer: str


def draw(
    seed: bytes,
    count: int,
    side: Side,
    families: Sequence[str] | None = None,
    *,
    known: Mapping[str, Family] = FAMILIES,
    weights: Mapping[str, float] | None = None,
    templates: int | None = None,
) -> list[Drawn]:
    """`count` different questions with words of one side; `templates` keeps to the first few of each family."""
    chosen = {name: known[name] for name in _names(families, known)}
    shares = quotas(count, {name: (f.category, _weight(f, weights)) for name, f in chosen.items()}, seed)
    made = [one for name, share in shares.items() for one in _of_family(chosen[name], share, seed, side, templates)]
    return Dice(seed, side, "order").shuffled(made)


def quotas(count: int, families: Mapping[str, tuple[str, float]], seed: bytes) -> dict[str, int]:
    """How many questions each family gives: equal shares for the categories, then by weight inside each."""
    dice = Dice(seed, "hidden", "quotas")
    categories = {category for category, weight in families.values() if weight > 0}
    if not categories:
        raise BadConfig("no family has a weight above zero", fix="Give at least one family a weight.")
    shares = _apportioned(count, dict.fromkeys(sorted(categories), 1.0), dice)
    found: dict[str, int] = {}
    for category, share in shares.items():
        inside = {name: weight for name, (where, weight) in families.items() if where == category and weight > 0}
        found |= _apportioned(share, inside, dice)
    return found


def _of_family(family: Family, share: int, seed: bytes, side: Side, templates: int | None) -> list[Drawn]:
    made: dict[str, str] = {}
    number = stale = 0
    count = min(family.templates, templates or family.templates)
    first = Dice(seed, side, family.name).below(count)
    while len(made) < share:
        before = len(made)
        for prompt, answer in prompts(family.make(Dice(seed, side, family.name, number), (first + number) % count)):
            if len(made) < share:
                made.setdefault(prompt, answer)
        number += 1
        stale = stale + 1 if len(made) == before else 0
        if stale > _TRIES:
            raise BadConfig(
                f"the family {family.name} has no more than {before} different questions, {share} were asked for",
                fix="Ask for fewer questions or give the family a smaller weight.",
            )
    return [Drawn(family, prompt, answer) for prompt, answer in made.items()]


def _apportioned(count: int, weights: Mapping[str, float], dice: Dice) -> dict[str, int]:
    """Whole shares that add up, by largest remainder; equal remainders are drawn for."""
    total = sum(weights.values())
    exact = {name: count * weight / total for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    order = sorted(dice.shuffled(sorted(weights)), key=lambda name: round(shares[name] - exact[name], 9))
    for name in order[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def _names(families: Sequence[str] | None, known: Mapping[str, Family]) -> list[str]:
    for name in families or ():
        if name not in known:
            raise BadConfig(f"no family is called {name!r}", fix=f"The families are: {', '.join(known)}.")
    return list(known if families is None else dict.fromkeys(families))


def _weight(family: Family, weights: Mapping[str, float] | None) -> float:
    return family.weight if weights is None else weights.get(family.name, family.weight)
