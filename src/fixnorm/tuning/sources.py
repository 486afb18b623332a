"""What to train next: a plan over slots, or a sampler over points."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from fixnorm.tuning.driver import Decider
from fixnorm.tuning.job import Job, job_of, outcome_of, trial_of
from fixnorm.tuning.plan import Advice, Outcome, Outcomes, SearchSpace, Trial
from fixnorm.tuning.record import TrialRecord
from fixnorm.tuning.slots import check_slots
from fixnorm.tuning.study import Study

__all__ = ["Best", "Plan", "PlanSource", "SamplerSource", "Source"]

Plan = Callable[[SearchSpace, Outcomes], Advice]


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best of a search; the accuracy is a mean where there are several seeds."""

    lr: float
    alpha: float | None
    weight_decay: float | None
    accuracy: float


class Source(Decider, Protocol):
    """Decides; reads and writes nothing but the study."""

    @property
    def cost(self) -> float:
        """The most that the trainings cost, in T_max."""

    def best(self) -> Best | None:
        """The best so far."""


class PlanSource:
    """Algorithm 4, or a plan like it."""

    def __init__(self, study: Study, space: SearchSpace, plan: Plan) -> None:
        self.study, self.space, self._plan = study, space, plan
        self.trainings, self.cost = space.trainings, space.cost
        try:
            check_slots(study.record().trials, space, plan)
        except ValueError as error:
            raise ValueError(
                f"study {study.name!r} cannot go on: {error}; give it another name or place"
            ) from None

    def next(self, room: int, running: Collection[str]) -> list[Job]:
        """What the plan says; slots that need no training are filled on the way."""
        while True:
            advice = self.advice()
            if not advice.free:
                jobs = [self._job(advice, trial) for trial in advice.train]
                return [job for job in jobs if job.key not in running][:room]
            for trial, source in advice.free.items():
                self.study.fill(self._job(advice, trial), self._job(advice, source).key)

    def best(self) -> Best | None:
        """Of the finished slots of the last round that has one, or of the end."""
        advice = self.advice()
        if advice.answer is None:
            return _best_of(self.study.ended.values())
        answer = advice.answer
        return Best(lr=answer.lr, alpha=answer.alpha, weight_decay=None, accuracy=answer.accuracy)

    def advice(self) -> Advice:
        """The plan's word on the study as it is."""
        return self._plan(self.space, self._outcomes())

    def _outcomes(self) -> dict[Trial, Outcome]:
        lr_rounds = len(self.space.fractions)
        return {
            trial_of(record, lr_rounds=lr_rounds): outcome_of(record)
            for record in self.study.ended.values()
        }

    def _job(self, advice: Advice, trial: Trial) -> Job:
        return job_of(trial, advice.rounds[trial.slot.round])


class SamplerSource:
    """Points that Optuna's sampler chooses, one training each."""

    def __init__(self, study: Study, budget: int) -> None:
        self.study, self.trainings, self.cost = study, budget, float(budget)

    def next(self, room: int, running: Collection[str]) -> list[Job]:
        """First what a killed driver left; then new points up to the budget."""
        jobs = [job for job in self.study.left_running if job.key not in running][:room]
        while len(jobs) < room and self.study.begun < self.trainings:
            jobs.append(self.study.ask())
        return jobs

    def best(self) -> Best | None:
        """The best point so far."""
        return _best_of(self.study.ended.values())


def _best_of(records: Collection[TrialRecord]) -> Best | None:
    """The longest trainings count, so that short rounds are not mixed in."""
    done = [record for record in records if record.accuracy is not None]
    if not done:
        return None
    longest = max(record.fraction for record in done)
    best = max(
        (record for record in done if record.fraction == longest),
        key=lambda record: record.accuracy if record.accuracy is not None else -math.inf,
    )
    assert best.accuracy is not None
    return Best(
        lr=best.lr, alpha=best.alpha, weight_decay=best.weight_decay, accuracy=best.accuracy
    )
