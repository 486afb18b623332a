"""Optuna's samplers on a landscape of either kind, as ``fixnorm tune`` has them."""

from __future__ import annotations

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

from fixnorm.evidence.replay.draws import Draws
from fixnorm.evidence.replay.trace import Trace, Tracker
from fixnorm.tuning.search import Search, run_here
from fixnorm.tuning.strategies import SamplerStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import Result, Trial

__all__ = ["run_sampler"]


def run_sampler(name: str, draws: Draws, *, budget: int, seed: int) -> Trace:
    """``budget`` trainings of full length; both ranges on a log scale, as wide as the recording."""
    landscape, tracker = draws.landscape, Tracker(draws.landscape)
    ranges: dict[str, BaseDistribution] = {
        "lr": FloatDistribution(landscape.lrs[0], landscape.lrs[-1], log=True),
        landscape.axis: FloatDistribution(landscape.levels[0], landscape.levels[-1], log=True),
    }
    strategy = SamplerStrategy(sampler_name=name, seed=seed, budget=budget)
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # without a line for each study and trial
    study = optuna.create_study(direction="maximize", sampler=strategy.sampler())
    ledger = Study.around(study, settings=strategy.settings(), distributions=ranges)

    def train(trial: Trial) -> Result:
        level = getattr(trial, landscape.axis)
        accuracy = draws.training(trial.lr, level).accuracy
        tracker.trained(trial.lr, level, observed=accuracy, length=1.0, cost=1.0)
        return Result(accuracy=accuracy)

    run_here(Search(strategy, ledger), train)
    return tracker.end()
