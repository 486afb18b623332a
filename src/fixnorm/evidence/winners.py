"""Winners of searches, trained anew with seeds that no search has seen.

A search's own best score is the best of many and so too good.
"""

from __future__ import annotations

from typing import Literal

from fixnorm.evidence.experiment import NotNegative, Scores
from fixnorm.evidence.scales import Ranges, Scale, Workload
from fixnorm.evidence.searches import algorithm4, bayesian
from fixnorm.evidence.trainings import Trainings, Value
from fixnorm.groups import Method, Scope
from fixnorm.training.bounded import Fraction, Name, Percent, Positive
from fixnorm.training.checked import Part

__all__ = [
    "Scored",
    "Step",
    "Winner",
    "fresh_scores",
    "tuned_fixnorm",
    "tuned_weight_decay",
]

FRESH = 100
"""The first of the seeds that no search uses."""


class Scored(Part):
    """Numbers of a recipe, trained with fresh seeds."""

    lr: Positive
    second: NotNegative
    """alpha or λ."""
    cost: NotNegative
    scores: Scores


class Step(Part):
    """One training of a search."""

    round: Name
    lr: Positive
    second: Positive
    fraction: Fraction
    score: Percent | None
    free: bool


class Winner(Part):
    """Of a search."""

    kind: Literal["alpha", "weight_decay"]
    lr: Positive
    second: NotNegative
    """alpha or λ."""
    score: Percent
    """The one that made it the winner."""
    tried: tuple[Step, ...]
    cost: NotNegative
    """Of the search, in T_max."""
    scores: Scores
    """Of fresh seeds."""

    def numbers(self) -> str:
        """For people."""
        if self.kind == "alpha":
            return f"lr {self.lr:g}, alpha {self.second:g}"
        return f"lr {self.lr:.2g}, λ {self.second:.1e}"


def tuned_fixnorm(
    trainings: Trainings, workload: Workload, scale: Scale, *, seed: int, scope: Scope = "global"
) -> Winner:
    """Of Algorithm 4."""
    found = algorithm4(trainings, workload, seed=seed, scope=scope)
    other = None if scope == "global" else scope
    scores = fresh_scores(trainings, workload, "fixnorm", scale, **found.winner, scope=other)
    return Winner.model_validate({**found.to_dict(), "scores": scores})


def tuned_weight_decay(
    trainings: Trainings,
    workload: Workload,
    scale: Scale,
    *,
    seed: int,
    budget: int,
    optimizer: str | None = None,
    ranges: Ranges | None = None,
) -> Winner:
    """Of Bayesian optimisation of lr and λ."""
    found = bayesian(
        trainings, workload, seed=seed, budget=budget, optimizer=optimizer, ranges=ranges
    )
    numbers = {**found.winner, "optimizer": optimizer}
    scores = fresh_scores(trainings, workload, "weight-decay", scale, **numbers)
    return Winner.model_validate({**found.to_dict(), "scores": scores})


def fresh_scores(
    trainings: Trainings, workload: Workload, method: Method, scale: Scale, **numbers: Value
) -> tuple[float, ...]:
    """Of the recipe with these numbers, or as it stands, with fresh seeds; 0 if it diverged."""
    seeds = range(FRESH, FRESH + scale.seeds)
    asked = (workload.training(method, seed=seed, fraction=1.0, **numbers) for seed in seeds)
    return tuple(one.counted for one in trainings.all(asked))
