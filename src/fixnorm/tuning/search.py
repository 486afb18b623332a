"""The search: what to train next (ask), what it gave (tell), and the best of it (answer).

A *strategy* decides: a plan over slots, or a sampler over points. A *ledger* remembers: this
module's in memory, or a study of Optuna's (:mod:`fixnorm.tuning.study`). Everything that searches
drives this one: ``fixnorm tune`` and ``fixnorm.tune`` by trainings side by side
(:mod:`fixnorm.tuning.driver`), the integrations by the caller's loop, the evidence by
:func:`run_here`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from fixnorm.tuning.trial import Result, StudyRecord, Trial

__all__ = ["Decider", "Ledger", "Search", "run_here"]


class Decider(Protocol):
    """What a search needs of a strategy: the word on what comes next."""

    @property
    def trainings(self) -> int:
        """The most trainings."""

    @property
    def cost(self) -> float:
        """The most they cost, in T_max."""

    def check(self, record: StudyRecord) -> None:
        """Refuse a ledger whose trials this strategy would not have asked for."""

    def wanted(self, ledger: Ledger, room: int, running: Collection[str]) -> list[Trial]:
        """Up to ``room`` trials to train now, beside those that run."""


class Ledger:
    """The trials of a search by key, and the results of those that have ended: here in memory."""

    def __init__(self, settings: Mapping[str, Any], *, name: str = "memory") -> None:
        self.name, self.settings = name, settings
        self.trials: dict[str, Trial] = {}
        """As they are now."""
        self.results: dict[Trial, Result] = {}
        """Of those that have ended, by what was asked."""
        self._over = False

    def announce(self, *, budget: int, over: bool) -> None:
        """How many trainings the search may take, and whether it has come to its end."""
        self._over = over

    def keep(self) -> None:
        """Make sure that this process still owns it; raises where another does."""

    def begin(self, trial: Trial) -> None:
        """The training is about to start."""
        if trial.key not in self.trials:  # else one before this has begun it
            self._note(replace(trial, number=len(self.trials)))

    def end(self, trial: Trial, result: Result) -> Trial:
        """It is over; one that needed no training ends without having begun."""
        self.begin(trial)
        return self._note(replace(self.trials[trial.key], result=result))

    def sample(self) -> Trial:
        """Let Optuna's sampler choose the next point: a study has one, memory has none."""
        raise ValueError(
            "a sampler chooses from what a study holds: give Search a Study, which may be around "
            "optuna.create_study() in memory"
        )

    def record(self) -> StudyRecord:
        """All of it, as plain values."""
        return StudyRecord(
            name=self.name,
            method=self.settings.get("method", "fixnorm"),
            strategy=self.settings.get("strategy", "paper"),
            metric=self.settings.get("metric", "accuracy (%)"),
            settings=self.settings,
            trials=tuple(self.trials.values()),
            over=self._over,
        )

    def _note(self, trial: Trial) -> Trial:
        self.trials[trial.key] = trial
        if trial.result is not None:
            self.results[trial.asked] = trial.result
        return trial


class Search:
    """A strategy at work on a ledger; whatever stops it, another on the same ledger goes on."""

    def __init__(self, strategy: Decider, ledger: Ledger) -> None:
        self.strategy, self.ledger = strategy, ledger
        self.running: dict[str, Trial] = {}
        """Asked for, and neither told nor given back."""
        try:
            strategy.check(ledger.record())
        except ValueError as error:
            raise ValueError(
                f"study {ledger.name!r} cannot go on: {error}; give it another name or place"
            ) from None

    @property
    def trainings(self) -> int:
        """The most trainings that it takes."""
        return self.strategy.trainings

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return len(self.ledger.results)

    def ask(self, n: int = 1) -> list[Trial]:
        """Up to ``n`` trials to train now; none while those under way decide what comes next.

        None with none under way is the end.
        """
        self.ledger.keep()
        if n < 1:
            return []
        trials = self.strategy.wanted(self.ledger, n, self.running)
        over = not trials and not self.running
        self.ledger.announce(budget=self.trainings, over=over)
        for trial in trials:
            self.ledger.begin(trial)
            self.running[trial.key] = trial
        return trials

    def tell(self, trial: Trial, result: Result) -> Trial:
        """What the training gave; the trial as the ledger has it now."""
        if trial.key not in self.running:
            raise ValueError(f"{trial.key} is not under way: tell what was asked, once")
        told = self.ledger.end(trial, result)
        del self.running[trial.key]
        return told

    def give_back(self, trial: Trial) -> None:
        """The training came to no result: it will be asked for again."""
        del self.running[trial.key]

    def answer(self) -> Trial | None:
        """The best slot with its mean; before the end the best so far; none without a number."""
        return self.ledger.record().answer()


def run_here(search: Search, train: Callable[[Trial], Result]) -> Trial | None:
    """Train what a search asks for, one after another in this process; its answer."""
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, train(trial))
    return search.answer()
