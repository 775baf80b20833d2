"""A few dozen sentences and made-up similarities -> a report as a real evaluation gives it; seeded, no model, no file."""

from __future__ import annotations

import random

import msgspec

from crucible.board.render.bins import Histogram, binned
from crucible.board.render.eval_report import Bundle, Encoding, EvalReport, Negative, TierRow
from crucible.kernel import stats

TIERS = ("tier1_easy", "tier2_robust", "tier3_adversarial")
LIFT = (0.09, -0.03, -0.14)
COUNT = 400

SENSES: dict[str, list[list[str]]] = {
    "bank": [
        ["they pulled the canoe up on the bank", "he sat on the bank of the river and watched the currents"],
        ["he cashed a check at the bank", "that bank holds the mortgage on my home", "the bank refused the loan"],
        ["the pilot put the plane into a steep bank", "a sharp bank to the left threw the cups off the tray"],
    ],
    "cold": [
        ["he shivered from the cold", "come in out of the cold", "the cold numbed her fingers within minutes"],
        ["will they never find a cure for the common cold?", "she stayed at home with a bad cold"],
        ["a cold unfriendly nod", "his cold manner discouraged every question that the students had prepared"],
    ],
    "play": [
        ["Gielgud played Hamlet", "she played the servant to her husband's master"],
        ["the band played all night long", "he plays the flute in the orchestra on Thursdays"],
        ["Pele played for the Brazilian teams in many important matches", "they played games on their opponents"],
        ["we went to see a play about a lighthouse keeper", "his new play was a great success"],
    ],
    "flat": [
        ["a flat desk", "skirts sewn with fine flat seams", "the land is flat as far as the eye can see"],
        ["flat sales for the month", "prices remained flat after the announcement"],
        ["they rented a small flat above the bakery", "the flat has two rooms and a kitchen"],
    ],
    "light": [
        ["a light load", "magnesium is a light metal", "she packed a light bag for the weekend"],
        ["the light of the lamp fell on the page", "early light filled the room"],
        ["a light, amusing comedy", "light reading for the train"],
    ],
}


def realistic(**changes: object) -> EvalReport:
    """COUNT bundles; `changes` replace fields of the report."""
    rng = random.Random(7)
    bundles = [_judged(rng, place) for place in range(COUNT)]
    by_tier = {tier: [bundle for bundle in bundles if bundle.tier == tier] for tier in TIERS}
    fields: dict[str, object] = {
        "title": "minilm on wordnet-examples v1",
        "model_id": "minilm",
        "model_digest": "sha256:5f2d0e8a1c9b4f7764d3a8e2b15c0f9a7e6d4c3b2a190817f6e5d4c3b2a19081",
        "eval_set": "wordnet-examples",
        "version": "v1",
        "fingerprint": "EVAL_FINGERPRINT: v1 source=9c41d7e0a2b35f68 seed=42 items=400 tiers=280/80/40",
        "timestamp": "2026-11-14T09:26:53+00:00",
        "checkpoint_path": "runs/2026-11-14/minilm/checkpoint-final",
        "overall": tier_row("All tiers", bundles),
        "tiers": [tier_row(tier, chosen) for tier, chosen in by_tier.items()],
        "histogram": binned({tier: [bundle.margin for bundle in chosen] for tier, chosen in by_tier.items()}),
        "worst": sorted(bundles, key=lambda bundle: bundle.margin)[:20],
        "encoding": Encoding(unique_texts=3716, cached=3500, encoded=216),
        "notes": ["tier3_adversarial has 40 items, fewer than 50: its quantiles are optimistic."],
    }
    return EvalReport(**{**fields, **changes})  # type: ignore[arg-type]


def tier_row(name: str, bundles: list[Bundle]) -> TierRow:
    margins = [bundle.margin for bundle in bundles]
    if not margins:
        return TierRow(name, 0, 0, None, None, None, None, None, None, None)
    passed = sum(margin > 0 for margin in margins)
    mean_rank = sum(bundle.rank for bundle in bundles) / len(bundles)
    return TierRow(
        name=name,
        n=len(margins),
        correct=passed,
        pass_rate=passed / len(margins),
        interval=stats.wilson(passed, len(margins)),
        mean_margin=sum(margins) / len(margins),
        median=stats.quantile(margins, 0.5),
        q10=stats.quantile(margins, 0.1),
        q90=stats.quantile(margins, 0.9),
        mean_rank=mean_rank,
        mean_rank_pessimistic=mean_rank,
        n_ties=sum(margin == 0 for margin in margins),
    )


def _judged(rng: random.Random, place: int) -> Bundle:
    tier = (place * 10 >= COUNT * 7) + (place * 10 >= COUNT * 9)
    lemma = rng.choice(list(SENSES))
    sense = rng.randrange(len(SENSES[lemma]))
    anchor, positive = rng.sample(SENSES[lemma][sense], 2)
    others = [text for n, texts in enumerate(SENSES[lemma]) if n != sense for text in texts]
    others += [texts[0] for name, senses in SENSES.items() if name != lemma for texts in senses[:1]]
    similarity = min(0.97, max(-0.1, rng.gauss(0.42 + LIFT[tier], 0.15)))
    texts = rng.sample(others, rng.randint(2, 8))
    negatives = [Negative(text, min(0.95, max(-0.12, rng.gauss(0.22, 0.12)))) for text in texts]
    return Bundle(
        id=f"{lemma}.{sense + 1:02}.{place:05}",
        tier=TIERS[tier],
        margin=similarity - max(negative.similarity for negative in negatives),
        rank=1 + sum(negative.similarity > similarity for negative in negatives),
        anchor=anchor,
        positive=positive,
        positive_similarity=similarity,
        negatives=negatives,
    )


HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %} ${7*7} &amp; &#0;",
    "\x00\x07\x1b[31mred\x1b[0m\r\u202eevil\u202c\u2066x\u2069\ufeff\u00ad\u2028end",
    "half a surrogate \udcff, a tag \U000e0041, zalgo h\u0337\u0321\u0328\u031bi\u0336\u0322",
    "url(http://192.0.2.1/x) <style>@import 'http://192.0.2.1/y'</style><svg onload=alert(1)>",
    "x" * 10_000,
    "לשלום עולם مرحبا \u200f(mixed)\u200e",
    "line\n" * 400,
    '" onmouseover="alert(1)" x="',
    "-->]]><!--",
)


def hostile() -> EvalReport:
    """Every text of the report is an attack; the numbers are those of the realistic one."""
    plain = realistic()
    words = iter(HOSTILE * 1000)
    worst = [
        Bundle(
            id=next(words),
            tier=next(words),
            margin=bundle.margin,
            rank=bundle.rank,
            anchor=next(words),
            positive=next(words),
            positive_similarity=bundle.positive_similarity,
            negatives=[Negative(next(words), negative.similarity) for negative in bundle.negatives],
        )
        for bundle in plain.worst
    ]
    names = [text[:200] for text in HOSTILE[:3]]
    tiers = [msgspec.structs.replace(row, name=name) for row, name in zip(plain.tiers, names, strict=True)]
    counts = dict(zip(names, plain.histogram.counts.values(), strict=True))
    texts = ("title", "model_id", "model_digest", "eval_set", "version", "fingerprint", "timestamp", "checkpoint_path")
    changes = dict(zip(texts, HOSTILE, strict=False))
    return realistic(
        **changes,
        watermark=HOSTILE[0],
        notes=HOSTILE,
        tiers=tiers,
        histogram=Histogram(plain.histogram.edges, counts),
        worst=worst,
    )
