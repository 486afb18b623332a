"""The part of a landscape around its own best, as wide for each, and what is lost there.

A grid as it was recorded says as much about who chose its ends as about the method. So each
landscape is looked at from its own best point (lr*, λ*): the places

    (lr* · F^a, λ* · G^b),   a, b evenly in [−1, 1]

with the same factors F and G for all landscapes that are compared: the largest by which every one
of them was recorded on both sides of its best. Between the points of a grid the mean is
interpolated, so that a part of the grid with many points counts for no more than its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fixnorm.evidence.landscapes import Corner, Landscape

__all__ = ["Loss", "Reach", "around", "lost_around", "lost_on_grid", "reach_of"]

PLACES = 9
"""Of each axis."""


@dataclass(frozen=True)
class Reach:
    """Factors up and down from the best point."""

    lr: float
    level: float

    @property
    def open(self) -> bool:
        """Whether there is something on both sides of both axes."""
        return self.lr > 1 and self.level > 1


@dataclass(frozen=True)
class Loss:
    """What is lost to the best of all, in percent."""

    regrets: tuple[float, ...]
    error: float
    """The standard error of the mean regret, by the noise of the trainings below it."""

    @property
    def mean(self) -> float:
        return fmean(self.regrets)

    @property
    def worst(self) -> float:
        return max(self.regrets)

    def share(self, within: float) -> float:
        """The part of the places that lose less."""
        return fmean(regret <= within for regret in self.regrets)


def reach_of(landscapes: Sequence[Landscape]) -> Reach:
    """The largest that all of them have on both sides of their own best."""
    bests = [(one, one.best) for one in landscapes]
    return Reach(
        lr=min(min(best.lr / one.lrs[0], one.lrs[-1] / best.lr) for one, best in bests),
        level=min(
            min(best.level / one.levels[0], one.levels[-1] / best.level) for one, best in bests
        ),
    )


def around(landscape: Landscape, reach: Reach, places: int = PLACES) -> list[list[list[Corner]]]:
    """The corners of each place, by level and by lr."""
    best, steps = landscape.best, [2 * k / (places - 1) - 1 for k in range(places)]
    return [
        [landscape.corners(best.lr * reach.lr**a, best.level * reach.level**b) for a in steps]
        for b in steps
    ]


def lost_around(landscape: Landscape, reach: Reach, top: float) -> Loss:
    """Around its own best."""
    places = [corners for row in around(landscape, reach) for corners in row]
    return _loss(landscape, places, top)


def lost_on_grid(landscape: Landscape, top: float) -> Loss:
    """Over the points that were trained, wherever they are."""
    places = [[Corner(lr, level, 1.0)] for level in landscape.levels for lr in landscape.lrs]
    return _loss(landscape, places, top)


def _loss(landscape: Landscape, places: Sequence[Sequence[Corner]], top: float) -> Loss:
    regrets = tuple(top - landscape.mean_of(corners) for corners in places)
    # Alphas of one lr may be one training: all levels of an lr count as if they were.
    weights = dict.fromkeys(landscape.lrs, 0.0)
    for corners in places:
        for corner in corners:
            weights[corner.lr] += corner.weight / len(places)
    squares = math.fsum(weight**2 for weight in weights.values())
    error = landscape.noise * math.sqrt(squares / len(landscape.seeds))
    return Loss(regrets, error)
