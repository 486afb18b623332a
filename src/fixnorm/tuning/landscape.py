"""A recorded landscape: real trainings over a grid, on which any search is replayed in no time.

Between two learning rates of the grid the accuracy is interpolated, linearly in log lr, seed by
seed. A replay draws for each training the noise of one recorded seed, so that two searches with the
same draw see the same numbers at the same points.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fixnorm.tuning.plan import Advice, Outcome, Outcomes, SearchSpace, Slot, Trial

__all__ = ["Landscape", "Replay", "replay"]

Plan = Callable[[SearchSpace, Outcomes], Advice]


@dataclass(frozen=True)
class Landscape:
    """Accuracy and largest scale by (fraction, alpha, seed), over the learning rates."""

    name: str
    alphas: tuple[float, ...]
    seeds: tuple[int, ...]
    points: dict[tuple[float, float, int], tuple[tuple[float, Outcome], ...]]
    """Of each curve: (lr, outcome) with rising lr."""

    @classmethod
    def read(cls, file: Path) -> Landscape:
        """From the JSON file of a recording."""
        content = json.loads(file.read_text())
        curves: dict[tuple[float, float, int], dict[float, Outcome]] = {}
        for point in content["points"]:
            key = (point["fraction"], point["alpha"], point["seed"])
            outcome = Outcome(point["accuracy"], point["largest_scale"])
            curves.setdefault(key, {})[point["lr"]] = outcome
        rates = {lr for curve in curves.values() for lr in curve}
        whole = {key: curve for key, curve in curves.items() if curve.keys() == rates}
        seeds = {seed for _, _, seed in curves}
        complete = tuple(sorted(s for s in seeds if all((f, a, s) in whole for f, a, _ in curves)))
        if not complete:
            raise ValueError(f"{file} holds no seed with every point of its grid")
        return cls(
            name=content["name"],
            alphas=tuple(sorted({alpha for fraction, alpha, _ in curves if fraction == 1})),
            seeds=complete,
            points={key: tuple(sorted(curve.items())) for key, curve in whole.items()},
        )

    def outcome(self, slot: Slot, seed: int) -> Outcome:
        """Of one recorded seed, interpolated in lr."""
        curve = self.points[slot.fraction, slot.alpha, seed]
        for (low, before), (high, after) in itertools.pairwise(curve):
            if slot.lr <= high * (1 + 1e-9):
                share = (math.log(slot.lr) - math.log(low)) / (math.log(high) - math.log(low))
                share = min(max(share, 0.0), 1.0)
                return _between(before, after, share)
        return curve[-1][1]

    def mean(self, slot: Slot) -> float:
        """The accuracy that a training of the slot has on average."""
        values = [self.outcome(slot, seed).accuracy for seed in self.seeds]
        return math.fsum(values) / len(values)


@dataclass(frozen=True)
class Replay:
    """How a search ended on a landscape."""

    lr: float
    alpha: float
    accuracy: float
    """Of the answer, on average over the recorded seeds: not the lucky draw that won."""
    cost: float
    trainings: int


def replay(plan: Plan, space: SearchSpace, landscape: Landscape, *, draw: int) -> Replay:
    """Run a plan on recorded trainings; the draw decides which seed each training has."""
    outcomes: dict[Trial, Outcome] = {}
    cost, trainings = 0.0, 0
    while not (advice := plan(space, outcomes)).over:
        for trial, source in advice.free.items():
            outcomes[trial] = outcomes[source]
        for trial in advice.train:
            outcomes[trial] = landscape.outcome(trial.slot, _seed(landscape.seeds, trial, draw))
            cost += trial.slot.fraction
            trainings += 1
    assert advice.answer is not None
    best = advice.answer.slot
    full = Slot(best.round, best.index, best.lr, best.alpha, 1.0)
    return Replay(best.lr, best.alpha, landscape.mean(full), round(cost, 9), trainings)


def _seed(seeds: Sequence[int], trial: Trial, draw: int) -> int:
    """One seed for each lr and length: alphas that are one training must stay one."""
    key = f"{draw} {trial.slot.lr!r} {trial.slot.fraction!r} {trial.seed}"
    return random.Random(key).choice(seeds)


def _between(before: Outcome, after: Outcome, share: float) -> Outcome:
    accuracy = (1 - share) * before.accuracy + share * after.accuracy
    if before.largest_scale is None or after.largest_scale is None:
        return Outcome(accuracy)
    scale = (1 - share) * before.largest_scale + share * after.largest_scale
    return Outcome(accuracy, scale)
