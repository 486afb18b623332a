"""How far a search came: the best so far against what was spent, and how sure the winner is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fixnorm.report.slots import SlotRecord, slots_of
from fixnorm.report.space import announced
from fixnorm.tuning.plans import PLANS
from fixnorm.tuning.record import StudyRecord

__all__ = ["Judgement", "Step", "answer", "cost_to_reach", "judge", "longest", "progress", "stage"]

Stage = Literal["empty", "running", "unfinished", "over"]


@dataclass(frozen=True)
class Step:
    """A full-length slot has ended."""

    cost: float
    """Spent until then, in T_max, short trainings included."""
    slot: SlotRecord
    best: SlotRecord | None
    """The best full-length slot until then; none if all gave no number."""


def longest(study: StudyRecord) -> float:
    """Full length: that of the longest trainings of the study."""
    known = announced(study).longest
    return max((trial.fraction for trial in study.trials), default=1.0) if known is None else known


def progress(study: StudyRecord) -> tuple[Step, ...]:
    """One step for each full-length slot, when the last of its seeds has ended.

    Short trainings are no candidates, since their accuracies are lower by nature, but what they
    cost is counted.
    """
    slots = {trial.key: slot for slot in slots_of(study) for trial in slot.trials}
    ended = [trial for trial in study.trials if trial.state != "running"]
    # A free trial may have no time of its own; it is filled in when its source is known.
    ended.sort(key=lambda trial: (math.inf if trial.ended is None else trial.ended, trial.number))
    left = {id(slot): len(slot.trials) for slot in slots.values()}
    full, cost = longest(study), 0.0
    best: SlotRecord | None = None
    steps = []
    for trial in ended:
        cost += trial.cost
        slot = slots[trial.key]
        left[id(slot)] -= 1
        if trial.fraction < full or left[id(slot)] or not slot.ended:
            continue
        best = best_of([slot] if best is None else [best, slot])
        steps.append(Step(round(cost, 9), slot, best))
    return tuple(steps)


def best_of(slots: Iterable[SlotRecord]) -> SlotRecord | None:
    """The slot with the best mean; the first of equals; none if there is no number."""
    best, best_mean = None, -math.inf
    for slot in slots:
        if slot.mean is not None and slot.mean > best_mean:
            best, best_mean = slot, slot.mean
    return best


def answer(study: StudyRecord) -> SlotRecord | None:
    """The slot of :meth:`~fixnorm.tuning.trial.StudyRecord.answer`."""
    best = study.answer()
    if best is None:
        return None
    at = (best.round, best.index)
    return next(slot for slot in slots_of(study) if (slot.first.round, slot.first.index) == at)


def cost_to_reach(study: StudyRecord) -> float | None:
    """What had been spent when the best full-length accuracy was reached, in T_max."""
    steps = progress(study)
    best = steps[-1].best if steps else None
    if best is None:
        return None
    return next(step.cost for step in steps if step.best and step.best.mean == best.mean)


def stage(study: StudyRecord) -> Stage:
    """How far it is; a search that was stopped between two trainings is unfinished."""
    if not study.trials:
        return "empty"
    if study.over:
        return "over"
    if any(trial.state == "running" for trial in study.trials):
        return "running"
    if study.over is not None:
        return "unfinished"
    plan = announced(study)
    if study.strategy in PLANS and PLANS[study.strategy].skips:  # no count tells its end
        begun = any(trial.round.kind == "alpha" for trial in study.trials)
        return "over" if begun or len(plan.alphas) < 2 else "unfinished"
    if plan.trainings is not None and len(study.trials) < plan.trainings:
        return "unfinished"
    return "over"


@dataclass(frozen=True)
class Judgement:
    """The winner against the next best training of its length."""

    winner: SlotRecord
    runner_up: SlotRecord
    difference: float
    """Of the means."""
    error: float | None
    """Its standard error, √(s₁²/n₁ + s₂²/n₂); none of single seeds."""

    @property
    def within(self) -> bool | None:
        """Whether the difference is less than its error; none where that is not known."""
        return None if self.error is None else self.difference < self.error


def judge(study: StudyRecord) -> Judgement | None:
    """Compare the winner with the runner-up; none where there are not two to compare.

    Slots that are free by the winner's training are that same training, no runners-up.
    """
    winner = answer(study)
    if winner is None or winner.mean is None:
        return None
    others = [
        slot
        for slot in slots_of(study)
        if slot.first.fraction == winner.first.fraction and slot.trainings != winner.trainings
    ]
    runner_up = best_of(others)
    if runner_up is None or runner_up.mean is None:
        return None
    error = None
    if winner.std is not None and runner_up.std is not None:
        error = math.hypot(
            winner.std / math.sqrt(len(winner.values)),
            runner_up.std / math.sqrt(len(runner_up.values)),
        )
    return Judgement(winner, runner_up, winner.mean - runner_up.mean, error)
