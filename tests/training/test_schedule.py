"""The learning rate's multiplier, by hand."""

from __future__ import annotations

import math

import pytest

from fixnorm.training.schedule import multiplier


def curve(steps: int, warmup: int) -> list[float]:
    return [multiplier(t, steps=steps, warmup=warmup) for t in range(steps)]


def test_warm_up_then_cosine() -> None:
    half = math.sqrt(3) / 4  # ½·cos 30°
    assert curve(steps=9, warmup=3) == pytest.approx(
        [
            1 / 3,  # step 0: not zero, so that the first batch counts
            2 / 3,
            1.0,  # the last step of the warm-up has the peak
            1.0,  # cos 0°
            0.5 + half,  # cos 30°
            0.75,  # cos 60°
            0.5,  # cos 90°
            0.25,
            0.5 - half,  # cos 150°: zero itself would be a step too many
        ]
    )


def test_without_warm_up_the_first_step_has_the_peak() -> None:
    assert curve(steps=4, warmup=0) == pytest.approx(
        [1.0, 0.5 + math.sqrt(2) / 4, 0.5, 0.5 - math.sqrt(2) / 4]
    )


def test_a_training_that_is_all_warm_up() -> None:
    assert curve(steps=4, warmup=4) == [0.25, 0.5, 0.75, 1.0]


def test_a_long_training_falls_all_the_way_and_never_to_zero() -> None:
    every_1000th = [multiplier(t, steps=150_000, warmup=5_000) for t in range(4_999, 150_000, 1000)]
    assert every_1000th[0] == 1.0
    assert every_1000th == sorted(every_1000th, reverse=True)
    assert 0 < multiplier(149_999, steps=150_000, warmup=5_000) < 1e-9


def test_poly_falls_to_zero_by_a_power() -> None:
    found = [multiplier(t, steps=4, warmup=0, schedule="poly") for t in range(4)]
    assert found == pytest.approx([1.0, 0.75**0.9, 0.5**0.9, 0.25**0.9])


def test_poly_begins_after_the_warm_up() -> None:
    found = [multiplier(t, steps=6, warmup=2, schedule="poly") for t in range(6)]
    assert found == pytest.approx([0.5, 1.0, 1.0, 0.75**0.9, 0.5**0.9, 0.25**0.9])


def test_steps_are_those_of_ninety_thousand_iterations() -> None:
    def at(t: int) -> float:
        return multiplier(t, steps=90_000, warmup=500, schedule="step")

    assert [at(t) for t in (499, 500, 59_999)] == [1.0, 1.0, 1.0]
    assert [at(t) for t in (60_000, 79_999)] == pytest.approx([0.1, 0.1])
    assert [at(t) for t in (80_000, 89_999)] == pytest.approx([0.01, 0.01])
