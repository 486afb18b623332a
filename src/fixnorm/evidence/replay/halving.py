"""Successive halving (Jamieson and Talwalkar, 2016) on the curves of trainings of full length.

A bracket trains four points for a quarter of T_max; the better half goes on to T_max/2, the best to
the end. Brackets of new points follow one another as long as the budget holds a whole one. A
training that goes on is not begun again: its cost is that of the epochs added. All trainings have
the schedule of full length; where one is stopped early its lr is still high, so its accuracy is not
that of a short training with a schedule of its own.
"""

from __future__ import annotations

import itertools
import random

from fixnorm.evidence.replay.draws import Draws
from fixnorm.evidence.replay.trace import Trace, Tracker

__all__ = ["ETA", "RUNGS", "bracket_epochs", "run_halving", "rungs_of"]

ETA = 2
"""One of so many goes on."""
RUNGS = 3
"""Lengths: T_max/4, T_max/2, T_max."""


def rungs_of(epochs: int) -> tuple[int, ...]:
    """The epochs after which trainings are compared; the last is the end."""
    rungs = [max(epochs // ETA**k, 1) for k in reversed(range(RUNGS))]
    return tuple(sorted(set(rungs)))


def bracket_epochs(rungs: tuple[int, ...]) -> int:
    """What a bracket costs: Σ_k η^(K−1−k)·(r_k − r_{k−1}), the last rung with one training."""
    added = [after - before for before, after in itertools.pairwise((0, *rungs))]
    return sum(ETA ** (len(rungs) - 1 - k) * epochs for k, epochs in enumerate(added))


def run_halving(draws: Draws, *, budget: float, seed: int) -> Trace:
    """Brackets up to the budget (in T_max); points evenly on a log scale."""
    landscape = draws.landscape
    rungs = rungs_of(landscape.epochs)
    if len(rungs) < 2:
        raise ValueError(
            f"successive-halving needs accuracies over epochs but {landscape.name} has one of each"
            " training"
        )
    brackets = int(budget * landscape.epochs) // bracket_epochs(rungs)
    if brackets < 1:
        least = bracket_epochs(rungs) / landscape.epochs
        raise ValueError(
            f"successive-halving needs a budget of at least {least:.3g} T_max but got {budget:g}"
        )
    chance, tracker = random.Random(seed), Tracker(landscape)
    for _ in range(brackets):
        _bracket(draws, rungs, chance, tracker)
    return tracker.end()


def _bracket(draws: Draws, rungs: tuple[int, ...], chance: random.Random, tracker: Tracker) -> None:
    landscape = draws.landscape
    points = [
        (_between(chance, landscape.lrs), _between(chance, landscape.levels))
        for _ in range(ETA ** (len(rungs) - 1))
    ]
    curves = {point: draws.training(*point).curve for point in points}
    for before, rung in itertools.pairwise((0, *rungs)):
        for point in points:
            tracker.trained(
                *point,
                observed=curves[point][rung - 1],
                length=rung / landscape.epochs,
                cost=(rung - before) / landscape.epochs,
            )
        # Sorting is stable: of equals the first goes on.
        points.sort(key=lambda point: -curves[point][rung - 1])
        points = points[: len(points) // ETA]


def _between(chance: random.Random, places: tuple[float, ...]) -> float:
    low, high = places[0], places[-1]
    return float(low * (high / low) ** chance.random())
