"""Plans on an lr × alpha landscape."""

from __future__ import annotations

from fixnorm.evidence.landscapes import Landscape
from fixnorm.evidence.replay.draws import Draws
from fixnorm.evidence.replay.trace import Trace, Tracker
from fixnorm.tuning.plan import Outcome, SearchSpace, Trial
from fixnorm.tuning.sources import Plan

__all__ = ["run_plan", "space_of"]


def space_of(landscape: Landscape) -> SearchSpace:
    """The plan's input by the extent of the recording; of both settings here it is the paper's."""
    return SearchSpace(
        lr_min=landscape.lrs[0],
        lr_max=landscape.lrs[-1],
        fractions=landscape.fractions,
        alphas=landscape.levels,
    )


def run_plan(plan: Plan, draws: Draws, *, space: SearchSpace | None = None) -> Trace:
    """Run a plan to its end."""
    space = space or space_of(draws.landscape)
    tracker = Tracker(draws.landscape)
    outcomes: dict[Trial, Outcome] = {}
    while not (advice := plan(space, outcomes)).over:
        for trial, source in advice.free.items():
            outcomes[trial] = outcomes[source]
        for trial in advice.train:
            slot = trial.slot
            got = draws.training(slot.lr, slot.alpha, fraction=slot.fraction, seed=trial.seed)
            outcomes[trial] = Outcome(got.accuracy, got.largest_scale)
            tracker.trained(
                slot.lr,
                slot.alpha,
                observed=got.accuracy,
                length=slot.fraction,
                cost=slot.fraction,
            )
    assert advice.answer is not None
    return tracker.end((advice.answer.lr, advice.answer.alpha))
