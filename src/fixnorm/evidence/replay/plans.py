"""Plans on an lr × alpha landscape."""

from __future__ import annotations

from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.replay.draws import Draws
from fixnorm.evidence.replay.trace import Trace, Tracker
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.search import Ledger, Search, run_here
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import Result, Trial

__all__ = ["run_plan", "space_of"]


def space_of(landscape: Landscape) -> SearchSpace:
    """The plan's input by the extent of the recording; of both settings here it is the paper's."""
    return SearchSpace(
        lr_min=landscape.lrs[0],
        lr_max=landscape.lrs[-1],
        fractions=landscape.fractions,
        alphas=landscape.levels,
    )


def run_plan(plan: str, draws: Draws, *, space: SearchSpace | None = None) -> Trace:
    """Run a plan, by name, to its end."""
    strategy = PlanStrategy(space=space or space_of(draws.landscape), plan=plan)
    tracker = Tracker(draws.landscape)

    def train(trial: Trial) -> Result:
        assert trial.alpha is not None
        got = draws.training(trial.lr, trial.alpha, fraction=trial.fraction, seed=trial.seed)
        tracker.trained(
            trial.lr,
            trial.alpha,
            observed=got.accuracy,
            length=trial.fraction,
            cost=trial.fraction,
        )
        return Result(accuracy=got.accuracy, largest_scale=got.largest_scale)

    answer = run_here(Search(strategy, Ledger(strategy.settings())), train)
    assert answer is not None
    assert answer.alpha is not None
    return tracker.end((answer.lr, answer.alpha))
