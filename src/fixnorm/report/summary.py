"""What the record of a search says: its slots, the best of them, how far it came and how sure.

Which trial is the best is the search's own answer; what is made of it for people is made here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.plans import PLANS
from fixnorm.tuning.ties import level
from fixnorm.tuning.trial import State, StudyRecord, Trial, mean_of

__all__ = [
    "Announced", "Judgement", "Range", "Slot", "Stage", "Step", "announced", "answer", "best_of",
    "best_study", "cost_to_reach", "judge", "longest", "progress", "rounds_of", "slots_of", "stage",
    "ties",
]  # fmt: skip

Range = tuple[float, float]
Stage = Literal["empty", "running", "unfinished", "over"]


# -- what was announced before it began ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Announced:
    """The bounds of a search; none where its settings do not say."""

    cost: float | None = None
    """The most that it costs, in T_max."""
    trainings: int | None = None
    """The most trainings that it takes, free ones included."""
    lr: Range | None = None
    weight_decay: Range | None = None
    alphas: tuple[float, ...] = ()
    seeds: int | None = None
    longest: float | None = None
    """The length of its longest trainings, in T_max."""


def announced(study: StudyRecord) -> Announced:
    """Read from the settings, or from their part ``space``: the fields of ``SearchSpace``.

    A baseline has ``budget`` (trainings), ``lr_min``, ``lr_max``, ``weight_decay_min`` and
    ``weight_decay_max``.
    """
    inner = study.settings.get("space")
    said = {**study.settings, **(inner if isinstance(inner, Mapping) else {})}
    lr = _range(said, "lr")
    seeds = _count(said.get("seeds"))
    if study.method != "fixnorm":
        budget = _count(said.get("budget"))
        trainings = None if budget is None else budget * (seeds or 1)
        return Announced(
            cost=trainings,
            trainings=trainings,
            lr=lr,
            weight_decay=_range(said, "weight_decay"),
            seeds=seeds,
            longest=1.0,
        )
    plan = PLANS.get(study.strategy, PLANS["paper"])
    try:
        given: dict[str, Any] = {name: said[name] for name in plan.uses if name != "seeds"}
        for name in given.keys() & {"fractions", "alphas"}:
            given[name] = tuple(given[name])
        space = SearchSpace(**given, seeds=seeds or 1)
    except (KeyError, TypeError, ValueError):
        return Announced(lr=lr, seeds=seeds)
    return Announced(
        cost=plan.cost(space),
        trainings=plan.trainings(space),
        lr=(space.lr_min, space.lr_max) if plan.searches_lr else None,
        alphas=space.alphas,
        seeds=space.seeds,
        longest=plan.longest(space),
    )


def _range(said: Mapping[str, Any], name: str) -> Range | None:
    low, high = said.get(f"{name}_min"), said.get(f"{name}_max")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def longest(study: StudyRecord) -> float:
    """Full length: that of the longest trainings of the study."""
    known = announced(study).longest
    return max((trial.fraction for trial in study.trials), default=1.0) if known is None else known


# -- slots and rounds ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """The trials of one choice of numbers, one for each seed, judged by their mean."""

    trials: tuple[Trial, ...]
    """In the order of their seeds."""
    seeds: int
    """How many there are to be."""
    trainings: frozenset[str]
    """The keys of the trainings behind them: those of two slots are equal if one is free."""

    @property
    def first(self) -> Trial:
        """Any of its trials stands for what all have in common."""
        return self.trials[0]

    @property
    def state(self) -> State:
        """Of all its seeds: what went wrong with one went wrong with the slot."""
        states = {trial.state for trial in self.trials}
        for state in ("failed", "diverged", "running"):
            if state in states:
                return state
        if len(self.trials) < self.seeds:
            return "running"
        return "free" if states == {"free"} else "trained"

    @property
    def ended(self) -> bool:
        """Whether all its seeds have."""
        return len(self.trials) >= self.seeds and all(trial.result for trial in self.trials)

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers that are there."""
        found = (trial.accuracy for trial in self.trials)
        return tuple(value for value in found if value is not None and math.isfinite(value))

    @property
    def mean(self) -> float | None:
        """Over the seeds; none before the last has ended, and where one gave no number."""
        mean = mean_of(trial.result for trial in self.trials) if self.ended else None
        return None if mean == -math.inf else mean

    def ties_with(self, best: Slot) -> bool:
        """Whether it is level with the best one, as far as the validation images can tell."""
        here, there = ([trial.result for trial in slot.trials] for slot in (self, best))
        return self.ended and best.ended and level(there, here)

    @property
    def std(self) -> float | None:
        """The sample standard deviation over the seeds; none of a single one."""
        if self.mean is None or len(self.values) < 2:
            return None
        return statistics.stdev(self.values)


