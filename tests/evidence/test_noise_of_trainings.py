"""The noise of one training, and how many pairs a difference needs."""

from __future__ import annotations

import math
import random

import pytest

from fixnorm.evidence.experiments import DRAWN
from fixnorm.evidence.noise import near_the_best, noise_of
from fixnorm.report.statistics import paired, pairs_for
from helpers.outcomes import OUTCOMES


def test_noise_by_hand() -> None:
    """Seeds move both groups alike by ±1, and one of them by ±½ more."""
    noise = noise_of([(10.0, 12.0), (20.0, 23.0)])

    assert noise is not None
    assert noise.one == pytest.approx(math.sqrt((1 + 1 + 2.25 + 2.25) / 2))
    assert (noise.freedom, noise.pair_freedom) == (2, 1)
    assert noise.pair == pytest.approx(math.sqrt(0.5))  # of the differences 10 and 11


def test_a_pair_has_the_deviation_of_the_differences_of_two_groups() -> None:
    chance = random.Random(0)
    ours, theirs = ([chance.gauss(50, 1) for _ in range(7)] for _ in range(2))
    noise = noise_of([ours, theirs])

    assert noise is not None
    assert noise.pair == pytest.approx(paired(ours, theirs).deviation)


def test_what_is_trained_once_has_no_noise() -> None:
    assert noise_of([(1.0,), (2.0,)]) is None
    assert noise_of([(1.0, 2.0)]) is None  # no second group of the same seeds
    assert noise_of([(1.0, 2.0), (1.0, 2.0, 3.0)]) is None


def test_a_grid_is_taken_near_its_best_and_no_training_twice() -> None:
    best, near, far = (50.0, 52.0), (46.0, 46.5), (45.0, 46.0)
    assert near_the_best([best, near, best, far]) == [best, near]  # 5 % below 51


def test_pairs_for_a_difference() -> None:
    """What tables of power print: 0.5, 1 and 2 deviations, 5 %, two-sided, power 80 %."""
    assert [pairs_for(effect, 1.0) for effect in (0.5, 1.0, 2.0)] == [34, 10, 5]
    assert pairs_for(0.3, 3.0) == 787  # Student's t and the normal law are one by now
    assert pairs_for(0.3, 0.0) == 2


@pytest.mark.parametrize("name", list(DRAWN))
def test_every_experiment_says_what_it_trained_twice(name: str) -> None:
    repeats = DRAWN[name].of(OUTCOMES[name]).repeats()

    assert repeats
    assert all(noise_of(groups) is not None for groups in repeats.values())


def test_scores_are_in_the_order_of_the_seeds() -> None:
    """However the file has them: pairs are of the same seed."""
    outcome = OUTCOMES["fig2"]
    turned = {**outcome, "runs": [*reversed(outcome["runs"][:3]), *outcome["runs"][3:]]}
    mixed = {**outcome, "runs": sorted(outcome["runs"], key=lambda run: -run["seed"])}

    for other in (turned, mixed):
        groups = DRAWN["fig2"].of(other).repeats()["toy"]
        assert sorted(map(list, groups)) == sorted(
            map(list, DRAWN["fig2"].of(outcome).repeats()["toy"])
        )
