"""The answer of a search beside a rival, both trained anew with the same fresh seeds.

A search picks the best of what it has seen, so the accuracy of its answer flatters it. What the
answer is worth, and whether it is better than something that nobody searched for, is said by
trainings that took no part in the choice, in pairs: with one seed both sides see the same start
and the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fixnorm.tuning.search import Ledger, Search
from fixnorm.tuning.trial import ANEW, Lr, Result, StudyRecord, Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ["COMPARISON", "Comparison", "ThenCompared"]

COMPARISON = "comparison"
"""The method of a study that compares."""
SEEDS = 3
"""Pairs of trainings."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A strategy that searches for nothing: two settings, the same seeds for both."""

    lr: Lr
    alpha: float
    """FixNorm's, as the search has found them."""
    rival_lr: float
    rival_weight_decay: float
    """Of plain weight decay, as the recipe has them."""
    name: str
    """Of the strategy whose answer is compared."""
    first_seed: int = 1
    """The first that the search has not used."""
    seeds: int = SEEDS
    method: ClassVar[str] = COMPARISON

    @property
    def sides(self) -> tuple[Trial, Trial]:
        """FixNorm's slot, and the rival's."""
        ours = Trial(round=ANEW, index=0, lr=self.lr, alpha=self.alpha)
        rival = Trial(round=ANEW, index=1, lr=self.rival_lr, weight_decay=self.rival_weight_decay)
        return ours, rival

    @property
    def trials(self) -> list[Trial]:
        """All of them, pair by pair."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [side.seeded(seed) for seed in seeds for side in self.sides]

    @property
    def rivals(self) -> list[Trial]:
        """Those that do not depend on what is compared."""
        return [trial for trial in self.trials if trial.alpha is None]

    @property
    def trainings(self) -> int:
        """Two for each seed."""
        return 2 * self.seeds

    @property
    def cost(self) -> float:
        """Each is of full length."""
        return float(self.trainings)

    def settings(self) -> dict[str, Any]:
        """All that it depends on."""
        named = {"method": self.method, "strategy": self.name, "metric": "accuracy (%)"}
        ours = {"lr": self.lr, "alpha": self.alpha}
        rival = {"lr": self.rival_lr, "weight_decay": self.rival_weight_decay}
        seeds = {"first_seed": self.first_seed, "seeds": self.seeds}
        return {**named, "fixnorm": ours, "weight-decay": rival, **seeds}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Comparison:
        """The one that a study's settings describe; refuses what describes none."""
        try:
            ours, rival = settings["fixnorm"], settings["weight-decay"]
            return cls(
                lr=ours["lr"],
                alpha=ours["alpha"],
                rival_lr=rival["lr"],
                rival_weight_decay=rival["weight_decay"],
                name=settings["strategy"],
                first_seed=int(settings["first_seed"]),
                seeds=int(settings["seeds"]),
            )
        except (KeyError, TypeError, ValueError):
            raise ValueError("its settings do not say what is compared: it was changed") from None

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """For Optuna: the choices that there are."""
        from optuna.distributions import CategoricalDistribution

        return {
            "lr": CategoricalDistribution((self.lr, self.rival_lr)),
            "alpha": CategoricalDistribution((self.alpha,)),
            "weight_decay": CategoricalDistribution((self.rival_weight_decay,)),
        }

    def sampler(self) -> None:
        """None: there is nothing to choose."""
        return

    def check(self, record: StudyRecord) -> None:
        """Refuse trials that it would not have asked for."""
        known = {trial.key: trial for trial in self.trials}
        keys = [trial.key for trial in record.trials]
        for trial in record.trials:
            if known.get(trial.key) != trial.asked or keys.count(trial.key) > 1:
                raise ValueError(f"trial {trial.number} ({trial.key}) is none of the comparison's")

    def wanted(self, ledger: Ledger, room: int, running: Collection[str]) -> list[Trial]:
        """What has neither ended nor begun, the first seeds first."""
        left = [t for t in self.trials if t not in ledger.results and t.key not in running]
        return left[:room]


class ThenCompared:
    """A search, and when it is over the comparison of its answer: one thing for a driver.

    One engine serves both, which may have taken seconds to start. While a search waits for a
    training to say what comes next, ``ahead`` fills the room it leaves: trials of the comparison
    that do not depend on its answer.
    """

    def __init__(
        self, search: Search, compare: Callable[[Trial], Search], ahead: Iterable[Trial] = ()
    ) -> None:
        self.search = search
        self.comparison: Search | None = None
        self._compare = compare
        self._ahead = {trial.key: trial for trial in ahead}
        """Not asked for yet."""
        self._early: dict[str, Result | None] = {}
        """Asked for before the comparison could be; with the result of those that have ended."""

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return self.search.done + (0 if self.comparison is None else self.comparison.done)

    def ask(self, n: int = 1) -> list[Trial]:
        """Of the search while there is anything to ask of it, then of the comparison."""
        if n < 1:
            return []
        if self.comparison is None:
            trials = self.search.ask(n)
            if self.search.running:
                return trials + self._ask_ahead(n - len(trials))
            best = self.search.answer()
            if best is None:
                return trials
            self.comparison = self._compare(best)
        return self._ask_anew(self.comparison, n)

    def tell(self, trial: Trial, result: Result) -> Trial:
        """To the one that asked for it."""
        if trial.key in self._early:
            if self.comparison is None or trial.key not in self.comparison.running:
                self._early[trial.key] = result
                return replace(trial, result=result)
            del self._early[trial.key]
        return self._owner(trial).tell(trial, result)

    def give_back(self, trial: Trial) -> None:
        """It will be asked for again."""
        early = self._early.pop(trial.key, trial) is None
        if early and (self.comparison is None or trial.key not in self.comparison.running):
            self._ahead[trial.key] = trial
        else:
            self._owner(trial).give_back(trial)

    def _ask_ahead(self, n: int) -> list[Trial]:
        keys = list(self._ahead)[: max(n, 0)]
        self._early |= dict.fromkeys(keys)
        return [self._ahead.pop(key) for key in keys]

    def _ask_anew(self, comparison: Search, n: int) -> list[Trial]:
        """What is left of the comparison, which is told what has ended already."""
        trials: list[Trial] = []
        while len(trials) < n and (asked := comparison.ask(n - len(trials))):
            for trial in asked:
                result = self._early.get(trial.key)
                if result is not None:
                    del self._early[trial.key]
                    comparison.tell(trial, result)
                elif trial.key not in self._early:
                    trials.append(trial)
        return trials

    def _owner(self, trial: Trial) -> Search:
        if self.comparison is not None and trial.round == ANEW:
            return self.comparison
        return self.search
