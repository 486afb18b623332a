"""The searches of ``auto_lr.py``: Algorithm 4, and the plan without a search for lr.

Both ask for trainings by name and are told rows of the file, so that a page can ask again what a
search found, without a training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fixnorm.tuning.estimate import range_around
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.search import Ledger, Search, run_here
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import Result, Trial

Row = dict[str, Any]
Found = tuple[Trial, float]
"""The winner, and what the search cost in T_max."""


def algorithm4(rule_lr: float, row_of: Callable[[Trial], Row]) -> Found:
    """The winner of the paper's search, with free alphas.

    The paper's range of learning rates, [0.2, 3.2], leaves out the best of many small settings. The
    rival gets one of the same width around what the rule found: it cannot fail for want of range.
    """
    low, high = range_around(rule_lr)
    return _winner("paper", SearchSpace(lr_min=low, lr_max=high), row_of)


def auto(row_of: Callable[[Trial], Row]) -> Found:
    """The winner of plan auto. Its branches are trained from their start here, and cost that."""
    return _winner("auto", SearchSpace(), row_of)


def _winner(plan: str, space: SearchSpace, row_of: Callable[[Trial], Row]) -> Found:
    def train(trial: Trial) -> Result:
        row = row_of(trial)
        if row["accuracy"] is None:
            return Result(state="diverged")
        return Result(accuracy=row["accuracy"], largest_scale=row["largest_scale"])

    strategy = PlanStrategy(plan=plan, space=space)
    trials = Ledger(strategy.settings())
    answer = run_here(Search(strategy, trials), train)
    assert answer is not None
    return answer, trials.record().cost
