"""The driver's side of experiments: what to train next, and what has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.pool import Pool
from fixnorm.evidence.training import Found, Training
from fixnorm.tuning.engines import Refused
from fixnorm.tuning.trial import Result, Trial

__all__ = ["Bench", "Function", "Outcome"]

Function = Callable[[Lab], dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """An experiment that is over."""

    found: dict[str, Any]
    used: dict[Training, Found]
    """The trainings that it rests on."""


class Bench:
    """Experiments side by side on one pool; decides and keeps the ledger, for the driver."""

    def __init__(
        self, experiments: Mapping[str, Function], pool: Pool, over: Callable[[str, Outcome], None]
    ) -> None:
        self.pool = pool
        self._over = over
        self._open = dict(experiments)
        self.running: dict[str, Trial] = {}
        self.done = 0
        """What this process has trained."""
        self._labs = {name: Lab(pool.find) for name in experiments}
        self._ready: dict[str, Trial] | None = None

    @property
    def known(self) -> int:
        """Trainings that are there, of all that were asked for."""
        return len({training for lab in self._labs.values() for training in lab.used})

    def ready(self) -> dict[str, Trial]:
        """What can be trained now, by key."""
        if self._ready is None:
            self._ready = {}
            for name, experiment in list(self._open.items()):
                lab = self._labs[name]
                found = lab.attempt(experiment)
                if found is not None:
                    del self._open[name]
                    self._over(name, Outcome(found, dict(lab.used)))
                trials = [self.pool.trial(training) for training in lab.missing]
                self._ready |= {trial.key: trial for trial in trials}
        return self._ready

    def ask(self, n: int = 1) -> list[Trial]:
        """In the order in which the experiments ask."""
        if n < 1:
            return []
        trials = [trial for key, trial in self.ready().items() if key not in self.running][:n]
        self.running |= {trial.key: trial for trial in trials}
        return trials

    def give_back(self, trial: Trial) -> None:
        """It came to no result: it is asked for again."""
        del self.running[trial.key]

    def tell(self, trial: Trial, result: Result) -> Trial:
        """It has left its result; one that failed for good ends the whole."""
        if result.state == "failed":
            raise Refused(f"{trial.key} failed: {result.reason}; look at {self.pool.log_of(trial)}")
        self._ready = None
        self.done += 1
        self.give_back(trial)
        return replace(trial, result=result, folder=self.pool.folder_of(trial))
