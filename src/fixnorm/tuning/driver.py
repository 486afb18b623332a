"""The driver: asks the source, starts trainings on an engine, writes down what they found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sized
from typing import Protocol

from fixnorm.system.interrupt import Interrupt, Interrupted
from fixnorm.tuning.engines.engine import Died, Engine, Unfinished
from fixnorm.tuning.job import Ended, Job
from fixnorm.tuning.record import TrialRecord

__all__ = ["SILENT", "Decider", "Ledger", "Watcher", "search"]

_CRASHES, _KILLS = 3, 20
"""Deaths in a row, without any progress between them, after which the search stops."""
_LOOK = 0.25
"""Seconds between two looks at the progress of the running trainings."""


class Decider(Protocol):
    """Says what to train."""

    @property
    def trainings(self) -> int:
        """The most trainings it takes."""

    def next(self, room: int, running: Collection[str]) -> list[Job]:
        """Up to ``room`` jobs to start now, beside those that run."""


class Ledger(Protocol):
    """Where it is written down what was trained."""

    @property
    def ended(self) -> Sized:
        """What is over."""

    def announce(self, *, budget: int, over: bool) -> None:
        """How many trainings there may be, and whether the end has come."""

    @property
    def keep(self) -> Callable[[], None]:
        """Makes sure that this driver still owns it; raises where another does."""

    def begin(self, job: Job) -> None:
        """The training is about to start."""

    def end(self, job: Job, ended: Ended) -> TrialRecord:
        """It is over."""


class Watcher(Protocol):
    """Who is told what happens."""

    def started(self, job: Job) -> None:
        """A training has started."""

    def died(self, job: Job, reason: str) -> None:
        """It was killed and will be tried again."""

    def ended(self, record: TrialRecord) -> None:
        """It is over."""

    def tick(self, progress: dict[Job, float]) -> None:
        """Some time has passed; how far the running trainings are."""


class _Silent:
    """Nobody."""

    def started(self, job: Job) -> None:
        pass

    def died(self, job: Job, reason: str) -> None:
        pass

    def ended(self, record: TrialRecord) -> None:
        pass

    def tick(self, progress: dict[Job, float]) -> None:
        pass


SILENT: Watcher = _Silent()


def search(
    study: Ledger,
    source: Decider,
    engine: Engine,
    watcher: Watcher,
    interrupt: Interrupt | None = None,
) -> None:
    """Run the search to its end. Whatever stops it, a later call goes on from the study.

    A trial ends with an outcome of its training or not at all: one that dies again and again
    stops the search, for what kills it is not a property of its learning rate.
    """
    running: dict[str, Job] = {}
    tries = _Tries()
    study.announce(budget=source.trainings, over=False)
    try:
        while True:
            study.keep()
            for job in source.next(engine.room - len(running), running):
                study.begin(job)
                engine.start(job)
                running[job.key] = job
                watcher.started(job)
            if not running:
                break
            for job, end in engine.wait(_LOOK):
                del running[job.key]
                if isinstance(end, Died):
                    tries.count(job, end, engine.progress(job))
                    watcher.died(job, end.reason)
                    continue  # the source offers the job again, as it has no value
                watcher.ended(study.end(job, end))
            watcher.tick({job: engine.progress(job) for job in running.values()})
            if interrupt is not None and interrupt.signal:
                done = f"stopped with {len(study.ended)} trials done and {len(running)} under way"
                raise Interrupted(interrupt.signal, done)
        study.announce(budget=source.trainings, over=True)
    finally:
        engine.stop()


class _Tries:
    """How often each training has died without getting any further."""

    def __init__(self) -> None:
        self._deaths: dict[str, tuple[int, float]] = {}

    def count(self, job: Job, end: Died, progress: float) -> None:
        """One more; raises where another try is not worth it."""
        deaths, before = self._deaths.get(job.key, (0, 0.0))
        deaths = 1 if progress > before else deaths + 1
        self._deaths[job.key] = deaths, progress
        if deaths == (_KILLS if end.killed else _CRASHES):
            look = f" (look at {end.log})" if end.log is not None else ""
            raise Unfinished(
                f"{job.key} ended {deaths} times without getting any further, the last time by"
                f" {end.reason}: mend that{look}, then the same command goes on"
            )
