"""Searches of an experiment: plans over lr and alpha, and Bayesian optimisation of lr and λ.

A search's own best score is the best of many and so too good: its winner is trained anew, with
seeds that no search has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import optuna

from fixnorm.evidence.experiment import NotNegative, Scores
from fixnorm.evidence.scales import Ranges, Scale, Workload
from fixnorm.evidence.trainings import Training, Trainings, Value
from fixnorm.methods import MethodName, Scope
from fixnorm.training.bounded import Fraction, Name, Percent, Positive
from fixnorm.training.checked import Part
from fixnorm.tuning.plan import PAPER, SearchSpace
from fixnorm.tuning.plans import DEFAULT, plan_of
from fixnorm.tuning.search import Ledger, Search
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import Result, StudyRecord, Trial, shown_lr

__all__ = [
    "Scored",
    "Searched",
    "Step",
    "Winner",
    "bayesian",
    "fresh_scores",
    "planned",
    "tuned_fixnorm",
    "tuned_weight_decay",
]

Kind = Literal["alpha", "weight_decay"]
Rate = Positive | Literal["auto"]
FRESH = 100
"""The first of the seeds that no search uses."""
_MOST = 10_000
"""Points of a sampler, which goes on for as long as somebody asks."""


class Step(Part):
    """One trial of a search."""

    round: Name
    lr: Rate
    second: Positive
    """alpha or λ."""
    fraction: Fraction
    score: Percent | None
    free: bool
    """Known without training."""


class Searched(Part):
    """A search that is over."""

    kind: Kind
    lr: Rate
    second: NotNegative
    """alpha or λ."""
    score: Percent
    """The one that made it the winner."""
    tried: tuple[Step, ...]
    cost: NotNegative
    """In T_max."""

    @property
    def winner(self) -> dict[str, Value]:
        """Its numbers, as fields of a recipe."""
        return {"lr": self.lr, self.kind: self.second}

    def numbers(self) -> str:
        """The winner's, for people."""
        if self.kind == "alpha":
            return f"lr {shown_lr(self.lr)}, alpha {self.second:g}"
        return f"lr {shown_lr(self.lr, '.2g')}, λ {self.second:.1e}"


class Winner(Searched):
    """A search with the scores of its winner, trained with fresh seeds."""

    scores: Scores


class Scored(Part):
    """A recipe's own lr and λ, trained with fresh seeds."""

    lr: Positive
    second: NotNegative
    """λ."""
    cost: NotNegative
    scores: Scores

    def numbers(self) -> str:
        """For people."""
        return f"lr {self.lr:g}, λ {self.second:g}"


def tuned_fixnorm(
    trainings: Trainings,
    workload: Workload,
    scale: Scale,
    *,
    seed: int,
    plan: str = DEFAULT,
    scope: Scope = "global",
) -> Winner:
    """The winner of a plan, trained anew."""
    found = planned(trainings, workload, seed=seed, plan=plan, scope=scope)
    numbers = {**found.winner, "scope": _changed(scope)}
    scores = fresh_scores(trainings, workload, "fixnorm", scale, **numbers)
    return Winner(**dict(found), scores=scores)


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
    """The winner of Bayesian optimisation, trained anew."""
    found = bayesian(
        trainings, workload, seed=seed, budget=budget, optimizer=optimizer, ranges=ranges
    )
    numbers = {**found.winner, "optimizer": optimizer}
    scores = fresh_scores(trainings, workload, "weight-decay", scale, **numbers)
    return Winner(**dict(found), scores=scores)


def fresh_scores(
    trainings: Trainings, workload: Workload, method: MethodName, scale: Scale, **numbers: Value
) -> tuple[float, ...]:
    """Of the recipe with these numbers, or as it stands, with fresh seeds; 0 if it diverged."""
    seeds = range(FRESH, FRESH + (workload.seeds or scale.seeds))
    asked = (workload.training(method, seed=seed, fraction=1.0, **numbers) for seed in seeds)
    return tuple(one.counted for one in trainings.all(asked))


