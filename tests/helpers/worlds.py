"""Experiments whose trainings are functions of their recipes, over at once."""

from __future__ import annotations

import math
from typing import Any

from fixnorm.evidence.scales import Ranges, Workload
from fixnorm.evidence.trainings import Found, Training, Trainings

WORKLOAD = Workload(
    name="digits",
    recipe="digits",
    data=None,
    decay=Ranges(lr=(0.1, 3.2), weight_decay=(1e-5, 1e-2)),
)


def found(score: float | None, largest_scale: float | None = None) -> Found:
    return Found(
        score=score,
        largest_scale=largest_scale,
        mcbr_train=None,
        mcbr_val=None,
        seconds=1.0,
        steps=10,
        device="",
        commits=(),
        curve={},
    )


class World:
    """Trainings that are over in the order in which they were asked for, one or many at a time."""

    def __init__(self, value: Any, *, at_a_time: int = 1) -> None:
        self.value, self.at_a_time = value, at_a_time
        self.done: dict[Training, Found] = {}
        self.most_at_once = 0
        self.used: set[Training] = set()

    def run(self, experiment: Any) -> Any:
        trainings = Trainings(self.done.get)
        for _ in range(1000):
            outcome = trainings.attempt(experiment)
            if outcome is not None:
                self.used = set(trainings.used)
                return outcome
            self.most_at_once = max(self.most_at_once, len(trainings.missing))
            for training in list(trainings.missing)[: self.at_a_time]:
                self.done[training] = self.value(training)
        raise AssertionError("it does not end")


def hill(training: Training) -> Found:
    """Best at lr 0.8; g reaches 3√C, so that alphas 4 and above are one training."""
    recipe = training.recipe
    assert recipe.alpha is not None
    score = 90 - 10 * abs(math.log(recipe.lr / 0.8)) - (0 if recipe.alpha >= 2 else 2)
    return found(score, min(3.0, recipe.alpha))
