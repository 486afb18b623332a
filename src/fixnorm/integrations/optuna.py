"""Optuna: the plans for lr and alpha on a study of one's own, around one's own objective.

A plan decides which trials come next, so the study's sampler has no say. Its trials are ordinary
ones: dashboards, storages and callbacks know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fixnorm.system.extras import missing

try:
    import optuna

    from fixnorm.system import brief
    from fixnorm.tuning.function import Real, failed, result_of
    from fixnorm.tuning.plan import PAPER, SearchSpace
    from fixnorm.tuning.plans import DEFAULT
    from fixnorm.tuning.search import Search
    from fixnorm.tuning.strategies import PlanStrategy
    from fixnorm.tuning.study import Study
    from fixnorm.tuning.trial import Trial
    from fixnorm.tuning.unimodal import MARGIN
except ModuleNotFoundError as error:
    raise missing("this integration", error, "tune") from None

__all__ = ["PlanSearch", "SearchSpace", "fraction_of", "optimize", "seed_of"]

Objective = Callable[[optuna.Trial], Real | Mapping[str, Real]]


def optimize(
    study: optuna.Study,
    objective: Objective,
    *,
    space: SearchSpace = PAPER,
    plan: str = DEFAULT,
    margin: float = MARGIN,
) -> Trial:
    """Find lr and alpha, as ``study.optimize(objective)`` would, by a plan.

    The same call again goes on after anything: a trial that a killed process left RUNNING is
    trained again.

    Args:
        study: one that maximises, of its own.
        objective: takes a trial whose ``params`` have ``lr`` and ``alpha`` (``suggest_float``
            gives the same numbers; by plan ``"auto"`` ``params["lr"]`` is ``"auto"``, for
            ``attach(optimizer, lr="auto", steps=…)``) and :func:`fraction_of`; returns the
            accuracy, or a dict with ``accuracy`` and ``largest_scale``, as in
            :func:`fixnorm.tune`. NaN is a training that diverged; an exception, ``TrialPruned``
            too, closes the slot as failed, unless it is the machine's (no room, no memory). With
            several seeds in the space, :func:`seed_of` tells which.
        space: ranges, lengths and candidates; the paper's unless said otherwise.
        plan: ``"paper"`` is Algorithm 4; ``"unimodal"`` leaves out what cannot win; ``"auto"`` has
            no search for lr, and uses the space's alphas and seeds alone.
        margin: of ``unimodal`` and ``auto``, a difference in accuracy that noise does not explain.
    """
    if not callable(objective):
        raise ValueError(f"objective must be a function of a trial but got {brief(objective)}")
    search = PlanSearch(study, space=space, plan=plan, margin=margin)
    while (trial := search.ask()) is not None:
        try:
            found = objective(trial)
        except Exception as error:
            search.tell_failed(trial, error)
        else:
            search.tell(trial, found)
    return search.answer()


class PlanSearch:
    """Ask and tell: the same search for a loop, a scheduler or a cluster of one's own.

    One process owns the search; several of its trials may be under way at a time.
    """

    def __init__(
        self,
        study: optuna.Study,
        *,
        space: SearchSpace = PAPER,
        plan: str = DEFAULT,
        margin: float = MARGIN,
    ) -> None:
        if not isinstance(study, optuna.Study):
            raise ValueError(f"study must be one of optuna.create_study but got {brief(study)}")
        strategy = PlanStrategy(space=space, plan=plan, margin=margin)
        self._study = Study.around(
            study, settings=strategy.settings(), distributions=strategy.distributions()
        )
        self._search = Search(strategy, self._study)
        self._running: dict[int, Trial] = {}
        self._error: Exception | None = None

    @property
    def running(self) -> int:
        """Trials that were asked for and not told yet."""
        return len(self._running)

    def ask(self) -> optuna.Trial | None:
        """The next trial to train.

        None while the trials under way decide what comes next, and at the end, when none is.
        """
        for asked in self._search.ask():
            trial = self._study.trial(asked)
            self._running[trial.number] = asked
            return trial
        return None

    def tell(self, trial: optuna.Trial, found: Real | Mapping[str, Real]) -> None:
        """What the training gave: as the objective of :func:`optimize` returns it."""
        result = result_of(found)
        self._search.tell(self._taken(trial), result)

    def tell_failed(self, trial: optuna.Trial, error: Exception) -> None:
        """The training raised an error: its slot is closed.

        An error of the machine (no room, no memory) is not one of the training: it stops the
        search, and the slot stays open.
        """
        result = failed(error, f"trial {trial.number}")
        self._search.tell(self._taken(trial), result)
        self._error = error

    def best(self) -> Trial | None:
        """The answer; before the end, the best so far; none if nothing was trained."""
        return self._search.answer()

    def answer(self) -> Trial:
        """The answer of a search that is over; an error with its cause if nothing was trained."""
        best = self.best()
        if best is None:
            reason = "its accuracy is no number" if self._error is None else repr(self._error)
            raise ValueError(
                f"every training diverged or failed, the last: {reason}"
            ) from self._error
        return best

    def _taken(self, trial: optuna.Trial) -> Trial:
        if not isinstance(trial, optuna.Trial):
            raise ValueError(f"trial must be one that ask() gave but got {brief(trial)}")
        if trial.number not in self._running:
            raise ValueError(f"trial {trial.number} is not under way: tell what was asked, once")
        return self._running.pop(trial.number)


def fraction_of(trial: optuna.Trial | optuna.trial.FrozenTrial) -> float:
    """The length of the trial's training, in T_max: train for ``fraction_of(trial) * steps``."""
    return float(trial.user_attrs["slot"]["fraction"])


def seed_of(trial: optuna.Trial | optuna.trial.FrozenTrial) -> int:
    """Which of the space's seeds the training is to use."""
    return int(trial.user_attrs["slot"]["seed"])
