"""What a training gives in a replay, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fixnorm.evidence.landscapes import Landscape, NoisyLandscape

Write = Callable[..., Path]
ROOT2 = math.sqrt(2)


def seen(landscape: Landscape, lr: float, level: float, noise: str) -> set[float]:
    draws = [NoisyLandscape(landscape, str(k), noise) for k in range(60)]
    return {round(draw.training(lr, level).accuracy, 6) for draw in draws}


def two_seeds(lr: float, level: float, seed: int) -> float:
    """58 and 62 at lr 0.25, 50 and 50 at lr 1."""
    return (58.0, 62.0)[seed] if lr < 1 else 50.0


def test_on_a_point_of_the_grid(write: Write) -> None:
    landscape = Landscape.read(write(two_seeds, lrs=(0.25, 1.0), seeds=2))
    assert seen(landscape, 0.25, 1e-4, "recorded") == {58, 62}
    # ±2 is √2 times less than the unbiased estimate, √((2² + 2²)/1)
    assert seen(landscape, 0.25, 1e-4, "full") == {
        round(60 - 2 * ROOT2, 6),
        round(60 + 2 * ROOT2, 6),
    }


def test_between_points_the_full_noise_does_not_average_out(write: Write) -> None:
    landscape = Landscape.read(write(two_seeds, lrs=(0.25, 1.0), seeds=2))
    assert seen(landscape, 0.5, 1e-4, "recorded") == {54, 56}
    # half of the time the noise of lr 0.25, half of the time that of lr 1, which has none
    assert seen(landscape, 0.5, 1e-4, "full") == {
        55,
        round(55 - 2 * ROOT2, 6),
        round(55 + 2 * ROOT2, 6),
    }


def test_the_size_of_the_noise_between_four_points(write: Write) -> None:
    def value(lr: float, level: float, seed: int) -> float:
        return 50 + (2 * seed - 1) * (1 if lr < 1 else 3) * (1 if level < 1e-3 else 2)

    landscape = Landscape.read(write(value, lrs=(0.25, 1.0), seeds=2))
    draws = [NoisyLandscape(landscape, str(k)).training(0.5, 1e-3).accuracy for k in range(4000)]
    # variances of single trainings: 2·1², 2·3², 2·2², 2·6², a quarter each
    expected = 2 * (1 + 9 + 4 + 36) / 4
    variance = sum((draw - 50) ** 2 for draw in draws) / len(draws)
    assert variance == pytest.approx(expected, rel=0.1)


def test_a_curve_ends_with_the_accuracy_and_has_its_noise_on_the_way(write: Write) -> None:
    landscape = Landscape.read(write(two_seeds, lrs=(0.25, 1.0), seeds=2, epochs=4))
    for noise in ("full", "recorded"):
        got = NoisyLandscape(landscape, "0", noise).training(0.25, 1e-4)
        assert got.curve[-1] == pytest.approx(got.accuracy)
        # the recorded curves are proportional to their end
        assert got.curve == pytest.approx([got.accuracy * e / 4 for e in (1, 2, 3, 4)])


def test_the_same_point_is_the_same_training(write: Write) -> None:
    landscape = Landscape.read(write(two_seeds, axis="alpha", levels=(0.5, 1.0, 4.0), seeds=2))
    for key in map(str, range(20)):
        draws = NoisyLandscape(landscape, key)
        first = draws.training(0.5, 1.0)
        assert draws.training(0.5, 1.0) == first
        assert draws.training(0.5, 4.0).accuracy == first.accuracy  # alphas that are one training


def test_one_seed_is_the_mean_itself(write: Write) -> None:
    landscape = Landscape.read(write(lambda lr, level, seed: 60 + 10 * math.log(lr, 4)))
    assert seen(landscape, 0.5, 1e-3, "full") == {55}
    assert seen(landscape, 0.5, 1e-3, "recorded") == {55}


def test_the_largest_scale_is_that_of_the_seed(write: Write) -> None:
    landscape = Landscape.read(write(two_seeds, axis="alpha", seeds=2, scale=0.75))
    assert NoisyLandscape(landscape, "0").training(0.5, 1e-3).largest_scale == pytest.approx(0.75)
    bare = Landscape.read(write(two_seeds, seeds=2))
    assert NoisyLandscape(bare, "0").training(0.5, 1e-3).largest_scale is None