def planned(
    trainings: Trainings,
    workload: Workload,
    *,
    seed: int,
    plan: str = DEFAULT,
    scope: Scope = "global",
) -> Searched:
    """A search for lr and alpha; slots that are known without training cost nothing.

    Plan auto trains each alpha from the start here, and counts it so: branches would cost less.
    """
    strategy = PlanStrategy(space=_seen_by(plan, workload.space), plan=plan)
    search = Search(strategy, Ledger(strategy.settings()))
    while trials := search.ask(strategy.trainings):
        asked = [
            workload.training(
                "fixnorm",
                seed=seed,
                fraction=trial.fraction,
                lr=trial.lr,
                alpha=trial.alpha,
                scope=_changed(scope),
            )
            for trial in trials
        ]
        for trial, found in zip(trials, trainings.all(asked), strict=True):
            search.tell(trial, _result(found.score, found.largest_scale))
    return _searched("alpha", workload, search.ledger.record())


def _seen_by(plan: str, space: SearchSpace) -> SearchSpace:
    """What the plan uses of a space; the rest as it is by default."""
    return replace(PAPER, **{name: getattr(space, name) for name in plan_of(plan).uses})


def _changed(scope: Scope) -> Scope | None:
    """What every recipe has is not said: a key depends on what is."""
    return None if scope == "global" else scope


def bayesian(
    trainings: Trainings,
    workload: Workload,
    *,
    seed: int,
    budget: int,
    optimizer: str | None = None,
    ranges: Ranges | None = None,
    first: tuple[float, float] | None = None,
) -> Searched:
    """Optuna's Gaussian process over lr and weight decay, one training after another.

    ``first``: lr and weight decay to begin with.
    """
    search = trainings.kept(
        ("bayesian", workload.name, optimizer, seed),
        partial(_SamplerSearch, ranges or workload.decay, seed, first, dry=trainings.dry),
    )

    def training(lr: float, weight_decay: float) -> Training:
        return workload.training(
            "weight-decay", seed=seed, lr=lr, weight_decay=weight_decay, optimizer=optimizer
        )

    record = search.go(budget, lambda lr, decay: trainings.one(training(lr, decay)).score)
    return _searched("weight_decay", workload, record)


class _SamplerSearch:
    """What it asked for and was told is not asked again by the next attempt."""

    def __init__(
        self, ranges: Ranges, seed: int, first: tuple[float, float] | None, *, dry: bool
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        strategy = SamplerStrategy(
            lr_min=ranges.lr[0],
            lr_max=ranges.lr[1],
            weight_decay_min=ranges.weight_decay[0],
            weight_decay_max=ranges.weight_decay[1],
            budget=_MOST,
            sampler_name="random" if dry else "gp",
            seed=seed,
        )
        study = optuna.create_study(direction="maximize", sampler=strategy.sampler())
        ledger = Study.around(
            study, settings=strategy.settings(), distributions=strategy.distributions()
        )
        if first is not None:
            study.enqueue_trial({"lr": first[0], "weight_decay": first[1]})
        self._search = Search(strategy, ledger)
        self._tried: list[Trial] = []

    def go(self, budget: int, train: Callable[[float, float], float | None]) -> StudyRecord:
        """So many trainings; ``train`` may leave by :class:`NotYet` and is asked again later."""
        while len(self._tried) < budget:
            (asked,) = self._search.running.values() or self._search.ask()
            assert asked.weight_decay is not None
            # As a person would write them: a command line must give the very same training.
            lr, decay = (float(f"{value:.4g}") for value in (asked.rate, asked.weight_decay))
            told = self._search.tell(asked, _result(train(lr, decay)))
            self._tried.append(replace(told, lr=lr, weight_decay=decay))
        return replace(self._search.ledger.record(), trials=tuple(self._tried[:budget]))


def _result(score: float | None, largest_scale: float | None = None) -> Result:
    if score is None:
        return Result(state="diverged")
    return Result(accuracy=score, largest_scale=largest_scale)


def _searched(kind: Kind, workload: Workload, record: StudyRecord) -> Searched:
    best = record.answer()
    if best is None or best.accuracy is None:
        raise ValueError(f"every training of {workload.name} diverged")
    tried = tuple(
        Step(
            round=str(trial.round),
            lr=trial.lr,
            second=getattr(trial, kind),
            fraction=trial.fraction,
            score=trial.accuracy,
            free=trial.state == "free",
        )
        for trial in record.trials
    )
    second = getattr(best, kind)
    return Searched(
        kind=kind, lr=best.lr, second=second, score=best.accuracy, tried=tried, cost=record.cost
    )
