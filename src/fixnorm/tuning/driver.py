"""The driver: asks a search, starts trainings on an engine, tells what they gave."""

from __future__ import annotations

from typing import Protocol

from fixnorm.system.interrupt import Interrupt, Interrupted
from fixnorm.tuning.engine import Died, Engine, Unfinished
from fixnorm.tuning.trial import Result, Trial

__all__ = ["Searching", "Watcher", "drive"]

_CRASHES, _KILLS = 3, 20
"""Deaths in a row, without any progress between them, after which the search stops."""
_LOOK = 0.25
"""Seconds between two looks at the progress of the running trainings."""


class Searching(Protocol):
    """What the driver needs of a search: :class:`~fixnorm.tuning.search.Search`, or one like it."""

    @property
    def done(self) -> int:
        """Trials that have ended."""

    def ask(self, n: int = 1) -> list[Trial]:
        """Up to ``n`` trials to start now, beside those under way; none and none is the end."""

    def tell(self, trial: Trial, result: Result) -> Trial:
        """What the training gave; the trial with it."""

    def give_back(self, trial: Trial) -> None:
        """The training came to no result: it is to be asked for again."""


class Watcher:
    """Is told what happens; this one keeps it to itself."""

    def started(self, trial: Trial) -> None:
        """A training has started."""

    def died(self, trial: Trial, reason: str) -> None:
        """It was killed and will be tried again."""

    def ended(self, trial: Trial) -> None:
        """A trial has its result."""

    def tick(self, progress: dict[Trial, float]) -> None:
        """Some time has passed; how far the running trainings are."""


def drive(
    search: Searching, engine: Engine, watcher: Watcher, interrupt: Interrupt | None = None
) -> None:
    """Run the search to its end. Whatever stops it, a later call goes on from its ledger.

    A trial ends with the result of its training or not at all: one that dies again and again
    stops the search, for what kills it is not a property of its learning rate.
    """
    running: dict[str, Trial] = {}
    tries = _Tries()
    try:
        while True:
            for trial in search.ask(engine.room - len(running)):
                engine.start(trial)
                running[trial.key] = trial
                watcher.started(trial)
            if not running:
                break
            for trial, end in engine.wait(_LOOK):
                del running[trial.key]
                if isinstance(end, Died):
                    tries.count(trial, end, engine.progress(trial))
                    watcher.died(trial, end.reason)
                    search.give_back(trial)
                else:
                    watcher.ended(search.tell(trial, end))
            watcher.tick({trial: engine.progress(trial) for trial in running.values()})
            if interrupt is not None and interrupt.signal:
                done = f"stopped with {search.done} trials done and {len(running)} under way"
                raise Interrupted(interrupt.signal, done)
    finally:
        engine.stop()


class _Tries:
    """How often each training has died without getting any further."""

    def __init__(self) -> None:
        self._deaths: dict[str, tuple[int, float]] = {}

    def count(self, trial: Trial, end: Died, progress: float) -> None:
        """One more; raises where another try is not worth it."""
        deaths, before = self._deaths.get(trial.key, (0, 0.0))
        deaths = 1 if progress > before else deaths + 1
        self._deaths[trial.key] = deaths, progress
        if deaths == (_KILLS if end.killed else _CRASHES):
            look = f" (look at {end.log})" if end.log is not None else ""
            raise Unfinished(
                f"{trial.key} ended {deaths} times without getting any further, the last time by"
                f" {end.reason}: mend that{look}, then the same command goes on"
            )
