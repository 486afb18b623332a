"""Forgiveness: what is lost where lr and alpha, or lr and weight decay, are not quite right.

Around the best of a recorded landscape, and by one default for settings that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, Self

from fixnorm.evidence.experiment import DrawnExperiment, Exhibit
from fixnorm.evidence.experiments.fig4 import DECAYED_LRS, DECAYS, LRS
from fixnorm.evidence.grids import under_caps
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.trainings import Trainings
from fixnorm.training.bounded import Name, Percent, Positive
from fixnorm.training.checked import Part

__all__ = ["Forgiveness"]

SEEDS = 2
"""A default is chosen on the one and judged on the other, and the other way round."""
STEPS = 5
"""Of lr, alpha and weight decay, in the grids of one default: each is twice the one before."""
ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0)
Side = Literal["fixnorm", "auto", "weight-decay"]


class Cell(Part):
    """A point of a grid."""

    lr: Positive | None
    """None: it follows from the sphere."""
    level: Positive
    """alpha or λ."""
    scores: tuple[Percent | None, ...]
    """By seed; none where it diverged."""


class Grid(Part):
    """All of one side in one setting."""

    side: Side
    cells: tuple[Cell, ...]


class Setting(Part):
    """What was trained, by each side."""

    name: Name
    recipe: Name
    grids: tuple[Grid, ...]


class Forgiveness(DrawnExperiment):
    """Two recorded landscapes, and one default over many settings."""

    title: ClassVar = "Forgiveness: what a wrong number costs"
    of_scores: ClassVar = True

    landscapes: tuple[Setting, ...]
    settings: tuple[Setting, ...]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        landscapes, settings = trainings.both(
            lambda: trainings.each([partial(_recorded, trainings, each) for each in scale.fig4]),
            lambda: trainings.each([partial(_doubled, trainings, w) for w in scale.forgiveness]),
        )
        return cls(landscapes=tuple(landscapes), settings=tuple(settings))

    def show(self) -> Exhibit:
        raise NotImplementedError


# -- trainings -------------------------------------------------------------------------------------


def _recorded(trainings: Trainings, workload: Workload) -> Setting:
    """The grids of ``fixnorm reproduce landscapes``."""
    return _setting(
        workload,
        trainings.each(
            [
                partial(_capped, trainings, workload, "fixnorm", LRS, workload.space.alphas),
                partial(_decayed, trainings, workload, DECAYED_LRS, DECAYS),
            ]
        ),
    )


def _doubled(trainings: Trainings, workload: Workload) -> Setting:
    """The same lr for both, and as many of the second number; alpha alone with the rule's lr."""
    lowest, highest = workload.decay.lr[0], workload.decay.weight_decay[1]
    lrs = tuple(lowest * 2**k for k in range(STEPS))
    decays = tuple(highest / 2**k for k in reversed(range(STEPS)))
    return _setting(
        workload,
        trainings.each(
            [
                partial(_capped, trainings, workload, "fixnorm", lrs, ALPHAS),
                partial(_capped, trainings, workload, "auto", (None,), ALPHAS),
                partial(_decayed, trainings, workload, lrs, decays),
            ]
        ),
    )


def _setting(workload: Workload, grids: Sequence[Grid]) -> Setting:
    return Setting(name=workload.name, recipe=workload.recipe, grids=tuple(grids))


def _capped(
    trainings: Trainings,
    workload: Workload,
    side: Side,
    lrs: Sequence[float | None],
    alphas: Sequence[float],
) -> Grid:
    """Over lr and alpha; an lr that is none is the rule's."""

    def row(lr: float | None, seed: int) -> list[float | None]:
        rate = "auto" if lr is None else lr
        train = partial(workload.training, "fixnorm", seed=seed, lr=rate)
        found = under_caps(trainings, lambda alpha: train(alpha=alpha), alphas)
        return [found[alpha].found.score for alpha in alphas]

    places = [(seed, lr) for seed in range(SEEDS) for lr in lrs]
    rows = trainings.each([partial(row, lr, seed) for seed, lr in places])
    by_place = dict(zip(places, rows, strict=True))
    return Grid(
        side=side,
        cells=tuple(
            Cell(lr=lr, level=a, scores=tuple(by_place[s, lr][k] for s in range(SEEDS)))
            for lr in lrs
            for k, a in enumerate(alphas)
        ),
    )


def _decayed(
    trainings: Trainings, workload: Workload, lrs: Sequence[float], decays: Sequence[float]
) -> Grid:
    """Over lr and weight decay."""
    places = [(seed, lr, decay) for seed in range(SEEDS) for lr in lrs for decay in decays]
    found = trainings.all(
        workload.training("weight-decay", seed=seed, lr=lr, weight_decay=decay)
        for seed, lr, decay in places
    )
    scores = {place: one.score for place, one in zip(places, found, strict=True)}
    return Grid(
        side="weight-decay",
        cells=tuple(
            Cell(lr=lr, level=d, scores=tuple(scores[s, lr, d] for s in range(SEEDS)))
            for lr in lrs
            for d in decays
        ),
    )