def slots_of(study: StudyRecord) -> tuple[Slot, ...]:
    """All slots with a trial: by round as the rounds began, in a round by place."""
    by_key = {trial.key: trial for trial in study.trials}
    return tuple(
        Slot(trials, study.seeds, frozenset(_training(trial, by_key) for trial in trials))
        for trials in study.slots()
    )


def _training(trial: Trial, by_key: Mapping[str, Trial]) -> str:
    """The key of the training whose value this is: a free trial's source, or its source's."""
    seen = {trial.key}
    while trial.source is not None and trial.source in by_key and trial.source not in seen:
        trial = by_key[trial.source]
        seen.add(trial.key)
    return trial.key


def rounds_of(study: StudyRecord, kind: str) -> dict[str, tuple[Slot, ...]]:
    """The slots of each round that tunes this number, by its title."""
    rounds: dict[str, tuple[Slot, ...]] = {}
    for slot in slots_of(study):
        if slot.first.round.kind == kind:
            rounds[slot.first.round] = (*rounds.get(slot.first.round, ()), slot)
    return rounds


# -- the best, and what it cost --------------------------------------------------------------------


def best_of(slots: Iterable[Slot]) -> Slot | None:
    """The slot with the best mean; the first of equals; none if there is no number."""
    known = [slot for slot in slots if slot.mean is not None]
    return max(known, key=lambda slot: slot.mean or 0.0, default=None)


def answer(study: StudyRecord) -> Slot | None:
    """The slot of :meth:`~fixnorm.tuning.trial.StudyRecord.answer`, with all its seeds."""
    best = study.answer()
    if best is None:
        return None
    at = (best.round, best.index)
    return next(slot for slot in slots_of(study) if (slot.first.round, slot.first.index) == at)


def ties(study: StudyRecord) -> tuple[Slot, ...]:
    """Other trainings of the answer's length that are level with it."""
    best = answer(study)
    return () if best is None else tuple(s for s in _rivals(study, best) if s.ties_with(best))


def _rivals(study: StudyRecord, winner: Slot) -> list[Slot]:
    """All others of its length; slots that are free by its training are that same training."""
    return [
        slot
        for slot in slots_of(study)
        if slot.first.fraction == winner.first.fraction and slot.trainings != winner.trainings
    ]


def best_study(studies: Iterable[StudyRecord]) -> StudyRecord | None:
    """The study with the best answer; the first of equals; none if none has one."""
    means = [(best.mean or 0.0, study) for study in studies if (best := answer(study)) is not None]
    return max(means, key=lambda pair: pair[0], default=(None, None))[1]


@dataclass(frozen=True)
class Step:
    """The end of a slot of full length."""

    cost: float
    """Spent until then, in T_max, short trainings included."""
    slot: Slot
    best: Slot | None
    """The best full-length slot until then; none if all gave no number."""

    @property
    def value(self) -> float | None:
        """The mean of the best until then."""
        return None if self.best is None else self.best.mean


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
    best: Slot | None = None
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


def cost_to_reach(study: StudyRecord) -> float | None:
    """What had been spent when the best full-length accuracy was reached, in T_max."""
    known = [step for step in progress(study) if step.value is not None]
    return next((step.cost for step in known if step.value == known[-1].value), None)


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

    runner_up: Slot
    difference: float
    """Of the means."""
    error: float | None
    """Its standard error, √(s₁²/n₁ + s₂²/n₂); none of single seeds."""

    @property
    def within(self) -> bool | None:
        """Whether the difference is less than its error; none where that is not known."""
        return None if self.error is None else self.difference < self.error


def judge(study: StudyRecord) -> Judgement | None:
    """Compare the winner with the runner-up; none where there are not two to compare."""
    winner = answer(study)
    if winner is None or winner.mean is None:
        return None
    runner_up = best_of(_rivals(study, winner))
    if runner_up is None or runner_up.mean is None:
        return None
    error = None
    if winner.std is not None and runner_up.std is not None:
        error = math.hypot(
            winner.std / math.sqrt(len(winner.values)),
            runner_up.std / math.sqrt(len(runner_up.values)),
        )
    return Judgement(runner_up, winner.mean - runner_up.mean, error)
