"""On which landscape each strategy can run, and what each answers on its way."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

from fixnorm.evidence.landscapes import AXES, Landscape, NoisyLandscape
from fixnorm.evidence.replay.options import HALVING, strategies
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.plans import PLANS, SAMPLERS
from fixnorm.tuning.search import Ledger, Search, run_here
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import Result, Trial

__all__ = ["Entry", "Step", "Trace", "entries_of", "run"]


@dataclass(frozen=True)
class Entry:
    """A strategy on a landscape."""

    strategy: str
    landscape: Landscape

    @property
    def title(self) -> str:
        return f"{strategies()[self.strategy]}, {AXES[self.landscape.axis]}"


def entries_of(
    landscapes: Sequence[Landscape], strategies: Sequence[str], *, both: bool = False
) -> list[Entry]:
    """Who runs where, of one workload.

    Plans run on lr × alpha. The others run on lr × weight decay, which is what they tune in
    practice, and on lr × alpha where that is all there is, or where ``both`` are wanted.
    """
    by_axis = {landscape.axis: landscape for landscape in landscapes}
    entries = []
    for name in strategies:
        axes = ["alpha"] if name in PLANS else ["weight_decay", "alpha"]
        found = [by_axis[axis] for axis in axes if axis in by_axis]
        entries += [Entry(name, landscape) for landscape in (found if both else found[:1])]
    return entries


# -- the answer so far -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """From this cost on the answer is this point."""

    cost: float
    """Spent until then, in T_max."""
    lr: float
    level: float
    observed: float
    """What its training gave: the noise that won is in it."""
    accuracy: float
    """What the landscape has there on average: the truth."""


@dataclass(frozen=True)
class Trace:
    """One replay: what the search would answer at every moment, judged by the truth."""

    steps: tuple[Step, ...]
    cost: float
    """At its end, in T_max."""
    trainings: int

    @property
    def end(self) -> Step:
        return self.steps[-1]

    def at(self, cost: float) -> Step | None:
        """The answer when this much was spent; none before the first training has ended."""
        place = bisect_right(self.steps, cost + 1e-9, key=lambda step: step.cost)
        return self.steps[place - 1] if place else None


class Tracker:
    """The answer so far: the best training among the longest, the first of equals.

    Short trainings have lower accuracies by nature, so the first of a greater length takes over,
    as in ``fixnorm tune``. The truth of the answer may fall when a lucky training takes over;
    what was observed never does among trainings of one length.
    """

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self._steps: list[Step] = []
        self._length = 0.0
        self._cost = 0.0
        self._trainings = 0

    def trained(
        self, lr: float, level: float, *, observed: float, length: float, cost: float
    ) -> None:
        """A training is ``length`` long now, by ``cost`` more; less where it was continued."""
        self._cost = round(self._cost + cost, 9)
        self._trainings += cost == length
        longer = length > self._length
        if longer or (length == self._length and observed > self._steps[-1].observed):
            self._length = length
            self._answer(lr, level, observed)

    def end(self, answer: tuple[float, float] | None = None) -> Trace:
        """The trace; with the answer (lr, level) where the strategy has its own word on it."""
        last = self._steps[-1]
        if answer is not None and answer != (last.lr, last.level):
            self._answer(*answer, last.observed)
        return Trace(tuple(self._steps), self._cost, self._trainings)

    def _answer(self, lr: float, level: float, observed: float) -> None:
        accuracy = self._landscape.mean(lr, level)
        self._steps.append(Step(self._cost, lr, level, observed, accuracy))


# -- replays ---------------------------------------------------------------------------------------


def run(entry: Entry, *, replay: int, seed: int, budget: int, noise: str) -> Trace:
    """One replay; the same arguments give the same trace, whatever else is replayed.

    Replays of one number have the same noise for all strategies: at the same point of a landscape
    they see the same training.
    """
    world = NoisyLandscape(entry.landscape, f"{seed} {replay}", noise)
    own = random.Random(f"{seed} {replay} {entry.strategy}").getrandbits(31)
    if entry.strategy in PLANS:
        return run_plan(entry.strategy, world)
    if entry.strategy in SAMPLERS:
        return run_sampler(entry.strategy, world, budget=budget, seed=own)
    if entry.strategy == HALVING:
        return run_halving(world, budget=budget, seed=own)
    raise ValueError(f"unknown strategy {entry.strategy!r}: known are {', '.join(strategies())}")


def space_of(landscape: Landscape) -> SearchSpace:
    """A plan's input by the extent of the recording; of both recorded here it is the paper's."""
    return SearchSpace(
        lr_min=landscape.lrs[0],
        lr_max=landscape.lrs[-1],
        fractions=landscape.fractions,
        alphas=landscape.levels,
    )


def run_plan(plan: str, world: NoisyLandscape, *, space: SearchSpace | None = None) -> Trace:
    """A plan, by name, to its end."""
    strategy = PlanStrategy(space=space or space_of(world.landscape), plan=plan)
    tracker = Tracker(world.landscape)
    answer = _searched(Search(strategy, Ledger(strategy.settings())), world, tracker)
    assert answer is not None
    assert answer.alpha is not None
    return tracker.end((answer.rate, answer.alpha))


def run_sampler(name: str, world: NoisyLandscape, *, budget: int, seed: int) -> Trace:
    """``budget`` trainings of full length; both ranges on a log scale, as wide as the recording."""
    landscape, tracker = world.landscape, Tracker(world.landscape)
    ranges: dict[str, BaseDistribution] = {
        "lr": FloatDistribution(landscape.lrs[0], landscape.lrs[-1], log=True),
        landscape.axis: FloatDistribution(landscape.levels[0], landscape.levels[-1], log=True),
    }
    strategy = SamplerStrategy(sampler_name=name, seed=seed, budget=budget)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # without a line for each study and trial
    study = optuna.create_study(direction="maximize", sampler=strategy.sampler())
    ledger = Study.around(study, settings=strategy.settings(), distributions=ranges)
    _searched(Search(strategy, ledger), world, tracker)
    return tracker.end()


def _searched(search: Search, world: NoisyLandscape, tracker: Tracker) -> Trial | None:
    def train(trial: Trial) -> Result:
        level, length = getattr(trial, world.landscape.axis), trial.fraction
        got = world.training(trial.rate, level, fraction=length, seed=trial.seed)
        tracker.trained(trial.rate, level, observed=got.accuracy, length=length, cost=length)
        return Result(accuracy=got.accuracy, largest_scale=got.largest_scale)

    return run_here(search, train)


# -- successive halving ----------------------------------------------------------------------------

ETA = 2
"""One of so many goes on."""
RUNGS = 3
"""Lengths: T_max/4, T_max/2, T_max."""


def run_halving(world: NoisyLandscape, *, budget: float, seed: int) -> Trace:
    """Successive halving (Jamieson and Talwalkar, 2016) on curves of trainings of full length.

    A bracket trains four points for a quarter of T_max; the better half goes on to T_max/2, the
    best to the end. Brackets of new points, evenly on a log scale, follow one another as long as
    the budget (in T_max) holds a whole one. A training that goes on is not begun again: its cost is
    that of the epochs added. All trainings have the schedule of full length; where one is stopped
    early its lr is still high, so its accuracy is not that of a short training with a schedule of
    its own.
    """
    landscape = world.landscape
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
        _bracket(world, rungs, chance, tracker)
    return tracker.end()


def rungs_of(epochs: int) -> tuple[int, ...]:
    """The epochs after which trainings are compared; the last is the end."""
    rungs = [max(epochs // ETA**k, 1) for k in reversed(range(RUNGS))]
    return tuple(sorted(set(rungs)))


def bracket_epochs(rungs: tuple[int, ...]) -> int:
    """What a bracket costs: Σ_k η^(K−1−k)·(r_k − r_{k−1}), the last rung with one training."""
    added = [after - before for before, after in itertools.pairwise((0, *rungs))]
    return sum(ETA ** (len(rungs) - 1 - k) * epochs for k, epochs in enumerate(added))


def _bracket(
    world: NoisyLandscape, rungs: tuple[int, ...], chance: random.Random, tracker: Tracker
) -> None:
    landscape = world.landscape
    points = [
        (_between(chance, landscape.lrs), _between(chance, landscape.levels))
        for _ in range(ETA ** (len(rungs) - 1))
    ]
    curves = {point: world.training(*point).curve for point in points}
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
