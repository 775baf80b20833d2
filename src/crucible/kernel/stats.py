"""Numbers from several seeds or items -> summaries, intervals and tests, in float64 with the standard library only.

Where the metrics reference is open, the choice is the one of docs/decisions/0005: sample standard deviation (n - 1), linear
quantiles, Student t for verdicts, no standard error for a single seed. Every random draw is seeded and uses nothing but
`Random.random()`, whose sequence Python guarantees, so that a published interval comes out again anywhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import msgspec

Interval = tuple[float, float]


class Summary(msgspec.Struct, frozen=True):
    """Independent repetitions of one measurement. `se`, `ci95` and `ci95_t` are null for n = 1: one seed has no spread."""

    mean: float
    std: float | None
    min: float
    max: float
    n: int
    se: float | None
    ci95: Interval | None
    """mean ± 1.96 std / sqrt(n), as the reference writes it; with 3 seeds it covers 81%, not 95%."""
    ci95_t: Interval | None
    """The same with Student's t: what verdicts use."""


def summary(values: Sequence[float]) -> Summary:
    if not values:
        raise ValueError("a summary needs at least one value")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"a summary needs finite values, got {list(values)}")
    n = len(values)
    low, high = min(values), max(values)
    mean = min(max(math.fsum(values) / n, low), high)  # rounding may not put the mean of equal values beside them
    if n == 1:
        return Summary(mean, None, low, high, n, None, None, None)
    std = math.hypot(*(value - mean for value in values)) / math.sqrt(n - 1)  # squares neither vanish nor overflow
    se = std / math.sqrt(n)
    wide = t_quantile(0.975, n - 1) * se
    return Summary(mean, std, low, high, n, se, (mean - 1.96 * se, mean + 1.96 * se), (mean - wide, mean + wide))


def quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics (NumPy's default, type 7)."""
    if not values or not 0.0 <= q <= 1.0:
        raise ValueError(f"quantile {q} of {len(values)} values is not defined")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> Interval:
    """The Wilson score interval of a proportion: sensible at 0 and at 1, where the plain one has no width."""
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} successes of {n} is not a proportion")
    p, z2 = successes / n, z * z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


# --- tests ---------------------------------------------------------------------------------------------------------


class Welch(msgspec.Struct, frozen=True):
    t: float
    df: float
    p: float


def welch(a: Summary, b: Summary) -> Welch | None:
    """Two-sided t-test without assuming equal variances; None where a side has a single value or neither has spread."""
    if a.se is None or b.se is None or a.se + b.se == 0.0:
        return None
    widest = max(a.se, b.se)
    va, vb = (a.se / widest) ** 2, (b.se / widest) ** 2  # relative, because the square of a tiny spread is zero
    t = (a.mean - b.mean) / widest / math.sqrt(va + vb)
    df = (va + vb) ** 2 / (va**2 / (a.n - 1) + vb**2 / (b.n - 1))
    return Welch(t, df, 2.0 * t_survival(abs(t), df))


class McNemar(msgspec.Struct, frozen=True):
    """`only_a`: items that a passes and b fails; `p` is the exact two-sided binomial value over the discordant items."""

    only_a: int
    only_b: int
    p: float


