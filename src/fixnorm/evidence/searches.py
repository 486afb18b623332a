"""Searches as part of an experiment: Algorithm 4, and Bayesian optimisation of lr and λ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import optuna

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.setting import Ranges, Setting
from fixnorm.evidence.training import Training
from fixnorm.groups import Scope
from fixnorm.tuning.search import Ledger, Search
from fixnorm.tuning.strategies import PlanStrategy, SamplerStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import Result, StudyRecord, Trial

__all__ = ["Searched", "Tried", "algorithm4", "bayesian"]

Kind = Literal["alpha", "weight_decay"]
_MOST = 10_000
"""Points of a walk, which goes on for as long as somebody asks."""


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
        return {**asdict(self), "cost": self.cost, "tried": [asdict(step) for step in self.tried]}


def algorithm4(lab: Lab, setting: Setting, *, seed: int, scope: Scope = "global") -> Searched:
    """FixNorm's own search; slots that are known without training cost nothing."""
    strategy = PlanStrategy(space=setting.space)
    search = Search(strategy, Ledger(strategy.settings()))
    while trials := search.ask(strategy.trainings):
        asked = [
            setting.training(
                "fixnorm",
                seed=seed,
                fraction=trial.fraction,
                lr=trial.lr,
                alpha=trial.alpha,
                scope=scope if scope != "global" else None,
            )
            for trial in trials
        ]
        for trial, found in zip(trials, lab.all(asked), strict=True):
            search.tell(trial, _result(found.score, found.largest_scale))
    return _searched("alpha", setting, search.ledger.record())


def bayesian(
    lab: Lab,
    setting: Setting,
    *,
    seed: int,
    budget: int,
    optimizer: str | None = None,
    ranges: Ranges | None = None,
) -> Searched:
    """Optuna's Gaussian process over lr and weight decay, one training after another."""
    ranges = ranges or setting.decay
    walk = lab.memory.setdefault(
        ("bayesian", setting.name, optimizer, seed), _Walk(ranges, seed, dry=lab.dry)
    )

    def training(lr: float, weight_decay: float) -> Training:
        return setting.training(
            "weight-decay", seed=seed, lr=lr, weight_decay=weight_decay, optimizer=optimizer
        )

    record = walk.go(budget, lambda lr, decay: lab.one(training(lr, decay)).score)
    return _searched("weight_decay", setting, record)


class _Walk:
    """A sampler's way: what it asked for and was told is not asked again."""

    def __init__(self, ranges: Ranges, seed: int, *, dry: bool) -> None:
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
        self._search = Search(strategy, ledger)
        self._tried: list[Trial] = []

    def go(self, budget: int, train: Callable[[float, float], float | None]) -> StudyRecord:
        """So many trainings; ``train`` may leave by :class:`NotYet` and is asked again later."""
        while len(self._tried) < budget:
            (asked,) = self._search.running.values() or self._search.ask()
            assert asked.weight_decay is not None
            # As a person would write them: a command line must give the very same training.
            lr, decay = (float(f"{value:.4g}") for value in (asked.lr, asked.weight_decay))
            told = self._search.tell(asked, _result(train(lr, decay)))
            self._tried.append(replace(told, lr=lr, weight_decay=decay))
        return replace(self._search.ledger.record(), trials=tuple(self._tried[:budget]))


def _result(score: float | None, largest_scale: float | None = None) -> Result:
    if score is None:
        return Result(state="diverged")
    return Result(accuracy=score, largest_scale=largest_scale)


def _searched(kind: Kind, setting: Setting, record: StudyRecord) -> Searched:
    best = record.answer()
    if best is None or best.accuracy is None:
        raise ValueError(f"every training of {setting.name} diverged")
    tried = tuple(
        Tried(t.round, t.lr, getattr(t, kind), t.fraction, t.accuracy, t.state == "free")
        for t in record.trials
    )
    return Searched(kind, best.lr, getattr(best, kind), best.accuracy, tried)
