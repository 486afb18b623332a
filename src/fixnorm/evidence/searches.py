"""Searches as part of an experiment: Algorithm 4, and Bayesian optimisation of lr and λ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

from fixnorm.evidence.scales import Ranges, Workload
from fixnorm.evidence.trainings import Training, Trainings
from fixnorm.groups import Scope
from fixnorm.tuning.plan import Outcome, Trial, paper
from fixnorm.tuning.strategies import SamplerStrategy

__all__ = ["Searched", "Tried", "algorithm4", "bayesian"]

Kind = Literal["alpha", "weight_decay"]


@dataclass(frozen=True)
class Tried:
    """One step of a search."""

    round: str
    lr: float
    second: float
    """alpha or λ."""
    fraction: float
    score: float | None
    free: bool
    """Known without training."""

    @property
    def cost(self) -> float:
        """In T_max."""
        return 0.0 if self.free else self.fraction


@dataclass(frozen=True)
class Searched:
    """A search that is over."""

    kind: Kind
    lr: float
    second: float
    score: float
    """The one that made it the winner; a new training of the same numbers is lower on average."""
    tried: tuple[Tried, ...]

    @property
    def cost(self) -> float:
        """In T_max."""
        return round(sum(step.cost for step in self.tried), 9)

    @property
    def winner(self) -> dict[str, float]:
        """Its numbers, as fields of a recipe."""
        return {"lr": self.lr, self.kind: self.second}

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "cost": self.cost, "tried": tuple(map(asdict, self.tried))}


def algorithm4(
    trainings: Trainings, workload: Workload, *, seed: int, scope: Scope = "global"
) -> Searched:
    """FixNorm's own search; slots that are known without training cost nothing."""
    space, tried = workload.space, list[Tried]()
    outcomes: dict[Trial, Outcome] = {}
    while not (advice := paper(space, outcomes)).over:
        if advice.free:
            known = {trial: outcomes[source] for trial, source in advice.free.items()}
        else:
            asked = [
                workload.training(
                    "fixnorm",
                    seed=seed,
                    fraction=trial.slot.fraction,
                    lr=trial.slot.lr,
                    alpha=trial.slot.alpha,
                    scope=scope if scope != "global" else None,
                )
                for trial in advice.train
            ]
            found = trainings.all(asked)
            known = {
                trial: Outcome(f.value, f.largest_scale)
                for trial, f in zip(advice.train, found, strict=True)
            }
        outcomes |= known
        for trial, outcome in known.items():
            slot = trial.slot
            tried.append(
                Tried(
                    advice.rounds[slot.round].title,
                    slot.lr,
                    slot.alpha,
                    slot.fraction,
                    outcome.accuracy if outcome.finite else None,
                    bool(advice.free),
                )
            )
    if advice.answer is None:
        raise ValueError(f"every training of {workload.name} diverged")
    answer = advice.answer
    return Searched("alpha", answer.lr, answer.alpha, answer.accuracy, tuple(tried))


def bayesian(
    trainings: Trainings,
    workload: Workload,
    *,
    seed: int,
    budget: int,
    optimizer: str | None = None,
    ranges: Ranges | None = None,
) -> Searched:
    """Optuna's Gaussian process over lr and weight decay, one training after another."""
    ranges = ranges or workload.decay
    walk = trainings.kept(
        ("bayesian", workload.name, optimizer, seed),
        partial(_Walk, ranges, seed, dry=trainings.dry),
    )

    def training(lr: float, weight_decay: float) -> Training:
        return workload.training(
            "weight-decay", seed=seed, lr=lr, weight_decay=weight_decay, optimizer=optimizer
        )

    tried = walk.go(budget, lambda lr, decay: trainings.one(training(lr, decay)).score)
    best = max(tried, key=lambda step: step.score if step.score is not None else -1.0)
    if best.score is None:
        raise ValueError(f"every training of {workload.name} diverged")
    return Searched("weight_decay", best.lr, best.second, best.score, tuple(tried))


class _Walk:
    """A sampler's way: what it asked for and was told is not asked again."""

    def __init__(self, ranges: Ranges, seed: int, *, dry: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = SamplerStrategy(sampler_name="random" if dry else "gp", seed=seed).sampler()
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._ranges: dict[str, BaseDistribution] = {
            "lr": FloatDistribution(*ranges.lr, log=True),
            "weight_decay": FloatDistribution(*ranges.weight_decay, log=True),
        }
        self._asked: list[optuna.Trial] = []
        self._tried: list[Tried] = []

    def go(self, budget: int, train: Callable[[float, float], float | None]) -> list[Tried]:
        """So many trainings; ``train`` may leave by :class:`NotYet` and is asked again later."""
        while len(self._tried) < budget:
            if len(self._asked) == len(self._tried):
                self._asked.append(self._study.ask(self._ranges))
            trial = self._asked[-1]
            # As a person would write them: a command line must give the very same training.
            lr, decay = (float(f"{trial.params[name]:.4g}") for name in ("lr", "weight_decay"))
            score = train(lr, decay)
            known = [step.score for step in self._tried if step.score is not None]
            # A training that diverged is as bad as the worst that did not, as in `fixnorm tune`.
            self._study.tell(trial, min(known, default=0.0) if score is None else score)
            self._tried.append(Tried("points", lr, decay, 1.0, score, free=False))
        return self._tried[:budget]
