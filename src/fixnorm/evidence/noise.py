"""The noise of one training, from equal trainings by different seeds.

With y_gs the score of group g (trainings that are equal but for the seed) by seed s,

    one training:  σ² = Σ_g Σ_s (y_gs − ȳ_g)² / Σ_g (n_g − 1)

Groups that have the same seeds have the same data order and the same start: a seed that is lucky
for the one may be for the other. What is left of the difference of two groups, seed by seed, is

    a pair:  δ² = 2 · Σ_g Σ_s (y_gs − ȳ_g − ȳ_s + ȳ)² / (G − 1)(n − 1),

the mean of the variance of y_gs − y_hs over all pairs (g, h). Where seeds decide nothing in common
it is 2·σ².
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

__all__ = ["NEAR_BEST", "Group", "Noise", "near_the_best", "noise_of"]

NEAR_BEST = 5.0
"""Percent."""

Group = Sequence[float]
"""Scores of equal trainings, by seed; the groups of a setting have the same seeds."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations, with their degrees of freedom."""

    one: float
    freedom: int
    pair: float
    pair_freedom: int


def noise_of(groups: Iterable[Group]) -> Noise | None:
    """None where nothing was trained twice, or no two groups by the same seeds."""
    every = [tuple(group) for group in groups]
    counts = {len(group) for group in every}
    if len(every) < 2 or len(counts) != 1 or counts == {1}:
        return None
    (count,) = counts
    means = [fmean(group) for group in every]
    rows = [[y - mean for y in group] for group, mean in zip(every, means, strict=True)]
    seeds = [fmean(column) for column in zip(*rows, strict=True)]
    freedom, pair_freedom = len(every) * (count - 1), (len(every) - 1) * (count - 1)
    one = math.fsum(d**2 for row in rows for d in row)
    pair = math.fsum((d - seed) ** 2 for row in rows for d, seed in zip(row, seeds, strict=True))
    return Noise(
        one=math.sqrt(one / freedom),
        freedom=freedom,
        pair=math.sqrt(2 * pair / pair_freedom),
        pair_freedom=pair_freedom,
    )


def near_the_best(groups: Iterable[Group]) -> list[Group]:
    """Of a grid those whose mean is less than :data:`NEAR_BEST` below the best.

    Comparisons are made there, and far from it trainings are less steady.

    Groups that are equal score by score are one training under several names, and come once.
    """
    every = list(dict.fromkeys(tuple(group) for group in groups))
    top = max((fmean(group) for group in every), default=0.0)
    return [group for group in every if fmean(group) >= top - NEAR_BEST]
