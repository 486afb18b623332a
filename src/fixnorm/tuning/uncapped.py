"""Algorithm 4 with one change: lr is tuned without a cap, and that training is the largest alpha.

Algorithm 4 tunes lr under the smallest alpha, where the cap acts most. Where the best lr depends on
the cap it is then tuned for a head that the answer may not have; and the uncapped training is the
one whose result most alphas share, so that fewer are left to train.
"""

from __future__ import annotations

from fixnorm.tuning.plan import Advice, Results, Rounds, SearchSpace, paper

__all__ = ["uncapped"]


def uncapped(space: SearchSpace, results: Results) -> Advice:
    """The next trainings: the rounds of :func:`~fixnorm.tuning.plan.paper`, from the other end."""
    return paper(space, results, rounds=Rounds(space, results, lr_alpha=-1))
