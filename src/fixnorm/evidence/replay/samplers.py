"""Optuna's samplers on a landscape of either kind, as ``fixnorm tune`` has them."""

from __future__ import annotations

from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

from fixnorm.evidence.replay.draws import Draws
from fixnorm.evidence.replay.trace import Trace, Tracker
from fixnorm.tuning.strategies import SamplerStrategy

__all__ = ["run_sampler"]


def run_sampler(name: str, draws: Draws, *, budget: int, seed: int) -> Trace:
    """``budget`` trainings of full length; both ranges on a log scale, as wide as the recording."""
    landscape = draws.landscape
    ranges: dict[str, BaseDistribution] = {
        "lr": FloatDistribution(landscape.lrs[0], landscape.lrs[-1], log=True),
        landscape.axis: FloatDistribution(landscape.levels[0], landscape.levels[-1], log=True),
    }
    sampler = SamplerStrategy(sampler_name=cast(Any, name), seed=seed).sampler()
    study = _quiet_study(sampler)
    tracker = Tracker(landscape)
    for _ in range(budget):
        trial = study.ask(ranges)
        lr, level = trial.params["lr"], trial.params[landscape.axis]
        accuracy = draws.training(lr, level).accuracy
        study.tell(trial, accuracy)
        tracker.trained(lr, level, observed=accuracy, length=1.0, cost=1.0)
    return tracker.end()


def _quiet_study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    """In memory, without a line for each study and trial."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize", sampler=sampler)
