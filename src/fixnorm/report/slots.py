"""Trials by slot: one choice of numbers, trained once for each seed and judged by the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from fixnorm.report.space import announced
from fixnorm.tuning.record import State, StudyRecord, TrialRecord

__all__ = ["SlotRecord", "rounds_of", "slots_of"]


@dataclass(frozen=True)
class SlotRecord:
    """The trials of one slot."""

    trials: tuple[TrialRecord, ...]
    """In the order of their seeds."""
    seeds: int
    """How many there are to be."""
    trainings: frozenset[str]
    """The keys of the trainings behind them: those of two slots are equal if one is free."""

    @property
    def first(self) -> TrialRecord:
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
        states = [trial.state for trial in self.trials]
        return len(states) >= self.seeds and "running" not in states

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers that are there."""
        found = (trial.accuracy for trial in self.trials if trial.state != "running")
        return tuple(value for value in found if value is not None and math.isfinite(value))

    @property
    def mean(self) -> float | None:
        """Over the seeds; none before the last has ended, and where one gave no number."""
        if not self.ended or len(self.values) < len(self.trials):
            return None
        return math.fsum(self.values) / len(self.values)

    @property
    def std(self) -> float | None:
        """The sample standard deviation over the seeds; none of a single one."""
        if self.mean is None or len(self.values) < 2:
            return None
        return statistics.stdev(self.values)


def slots_of(study: StudyRecord) -> tuple[SlotRecord, ...]:
    """All slots with a trial: by round as the rounds began, in a round by place."""
    by_slot: dict[tuple[str, int], list[TrialRecord]] = {}
    for trial in sorted(study.trials, key=lambda trial: trial.number):
        by_slot.setdefault((trial.round, trial.index), []).append(trial)
    order = {name: place for place, name in enumerate(dict.fromkeys(r for r, _ in by_slot))}
    seeds = announced(study).seeds or max(map(len, by_slot.values()), default=1)
    by_key = {trial.key: trial for trial in study.trials}
    slots = []
    for _, trials in sorted(by_slot.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        trainings = frozenset(_training(trial, by_key) for trial in trials)
        ordered = tuple(sorted(trials, key=lambda trial: trial.seed))
        slots.append(SlotRecord(ordered, seeds, trainings))
    return tuple(slots)


def rounds_of(study: StudyRecord) -> dict[str, tuple[SlotRecord, ...]]:
    """The slots of each round, by its title."""
    rounds: dict[str, list[SlotRecord]] = {}
    for slot in slots_of(study):
        rounds.setdefault(slot.first.round, []).append(slot)
    return {title: tuple(slots) for title, slots in rounds.items()}


def _training(trial: TrialRecord, by_key: Mapping[str, TrialRecord]) -> str:
    """The key of the training whose value this is: a free trial's source, or its source's."""
    seen = {trial.key}
    while trial.source is not None and trial.source in by_key and trial.source not in seen:
        trial = by_key[trial.source]
        seen.add(trial.key)
    return trial.key
