"""A setting: a recipe with its data, and where to look for its best numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fixnorm import recipes
from fixnorm.evidence.training import Training
from fixnorm.methods import MethodName
from fixnorm.training.recipe import Recipe, changed
from fixnorm.training.tasks import Metric, task_of
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.run import length_of

__all__ = ["Ranges", "Setting"]


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Of learning rate and weight decay; searched on a log scale."""

    lr: tuple[float, float]
    weight_decay: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all trainings of a comparison have in common."""

    name: str
    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    data: str | None
    space: SearchSpace = PAPER
    """Of lr and alpha."""
    decay: Ranges
    """Of lr and weight decay."""

    def training(
        self, method: MethodName, *, seed: int, fraction: float = 1.0, **numbers: Any
    ) -> Training:
        """One of its trainings; numbers that are none stay as the recipe has them."""
        base = self.recipe_for(method)
        given = {name: value for name, value in numbers.items() if value is not None}
        length = length_of(base, fraction)
        if length != base.length:
            given |= base.of_length(length)
        return Training(
            base=self.recipe,
            method=method,
            changes=tuple({**self.changes, **given, "seed": seed}.items()),
            data=self.data,
            cost=length / base.length,
        )

    def recipe_for(self, method: MethodName) -> Recipe:
        """The recipe of a method as it stands."""
        return changed(recipes.get(self.recipe, method), **self.changes)

    @property
    def metric(self) -> Metric:
        """What it is judged by."""
        return task_of(self.recipe_for("fixnorm")).metric
