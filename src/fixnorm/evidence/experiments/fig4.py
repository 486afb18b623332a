"""Figure 4: accuracy over learning rates and alphas; is the best of one independent of the other?

And the recordings that ``fixnorm replay`` runs searches on: over lr and alpha, and over lr and
weight decay.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Self

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from pydantic import model_validator

from fixnorm.evidence.experiment import (
    NEAR,
    Claim,
    DrawnExperiment,
    Exhibit,
    Experiment,
    Verdict,
    grouped,
    need,
)
from fixnorm.evidence.grids import under_caps
from fixnorm.evidence.independence import Anew, Place, Way
from fixnorm.evidence.landscapes import Point
from fixnorm.evidence.noise import Group, near_the_best
from fixnorm.evidence.panels import SEEDS_AS_DOTS
from fixnorm.evidence.scales import Scale, Workload
from fixnorm.evidence.trainings import Found, Trainings
from fixnorm.report.drawing import Drawing, Panel
from fixnorm.report.style import INK, PAPER, RAMP, dress, write
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Loose, Name, Percent
from fixnorm.training.checked import Part
from fixnorm.tuning.plan import PAPER as SPACE

__all__ = ["Fig4", "Recordings"]

LRS = (0.2, 0.5, 0.8, 1.1, 1.4, 2.0, 2.6, 3.2)
DECAYED_LRS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.2, 1.6, 3.2)
DECAYS = (1e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
SHORT = 0.2
SEEDS = 2
SHADES = 8.0
"""Percent of accuracy that the colours cover: below the best by more is all one colour."""


class GridPoint(Point):
    """A training of a grid."""

    accuracy: Percent | None
    mcbr_val: Loose = None
    seconds: Loose = None
    free: bool = False
    """Known without training: that of a greater alpha whose cap was never met."""

    @property
    def whole(self) -> bool:
        """Whether the heat map shows it."""
        return self.fraction == 1 and self.alpha is not None

    @property
    def place(self) -> tuple[float, float]:
        """lr and alpha of one that is :attr:`whole`."""
        assert self.alpha is not None
        return self.lr, self.alpha


class Grid(Part):
    """All trainings of a workload; a grid over weight decay has no point for the heat map."""

    name: Name
    method: Name = ""
    recipe: dict[str, object] | None = None
    points: tuple[GridPoint, ...]

    @model_validator(mode="after")
    def _whole_grid(self) -> Self:
        cells = {p.place for p in self.points if p.whole}
        wanted = len({lr for lr, _ in cells}) * len({alpha for _, alpha in cells})
        need(len(cells) == wanted, "points should have every alpha at every lr")
        return self


class Recordings(Experiment):
    """Both grids of each workload, with the curve of each training."""

    title: ClassVar = "Recordings for fixnorm replay"
    of_scores: ClassVar = True

    landscapes: tuple[Grid, ...]

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        kinds = (_alpha_grid, _decay_grid)
        parts = [partial(grid, trainings, each) for each in scale.fig4 for grid in kinds]
        return cls(landscapes=tuple(trainings.each(parts)))


class Fig4(DrawnExperiment):
    """The grid of lr and alpha of each workload; the curves are with the recordings."""

    title: ClassVar = "Figure 4: are lr and alpha independent?"
    of_scores: ClassVar = True

    landscapes: tuple[Grid, ...]
    anew: tuple[Anew, ...] = ()
    """Of each landscape the places that matter, where they were trained again."""

    @classmethod
    def train(cls, trainings: Trainings, scale: Scale) -> Self:
        parts = [partial(_alpha_grid, trainings, each, curves=False) for each in scale.fig4]
        grids = trainings.each(parts)
        again = [
            partial(_anew, trainings, grid, workload)
            for grid, workload in zip(grids, scale.fig4_anew, strict=False)
        ]
        return cls(landscapes=tuple(grids), anew=tuple(trainings.each(again)))

    @model_validator(mode="after")
    def _something_to_show(self) -> Self:
        shown = any(p.whole for landscape in self.landscapes for p in landscape.points)
        need(shown, "landscapes has no training of full length over alpha")
        return self

    def show(self) -> Exhibit:
        """A heat map for each workload, and the best of one number at each value of the other."""
        maps = [_HeatMap(grid.name, grid.points) for grid in self.landscapes]
        maps = [one for one in maps if one.means]
        drawing = Drawing(
            "fig4",
            "Figure 4",
            "Mean accuracy (%) over the seeds. Bold: the best lr of each alpha. The frame is the"
            " best of all.",
            tuple(one.panel() for one in maps),
            columns=1 if len(maps) == 1 else 2,
        )
        tables = [one.table() for one in maps] + [one.table() for one in self.anew]
        claims = [one.claim() for one in maps[len(self.anew) :]]
        claims += [claim for one in self.anew for claim in one.claims()]
        drawings = [drawing]
        if self.anew:
            panels = tuple(one.panel() for one in self.anew)
            drawings.append(Drawing("fig4-anew", "Figure 4, trained anew", SEEDS_AS_DOTS, panels))
        return Exhibit(tuple(drawings), tuple(tables), tuple(claims))

    def repeats(self) -> dict[str, list[Group]]:
        grids = {grid.name: near_the_best(_groups(grid)) for grid in self.landscapes}
        return grids | {f"{one.name}, anew": one.groups() for one in self.anew}


# -- trainings -------------------------------------------------------------------------------------


def _alpha_grid(trainings: Trainings, workload: Workload, *, curves: bool = True) -> Grid:
    """All points of lr and alpha, and the short trainings of the smallest alpha."""
    parts = [
        partial(_alphas_of, trainings, workload, lr, seed, curves=curves)
        for seed in range(SEEDS)
        for lr in LRS
    ]
    points = tuple(point for row in trainings.each(parts) for point in row)
    recipe = workload.recipe_for("fixnorm").to_dict()
    return Grid(name=workload.recipe, method="fixnorm", recipe=recipe, points=points)


def _anew(trainings: Trainings, grid: Grid, workload: Workload) -> Anew:
    """The places that a grid finds worth a closer look."""
    grid_map = _HeatMap(grid.name, grid.points)
    return Anew.train(
        trainings,
        partial(workload.training, "fixnorm"),
        name=grid.name,
        metric=workload.metric.label,
        way=grid_map.longest_way() if trainings.dry else grid_map.way(),
        seeds=workload.seeds or 1,
    )


def _alphas_of(
    trainings: Trainings, workload: Workload, lr: float, seed: int, *, curves: bool
) -> list[GridPoint]:
    """One lr of the grid, beside it the short training of the smallest alpha."""
    alphas = SPACE.alphas
    train = partial(workload.training, "fixnorm", seed=seed, lr=lr)
    short, capped = trainings.both(
        lambda: trainings.one(train(fraction=SHORT, alpha=alphas[0])),
        lambda: under_caps(trainings, lambda alpha: train(alpha=alpha), alphas),
    )
    point = partial(_point, curves=curves, lr=lr, seed=seed)
    return [
        point(short, alpha=alphas[0], fraction=SHORT, free=False),
        *(
            point(capped[alpha].found, alpha=alpha, fraction=1.0, free=capped[alpha].free)
            for alpha in reversed(alphas)
        ),
    ]


def _decay_grid(trainings: Trainings, workload: Workload) -> Grid:
    """All points of lr and weight decay."""
    places = [(seed, lr, decay) for seed in range(SEEDS) for lr in DECAYED_LRS for decay in DECAYS]
    found = trainings.all(
        workload.training("weight-decay", seed=seed, lr=lr, weight_decay=decay)
        for seed, lr, decay in places
    )
    points = [
        _point(one, curves=True, lr=lr, seed=seed, weight_decay=decay, fraction=1.0)
        for (seed, lr, decay), one in zip(places, found, strict=True)
    ]
    recipe = workload.recipe_for("weight-decay").to_dict()
    return Grid(name=workload.recipe, method="weight-decay", recipe=recipe, points=tuple(points))


def _groups(grid: Grid) -> list[Group]:
    whole = sorted((point for point in grid.points if point.whole), key=lambda point: point.seed)
    cells = grouped(whole, lambda point: point.place).values()
    return [[point.accuracy or 0.0 for point in cell] for cell in cells]


def _point(found: Found, *, curves: bool, **place: float) -> GridPoint:
    measured: dict[str, object] = {
        "accuracy": found.score,
        "largest_scale": found.largest_scale,
        "mcbr_val": found.mcbr_val,
        "seconds": found.seconds,
    }
    curve = {"curve": found.curve.get("score", ())} if curves else {}
    return GridPoint.model_validate(place | measured | curve)


# -- what is shown ---------------------------------------------------------------------------------


class _HeatMap:
    """Mean accuracies over lr and alpha."""

    def __init__(self, name: str, points: Sequence[GridPoint]) -> None:
        self.name = name
        self.points = [point for point in points if point.whole]
        self.seeds = len({point.seed for point in points})
        cells = grouped(self.points, lambda point: point.place)
        self.means = {
            place: statistics.fmean(point.accuracy or 0.0 for point in cell)
            for place, cell in cells.items()
        }
        self.lrs = sorted({lr for lr, _ in self.means})
        self.alphas = sorted({alpha for _, alpha in self.means})

    def best(self) -> tuple[float, float]:
        """lr and alpha; of equals that of the smaller alpha, then of the lower lr."""
        return max(
            ((lr, alpha) for alpha in self.alphas for lr in self.lrs), key=self.means.__getitem__
        )

    def best_lr(self, alpha: float) -> float:
        """The lower of equals."""
        return max(self.lrs, key=lambda lr: self.means[lr, alpha])

    def best_alpha(self, lr: float) -> float:
        """The smaller of equals."""
        return max(self.alphas, key=lambda alpha: self.means[lr, alpha])

    def way(self) -> Way:
        """Algorithm 4's way through the grid, without its noise, and the best of the grid."""
        first = Place(self.best_lr(self.alphas[0]), self.alphas[0])
        end = Place(first.lr, self.best_alpha(first.lr))
        return Way(first, end, Place(*self.best()))

    def longest_way(self) -> Way:
        """One that takes the most trainings."""
        (low, *_, high), (first, middle, *_, last) = self.lrs, self.alphas
        return Way(Place(low, first), Place(low, middle), Place(high, last))

    def noise(self) -> float:
        """The standard error of a cell's mean, pooled over the grid."""
        seeds = len({point.seed for point in self.points})
        if seeds < 2:
            return 0.0
        squares = [((p.accuracy or 0.0) - self.means[p.place]) ** 2 for p in self.points]
        return math.sqrt(sum(squares) / (len(squares) * (1 - 1 / seeds)) / seeds)

    def panel(self) -> Panel:
        title = f"{self.name}: accuracy over lr and alpha"
        draw = partial(self._draw, title=title)
        return Panel(title, draw, width=400, height=250, left=40, right=12)

    def _draw(self, ax: Axes, *, title: str) -> None:
        means, lrs, alphas, best = self.means, self.lrs, self.alphas, self.best()
        ax.pcolormesh(
            range(len(lrs) + 1),
            range(len(alphas) + 1),
            [[means[lr, alpha] for lr in lrs] for alpha in alphas],
            cmap=RAMP,
            norm=Normalize(means[best] - SHADES, means[best]),
            edgecolor=PAPER,
            lw=1,
        )
        for y, alpha in enumerate(alphas):
            top = self.best_lr(alpha)
            for x, lr in enumerate(lrs):
                text = f"{means[lr, alpha]:.1f}"
                write(ax, text, (x + 0.5, y + 0.5), colour="#ffffff", bold=lr == top)
        x, y = lrs.index(best[0]), alphas.index(best[1])
        ax.plot([x, x + 1, x + 1, x, x], [y, y, y + 1, y + 1, y], color=INK, lw=1.6, clip_on=False)
        dress(ax, title=title, x="learning rate", y="alpha")
        ax.grid(visible=False)
        ax.set_xticks([k + 0.5 for k in range(len(lrs))], [f"{lr:g}" for lr in lrs])
        ax.set_yticks([k + 0.5 for k in range(len(alphas))], [f"{alpha:g}" for alpha in alphas])

    def table(self) -> TextTable:
        means, alphas = self.means, self.alphas
        lrs = {alpha: self.best_lr(alpha) for alpha in alphas}
        first = lrs[alphas[0]]
        best = ", ".join(f"{self.best_alpha(lr):g} at lr {lr:g}" for lr in self.lrs)
        return TextTable(
            f"{self.name}: the best lr of each alpha",
            ("alpha", *(f"{alpha:g}" for alpha in alphas)),
            (
                ("best lr", *(f"{lr:g}" for lr in lrs.values())),
                ("its accuracy", *(f"{means[lr, alpha]:.2f}" for alpha, lr in lrs.items())),
                (f"at lr {first:g}", *(f"{means[first, alpha]:.2f}" for alpha in alphas)),
            ),
            (f"Best alpha of each lr: {best}.", f"Means of {self.seeds} seeds."),
            words=1,
        )

    def claim(self) -> Claim:
        """The end of the way against the best of the grid."""
        (_, smallest), (lr, alpha), (top_lr, top_alpha) = self.way()
        found, best, noise = self.means[lr, alpha], self.means[top_lr, top_alpha], self.noise()
        loss = best - found
        reach = 2 * math.sqrt(2) * noise  # two standard errors of a difference of two means
        verdict: Verdict = "holds" if loss + reach <= NEAR else "not contradicted"
        return Claim(
            f"lr and alpha can be tuned one after the other ({self.name})",
            "does not hold" if loss > reach else verdict,
            f"lr {lr:g} is best at alpha {smallest:g}; with its best alpha, {alpha:g}, it has"
            f" {found:.2f} %; the best of all {best:.2f} % (lr {top_lr:g}, alpha {top_alpha:g})."
            f" Lost: {loss:.2f} %; the standard error of a mean is {noise:.2f} %",
        )
