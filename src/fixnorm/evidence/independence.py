"""Are lr and alpha independent? By trainings with seeds that the grid has not seen.

A grid of few seeds says where to look. Algorithm 4 takes the best lr at the smallest alpha, l_0 at
a_0, and keeps it: what it ends with is l_0 with its best alpha. The best of the grid is at l*, a*.
Trained anew are both lr under each of these alphas, all by the same seeds:

    moved  =  [y(l_0, a_0) − y(l*, a_0)] − [y(l_0, a*) − y(l*, a*)]

is zero if what an lr is worth does not depend on alpha, and y(where it ends) − y(l*, a*) is what
tuning one after the other costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Self

from pydantic import model_validator

from fixnorm.evidence.experiment import Claim, Scores, Verdict, as_good, need, same_number
from fixnorm.evidence.grids import under_caps
from fixnorm.evidence.noise import Group
from fixnorm.evidence.panels import Row, dots
from fixnorm.evidence.searches import FRESH
from fixnorm.evidence.trainings import Training, Trainings
from fixnorm.report.drawing import Panel
from fixnorm.report.statistics import Mean, mean_of, paired
from fixnorm.report.style import SERIES
from fixnorm.report.tables import TextTable
from fixnorm.training.bounded import Name, Positive
from fixnorm.training.checked import Part

__all__ = ["Anew", "Place", "Way"]


class Place(NamedTuple):
    """Of a grid."""

    lr: float
    alpha: float


class Way(NamedTuple):
    """Where a grid sends Algorithm 4, without its short trainings, and where it should go."""

    first: Place
    """The best lr at the smallest alpha."""
    end: Place
    """The best alpha of that lr."""
    best: Place
    """Of all."""


class Spot(Part):
    """One place, trained by each seed."""

    lr: Positive
    alpha: Positive
    scores: Scores

    @property
    def place(self) -> Place:
        return Place(self.lr, self.alpha)


class Anew(Part):
    """The places of a way, and the others that its lr and alphas make."""

    name: Name
    metric: Name
    first: tuple[Positive, Positive]
    """lr and alpha, of :class:`Way`."""
    end: tuple[Positive, Positive]
    best: tuple[Positive, Positive]
    spots: tuple[Spot, ...]

    @model_validator(mode="after")
    def _all_there(self) -> Self:
        need(_places(self.way) == [spot.place for spot in self.spots], "spots should be of the way")
        same_number([len(spot.scores) for spot in self.spots], "spots should have the same seeds")
        return self

    @classmethod
    def train(
        cls,
        trainings: Trainings,
        train: Callable[..., Training],
        *,
        name: str,
        metric: str,
        way: Way,
        seeds: int,
    ) -> Self:
        """``train`` makes a training of ``lr``, ``alpha`` and ``seed``."""
        places = _places(way)
        alphas = sorted({place.alpha for place in places})
        parts = [
            partial(under_caps, trainings, partial(_training, train, lr, seed), alphas)
            for seed in range(FRESH, FRESH + seeds)
            for lr in dict.fromkeys(place.lr for place in places)
        ]
        found = iter(trainings.each(parts))
        scores: dict[Place, list[float]] = {place: [] for place in places}
        for _ in range(seeds):
            for lr in dict.fromkeys(place.lr for place in places):
                for alpha, capped in next(found).items():
                    scores[Place(lr, alpha)].append(capped.found.counted)
        spots = tuple(
            Spot(lr=place.lr, alpha=place.alpha, scores=tuple(values))
            for place, values in scores.items()
        )
        return cls(name=name, metric=metric, spots=spots, **way._asdict())

    @property
    def way(self) -> Way:
        return Way(Place(*self.first), Place(*self.end), Place(*self.best))

    @property
    def by_place(self) -> dict[Place, Scores]:
        return {spot.place: spot.scores for spot in self.spots}

    def groups(self) -> list[Group]:
        """All by the same seeds."""
        return [spot.scores for spot in self.spots]

    def moved(self) -> Mean:
        """By how much more the lr of the smallest alpha is worth there than at the best alpha."""
        (l_0, a_0), _, (l_best, a_best) = self.way
        y = self.by_place
        there = zip(y[Place(l_0, a_0)], y[Place(l_best, a_0)], strict=True)
        elsewhere = zip(y[Place(l_0, a_best)], y[Place(l_best, a_best)], strict=True)
        return paired([a - b for a, b in there], [a - b for a, b in elsewhere])

    def cost(self) -> Mean:
        """Of tuning one after the other: what it ends with, less the best."""
        return paired(self.by_place[self.way.end], self.by_place[self.way.best])

    def table(self) -> TextTable:
        lrs = list(dict.fromkeys(spot.lr for spot in self.spots))
        alphas = sorted({spot.alpha for spot in self.spots})
        notes = [
            f"{len(self.spots[0].scores)} seeds that the grid has not seen, the same for all"
            " (mean ± standard deviation).",
        ]
        if self.asks:
            notes.append(
                f"What lr {lrs[0]:g} is worth over lr {lrs[-1]:g}, at alpha {alphas[0]:g} less at"
                f" alpha {self.way.best.alpha:g}: {self.moved().interval()} % (95 %)"
            )
        return TextTable(
            f"{self.name}: trained anew",
            ("alpha", *(f"{alpha:g}" for alpha in alphas)),
            tuple(
                (f"lr {lr:g}", *(mean_of(self.by_place[Place(lr, a)]).spread() for a in alphas))
                for lr in lrs
            ),
            tuple(notes),
            words=1,
        )

    def panel(self) -> Panel:
        alphas = sorted({spot.alpha for spot in self.spots})
        colours = dict(zip(alphas, SERIES, strict=False))
        rows = [
            Row(f"lr {spot.lr:g}, alpha {spot.alpha:g}", spot.scores, colours[spot.alpha])
            for spot in self.spots
        ]
        return dots(f"{self.name}: trained anew", rows, x=self.metric)

    @property
    def asks(self) -> bool:
        """Whether the grid has left a question: another lr is best at another alpha."""
        way = self.way
        return way.first.lr != way.best.lr and way.first.alpha != way.best.alpha

    def claims(self) -> tuple[Claim, ...]:
        after = f"Tuned one after the other they are as good as together ({self.name})"
        if not self.asks:
            return (as_good(after, self.cost()),)
        moved = self.moved()
        verdict: Verdict = "does not hold" if moved.clear else "not contradicted"
        same = f"What an lr is worth does not depend on alpha, where the cap acts ({self.name})"
        (l_0, a_0), _, (l_best, a_best) = self.way
        told = (
            f"lr {l_0:g} over lr {l_best:g}, at alpha {a_0:g} less at {a_best:g}:"
            f" {moved.interval()} %"
        )
        return Claim(same, verdict, told), as_good(after, self.cost())


def _places(way: Way) -> list[Place]:
    """Both lr under each of the alphas, in order."""
    lrs = dict.fromkeys((way.first.lr, way.best.lr))
    alphas = sorted({place.alpha for place in way})
    return [Place(lr, alpha) for lr in lrs for alpha in alphas]


def _training(train: Callable[..., Training], lr: float, seed: int, alpha: float) -> Training:
    return train(lr=lr, seed=seed, alpha=alpha)
