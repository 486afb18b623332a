"""Forgiveness: what is lost where lr and alpha, or lr and weight decay, are not quite right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from fixnorm.evidence.experiment import NEAR, DrawnExperiment, Exhibit, need, same_number
from fixnorm.evidence.experiments.fig4 import DECAYED_LRS, DECAYS, LRS
from fixnorm.evidence.forgiveness import centred_view, default_view
from fixnorm.evidence.forgiveness.cells import NAMES, SEEDS, Cell, Grid, Recording, Setting, Side
from fixnorm.evidence.grids import under_caps
from fixnorm.evidence.noise import Group
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.trainings import Trainings
from fixnorm.report.drawing import Drawing

__all__ = ["Forgiveness"]

STEPS = 5
"""Of lr, alpha and weight decay, in the grids of one default: each is twice the one before."""
ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0)


class Forgiveness(DrawnExperiment):
    """Two recorded landscapes, and one default over many settings."""

    title: ClassVar = "Forgiveness: what a wrong number costs"
    of_scores: ClassVar = True

    landscapes: Annotated[tuple[Recording, ...], Field(min_length=1)]
    settings: Annotated[tuple[Setting, ...], Field(min_length=2)]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        landscapes, settings = trainings.both(
            lambda: trainings.each([partial(_recorded, trainings, each) for each in scale.fig4]),
            lambda: trainings.each([partial(_doubled, trainings, w) for w in scale.forgiveness]),
        )
        return cls(landscapes=tuple(landscapes), settings=tuple(settings))

    @model_validator(mode="after")
    def _same_places(self) -> Self:
        for setting in self.settings:
            need(setting.sides == tuple(NAMES), f"grids should be of {', '.join(NAMES)}")
        for side in NAMES:
            places = {tuple(setting.table[side]) for setting in self.settings}
            same_number([len(places), 1], f"cells of {side} should be the same in all settings")
        return self

    def show(self) -> Exhibit:
        maps = Drawing(
            "forgiveness",
            "What is lost around the best",
            "Regret (%) to the best of both methods, over factors of each method's own best"
            " numbers, as far as both were recorded on both sides; means of"
            f" {SEEDS} seeds, interpolated. The numbers stand where trainings were recorded, the"
            f" dark line is at {NEAR:g} %.",
            tuple(panel for each in self.landscapes for panel in centred_view.maps(each)),
        )
        default = default_view.View(self.settings)
        return Exhibit(
            (maps, default.drawing()),
            (*map(centred_view.table, self.landscapes), *default.tables()),
            (*map(centred_view.claim, self.landscapes), *default.claims()),
        )

    def repeats(self) -> dict[str, list[Group]]:
        """The landscapes' settings have the names of their recipes, the others' their own."""
        named: dict[str, Setting] = {recording.recipe: recording for recording in self.landscapes}
        named |= {setting.name: setting for setting in self.settings}
        return {name: setting.near_the_best() for name, setting in named.items()}


# -- trainings -------------------------------------------------------------------------------------


def _recorded(trainings: Trainings, workload: Workload) -> Recording:
    """The grids of ``fixnorm reproduce landscapes``."""
    grids = [
        partial(_capped, trainings, workload, "fixnorm", LRS, workload.space.alphas),
        partial(_decayed, trainings, workload, DECAYED_LRS, DECAYS),
    ]
    return Recording(name=workload.name, recipe=workload.recipe, grids=tuple(trainings.each(grids)))


def _doubled(trainings: Trainings, workload: Workload) -> Setting:
    """The same lr for both, and as many of the second number; alpha alone with the rule's lr."""
    lowest, highest = workload.decay.lr[0], workload.decay.weight_decay[1]
    lrs = tuple(lowest * 2**k for k in range(STEPS))
    decays = tuple(highest / 2**k for k in reversed(range(STEPS)))
    grids = [
        partial(_capped, trainings, workload, "fixnorm", lrs, ALPHAS),
        partial(_capped, trainings, workload, "auto", (None,), ALPHAS),
        partial(_decayed, trainings, workload, lrs, decays),
    ]
    return Setting(name=workload.name, recipe=workload.recipe, grids=tuple(trainings.each(grids)))


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
            Cell(lr=lr, level=a, scores=(by_place[0, lr][k], by_place[1, lr][k]))
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
            Cell(lr=lr, level=d, scores=(scores[0, lr, d], scores[1, lr, d]))
            for lr in lrs
            for d in decays
        ),
    )
