"""Grids of trainings: over lr and alpha, and over lr and weight decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fixnorm.evidence.trainings import Found, Training, Trainings
from fixnorm.methods import under_cap

__all__ = ["Capped", "under_caps"]


@dataclass(frozen=True)
class Capped:
    """What a training under a cap found."""

    found: Found
    free: bool
    """Known without training: that of a greater alpha whose cap was never met."""


def under_caps(
    trainings: Trainings, train: Callable[[float], Training], alphas: Sequence[float]
) -> dict[float, Capped]:
    """One training for each alpha, all else equal; ``train`` makes it of its alpha.

    Of alphas the largest is trained first: where its g stays under a smaller cap, that is the same
    training.
    """
    *smaller, last = sorted(alphas)
    largest = trainings.one(train(last))
    asked = [alpha for alpha in smaller if not _is_that_of(largest, alpha)]
    found = dict(zip(asked, trainings.all(map(train, asked)), strict=True))
    found[last] = largest
    return {alpha: Capped(found.get(alpha, largest), alpha not in found) for alpha in alphas}


def _is_that_of(largest: Found, alpha: float) -> bool:
    scale = largest.largest_scale
    return largest.score is not None and scale is not None and under_cap(scale, alpha)
