"""The search for lr and weight decay of ``at_size.py``: short trainings, then the best in full.

It asks for trainings by name and is told rows of the file, so that a page can ask again what a
search found, without a training.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
Tried = Sequence[tuple[float, float, float]]
"""lr, weight decay and accuracy of short trainings, in their order."""
Suggest = Callable[[Tried], tuple[float, float]]

LR, DECAY = (0.01, 2.0), (1e-5, 5e-3)
"""The ranges, both on a log scale."""
DEFAULT = (0.1, 5e-4)
"""Of lr and weight decay: the first that a search tries."""
SHARE = 0.2
"""Of a whole training: what a short one takes."""


class Budget(NamedTuple):
    """``short`` trainings, then the best ``full`` of them at full length."""

    short: int
    full: int

    @property
    def cost(self) -> float:
        """In T_max."""
        return self.short * SHARE + self.full


SMALL, LARGE = Budget(15, 5), Budget(60, 13)
"""8 and 25 T_max. The larger one goes on where the smaller one has ended."""


def suggestion(known: Tried) -> tuple[float, float]:
    """The next lr and weight decay.

    By Optuna's Gaussian process, as the project's baseline, from nothing but these: a search that
    was stopped goes on as if it had not been.
    """
    if not known:
        return DEFAULT
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges: dict[str, optuna.distributions.BaseDistribution] = {
        "lr": optuna.distributions.FloatDistribution(*LR, log=True),
        "decay": optuna.distributions.FloatDistribution(*DECAY, log=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        gaussian = optuna.samplers.GPSampler(seed=len(known))
    tried = {(lr, decay) for lr, decay, _ in known}
    for sampler in (gaussian, optuna.samplers.RandomSampler(seed=len(known))):
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for lr, decay, value in known:
            values = {"lr": lr, "decay": decay}
            done = optuna.trial.create_trial(params=values, distributions=ranges, value=value)
            study.add_trial(done)
        asked = study.ask(ranges).params
        found = float(f"{asked['lr']:.4g}"), float(f"{asked['decay']:.4g}")
        if found not in tried:  # a corner of the ranges may be the best again
            break
    return found


def accuracy(row: Mapping[str, Any]) -> float:
    """A training that diverged says no more than a guess."""
    return 10.0 if row["accuracy"] is None else float(row["accuracy"])


def tuned(
    budget: Budget,
    short: Callable[[int], Row],
    full: Callable[[float, float], Row],
) -> Row:
    """The row of the winner: ``short(n)`` is the n-th short training, ``full`` one at length."""
    tried = [short(n) for n in range(budget.short)]
    best = sorted(tried, key=accuracy, reverse=True)[: budget.full]
    return max((full(row["lr"], row["decay"]) for row in best), key=accuracy)