def mcnemar(only_a: int, only_b: int) -> McNemar:
    n, k = only_a + only_b, min(only_a, only_b)
    if k < 0:
        raise ValueError(f"{only_a} and {only_b} are not counts of items")
    return McNemar(only_a, only_b, min(1.0, 2.0 * _binomial_cdf_half(k, n)) if n else 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order the values came in."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        running = max(running, min(1.0, p_values[i] * (len(p_values) - place)))
        adjusted[i] = running
    return adjusted


class Bootstrap(msgspec.Struct, frozen=True):
    """A seeded percentile interval of mean(a) - mean(b) over paired items."""

    difference: float
    low: float
    high: float
    resamples: int
    seed: int


def paired_bootstrap(a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Bootstrap:
    """Resamples items, keeping each item's two values together."""
    if len(a) != len(b) or not a:
        raise ValueError(f"paired values need equal, non-zero counts, got {len(a)} and {len(b)}")
    deltas = [x - y for x, y in zip(a, b, strict=True)]
    n, uniform = len(deltas), random.Random(seed).random
    draw: Callable[[], float] = lambda: math.fsum(deltas[int(uniform() * n)] for _ in range(n)) / n  # noqa: E731
    return _interval(math.fsum(deltas) / n, [draw() for _ in range(resamples)], seed)


def paired_bootstrap_passes(only_a: int, only_b: int, n: int, *, seed: int = 0, resamples: int = 10_000) -> Bootstrap:
    """The same for pass/fail items: only the discordant counts move, and they follow a multinomial.

    One draw costs two binomials instead of n picks, and follows the same law.
    """
    if only_a < 0 or only_b < 0 or only_a + only_b > n or n < 1:
        raise ValueError(f"{only_a} + {only_b} discordant items of {n} is impossible")
    rng = random.Random(seed)
    discordant, share = only_a + only_b, only_a / max(1, only_a + only_b)

    def draw() -> float:
        moved = binomial(rng, n, discordant / n)
        for_a = binomial(rng, moved, share)
        return (2 * for_a - moved) / n

    return _interval((only_a - only_b) / n, [draw() for _ in range(resamples)], seed)


def _interval(difference: float, draws: list[float], seed: int) -> Bootstrap:
    return Bootstrap(difference, quantile(draws, 0.025), quantile(draws, 0.975), len(draws), seed)


# --- distributions ---------------------------------------------------------------------------------------------------


def t_survival(t: float, df: float) -> float:
    """P(T > t) for Student's t, t >= 0."""
    return 0.5 * _beta_regularized(df / 2.0, 0.5, df / (df + t * t))


def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p, for p in [0.5, 1), by bisection to the last bit."""
    if not 0.5 <= p < 1.0 or df <= 0:
        raise ValueError(f"t quantile at p={p}, df={df} is not defined here")
    low, high = 0.0, 1.0
    while t_survival(high, df) > 1.0 - p:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if t_survival(middle, df) > 1.0 - p else (low, middle)
    return (low + high) / 2.0


def _beta_regularized(a: float, b: float, x: float) -> float:
    """I_x(a, b) by the continued fraction, on the side where it converges quickly."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta_regularized(b, a, 1.0 - x)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 1000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return front * fraction


def _binomial_cdf_half(k: int, n: int) -> float:
    """P(X <= k) for X ~ Binomial(n, 1/2)."""
    if k >= n:
        return 1.0
    if n <= 1000:
        return sum(math.comb(n, i) for i in range(k + 1)) / (1 << n)
    return _beta_regularized(n - k, k + 1, 0.5)


def binomial(rng: random.Random, n: int, p: float) -> int:
    """One binomial draw that uses `rng.random()` alone: counting gaps for small means, Hormann's BTRS otherwise."""
    if p <= 0.0 or n == 0:
        return 0
    if p >= 1.0:
        return n
    if p > 0.5:
        return n - binomial(rng, n, 1.0 - p)
    if n * p < 10.0:
        return _binomial_by_gaps(rng, n, p)
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    quick = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    log_odds = math.log(p / (1.0 - p))
    mode = math.floor((n + 1) * p)
    at_mode = math.lgamma(mode + 1) + math.lgamma(n - mode + 1)
    while True:
        u, v = rng.random() - 0.5, 1.0 - rng.random()
        us = 0.5 - abs(u)
        if us <= 0.0:
            continue
        k = math.floor((2.0 * a / us + b) * u + centre)
        if k < 0 or k > n:
            continue
        if us >= 0.07 and v <= quick:
            return k
        v *= alpha / (a / (us * us) + b)
        if math.log(v) <= at_mode - math.lgamma(k + 1) - math.lgamma(n - k + 1) + (k - mode) * log_odds:
            return k


def _binomial_by_gaps(rng: random.Random, n: int, p: float) -> int:
    log_q, at, successes = math.log1p(-p), 0, 0
    while True:
        at += math.floor(math.log(1.0 - rng.random()) / log_q) + 1
        if at > n:
            return successes
        successes += 1
