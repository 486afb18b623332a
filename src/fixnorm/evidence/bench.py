"""The driver's side of experiments: what to train next, and what has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fixnorm.evidence.lab import Lab
from fixnorm.evidence.pool import Pool
from fixnorm.evidence.training import Found, Training
from fixnorm.tuning.engines.engine import Refused
from fixnorm.tuning.job import Ended, Job
from fixnorm.tuning.record import TrialRecord

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
        self.ended: dict[str, TrialRecord] = {}
        """What this process has trained."""
        self._labs = {name: Lab(pool.find) for name in experiments}
        self._ready: dict[str, Job] | None = None

    @property
    def trainings(self) -> int:
        """Those known to be needed: a search may ask for more."""
        return len(self.ended) + len(self.ready())

    @property
    def known(self) -> int:
        """Trainings that are there, of all that were asked for."""
        return len({training for lab in self._labs.values() for training in lab.used})

    def ready(self) -> dict[str, Job]:
        """What can be trained now, by key."""
        if self._ready is None:
            self._ready = {}
            for name, experiment in list(self._open.items()):
                lab = self._labs[name]
                found = lab.attempt(experiment)
                if found is not None:
                    del self._open[name]
                    self._over(name, Outcome(found, dict(lab.used)))
                jobs = [self.pool.job(training) for training in lab.missing]
                self._ready |= {job.key: job for job in jobs}
        return self._ready

    def next(self, room: int, running: Collection[str]) -> list[Job]:
        """In the order in which the experiments ask."""
        if room <= 0:
            return []
        return [job for key, job in self.ready().items() if key not in running][:room]

    def announce(self, *, budget: int, over: bool) -> None:
        """Nobody needs to know: the folders say it."""

    def keep(self) -> None:
        """The folder's lock lives as long as this process."""

    def begin(self, job: Job) -> None:
        """The training makes its folder itself."""

    def end(self, job: Job, ended: Ended) -> TrialRecord:
        """It has left its result; one that failed for good ends the whole."""
        if ended.state == "failed":
            raise Refused(f"{job.key} failed: {ended.reason}; look at {self.pool.log_of(job)}")
        self._ready = None
        record = TrialRecord(
            key=job.key,
            number=len(self.ended),
            round=job.round,
            index=job.index,
            lr=job.lr,
            alpha=job.alpha,
            weight_decay=job.weight_decay,
            fraction=job.fraction,
            seed=job.seed,
            state=ended.state,
            accuracy=ended.accuracy,
            largest_scale=ended.largest_scale,
            reason=ended.reason,
            seconds=ended.seconds,
            folder=self.pool.folder_of(job),
        )
        self.ended[job.key] = record
        return record
