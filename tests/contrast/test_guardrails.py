"""Each guardrail trips on what it names, at its level, and on nothing less; what stops a run is decided in one place."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.contrast import guardrails
from crucible.contrast.config import Config, Curriculum, Guardrails, Ratios, Training
from crucible.contrast.guardrails import Finding, Point, Truths, Watch
from crucible.contrast.scoreboard import EvalHeader, Scoreboard, TierStats
from crucible.contrast.tiers import TIERS
from crucible.errors import BadConfig, GuardrailTripped
from crucible.kernel.pin import Pin

REFERENCE = Config(
    training=Training(steps=10_000, batch_size=32),
    curriculum=Curriculum(tier3_ratios=Ratios(legacy=0.75, organic=0.25, expanded=0.0)),
)
FULL = {"tier1_easy": 100, "tier2_robust": 100, "organic": 50, "expanded": 0}


def levels(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(one.guardrail, one.level) for one in findings]


def steps(count: int) -> Config:
    return msgspec.structs.replace(REFERENCE, training=Training(steps=count, batch_size=32))


@pytest.mark.parametrize(
    ("pool", "level"),
    [
        (454, None),
        (480, None),
        (481, "warning"),
        (800, "warning"),
        (801, "critical"),
        (2400, "critical"),
        (2401, "severe"),
    ],
)
def test_G1_levels_are_50_30_and_10_and_a_boundary_belongs_to_the_healthier_class(pool: int, level: str | None) -> None:
    """24,000 legacy draws: exactly 50 exposures at 480 items, 30 at 800, 10 at 2,400."""
    found = guardrails.before(REFERENCE, {**FULL, "legacy": pool}, [], 0)
    assert levels(found) == ([("G1", level)] if level else [])


def test_G1_uses_the_thresholds_of_the_configuration() -> None:
    strict = msgspec.structs.replace(REFERENCE, guardrails=Guardrails(dilution_block_threshold=60.0))
    assert levels(guardrails.before(strict, {**FULL, "legacy": 454}, [], 0)) == [("G1", "severe")]


def test_G3_names_an_empty_legacy_pool_shared_ids_and_unvalidated_bundles() -> None:
    found = guardrails.before(REFERENCE, {**FULL, "legacy": 0}, ["x", "y"], 4)
    assert levels(found) == [("G3", "severe"), ("G3", "error"), ("G3", "severe")]
    assert "'x'" in found[1].message and "4 organic" in found[2].message


def test_G4_trips_once_when_a_tier_falls_below_80_percent_of_its_target() -> None:
    watch = Watch()
    found = [one for step in range(1, 200) for one in watch.observe(step, 1.0, 1.0, [7, 2, 1], [0.6, 0.2, 0.2])]
    assert levels(found) == [("G4", "warning")] and TIERS[2] in found[0].message


def test_G4_is_silent_before_a_share_means_anything() -> None:
    assert Watch().observe(1, 1.0, 1.0, [10, 0, 0], [0.6, 0.2, 0.2]) == []


def test_G5_compares_a_loss_with_the_steps_before_it_and_not_with_itself() -> None:
    watch = Watch()
    quiet = [watch.observe(step, 1.0 + 0.01 * (step % 3), 1.0, [1, 0, 0], [1, 0, 0]) for step in range(1, 25)]
    assert not any(quiet)
    # Were the spike inside a window of 25, its own weight would lift three sigma above it: (n - 1) / sqrt(n) = 4.8 only
    # for an endless spike, and far less for this one.
    (found,) = watch.observe(25, 1.06, 1.0, [1, 0, 0], [1, 0, 0])
    assert (found.guardrail, found.level, found.step) == ("G5", "warning", 25)


def test_G5_needs_a_window() -> None:
    watch = Watch()
    assert not any(watch.observe(step, 1.0 if step < 10 else 50.0, 1.0, [1, 0, 0], [1, 0, 0]) for step in range(1, 11))


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_G6_is_severe_for_what_is_not_finite(loss: float, norm: float) -> None:
    assert levels(Watch().observe(1, loss, norm, [1, 0, 0], [1, 0, 0])) == [("G6", "severe")]


@pytest.mark.parametrize(("norm", "word"), [(1e-9, "vanishing"), (1e4, "exploding")])
def test_G6_warns_of_a_gradient_that_vanishes_or_explodes_once(norm: float, word: str) -> None:
    watch = Watch()
    first = watch.observe(1, 1.0, norm, [1, 0, 0], [1, 0, 0])
    assert levels(first) == [("G6", "warning")] and word in first[0].message
    assert watch.observe(2, 1.0, norm, [1, 0, 0], [1, 0, 0]) == []
    assert watch.observe(3, 1.0, 1.0, [1, 0, 0], [1, 0, 0]) == []
    assert levels(watch.observe(4, 1.0, norm, [1, 0, 0], [1, 0, 0])) == [("G6", "warning")]


def board(pass_rate: float, q10: float = -0.1, tier3: float | None = None, pin: str = "a") -> Scoreboard:
    def stats(rate: float | None) -> TierStats:
        return TierStats(100, round(100 * (rate or 0)), rate, rate, 0.0, 0.0, q10, 0.2, 1.5)

    header = EvalHeader(
        "h", 42, 100, {}, "v1", "f", "set", {"id": "m", "digest": "d"}, "m", None, None, Pin("t", {"x": pin})
    )
    tiers = {
        TIERS[0]: stats(pass_rate),
        TIERS[1]: stats(pass_rate),
        TIERS[2]: stats(tier3 if tier3 is not None else pass_rate),
    }
    return Scoreboard(header, stats(pass_rate), tiers, "now", "m")


def test_G7_trips_on_a_fall_beyond_the_threshold_only() -> None:
    def after(now: float) -> list[tuple[str, str]]:
        return levels(
            guardrails.after(Config(), Truths(board(0.5, tier3=0.50), None), Truths(board(0.5, tier3=now), None))
        )

    assert after(0.48) == [] and after(0.47) == [("G7", "critical")]


def test_G9_is_an_error_that_only_exploration_overrides() -> None:
    base, new = Truths(board(0.5), None), Truths(board(0.5, pin="b"), None)
    found = guardrails.after(Config(), base, new)
    assert levels(found) == [("G9", "error")]
    with pytest.raises(GuardrailTripped):
        guardrails.judged(found, [], enforce=False)
    assert guardrails.judged(found, ["G9"], enforce=True)[0].overridden
    loose = Config(guardrails=Guardrails(fingerprint_strict=False))
    assert levels(guardrails.after(loose, base, new)) == [("G9", "warning")]


def test_G10_trips_when_the_tail_falls_although_the_pass_rate_holds() -> None:
    def after(rate: float, q10: float) -> list[tuple[str, str]]:
        return levels(guardrails.after(Config(), Truths(None, board(0.5, -0.1)), Truths(None, board(rate, q10))))

    assert after(0.5, -0.2) == [("G10", "warning")] and after(0.6, -0.2) == [("G10", "warning")]
    assert after(0.6, -0.1) == [] and after(0.4, -0.2) == []


def test_G8_is_the_first_place_where_frozen_rises_and_organic_falls() -> None:
    points = [Point(20_000, 0.40, 0.25), Point(5_000, 0.20, 0.20), Point(10_000, 0.30, 0.31)]
    (found,) = guardrails.cliff(points)
    assert found.guardrail == "G8" and found.numbers == {"from_step": 10_000.0, "to_step": 20_000.0}
    assert guardrails.cliff(points[1:]) == [] and guardrails.cliff([]) == []


FINDINGS = st.builds(
    Finding,
    guardrail=st.sampled_from(list(guardrails.NAMES)),
    level=st.sampled_from(guardrails.LEVELS),
    when=st.just("before"),
    message=st.just("m"),
    numbers=st.just({}),
)


@given(st.lists(FINDINGS, max_size=6), st.lists(st.sampled_from(list(guardrails.NAMES)), max_size=3), st.booleans())
def test_a_run_is_stopped_exactly_by_what_its_level_says(
    found: list[Finding], overrides: list[str], enforce: bool
) -> None:
    def stopping(one: Finding) -> bool:
        if one.level == "error":
            return not (one.guardrail == "G9" and "G9" in overrides)
        return enforce and one.level in ("critical", "severe") and one.guardrail not in overrides

    try:
        marked = guardrails.judged(found, overrides, enforce=enforce)
    except GuardrailTripped as error:
        assert any(map(stopping, found)) and error.exit_code == 1 and error.facts["guardrail"] in guardrails.NAMES
    else:
        assert not any(map(stopping, found)) and len(marked) == len(found)


def test_an_override_is_named_by_number_or_by_word_and_an_unknown_one_is_refused() -> None:
    assert guardrails.overridable(["g1", "dilution", "G7", "tail"]) == ["G1", "G7", "G10"]
    with pytest.raises(BadConfig, match="did you mean dilution"):
        guardrails.overridable(["dilutoin"])
