"""What a search would answer at every moment, judged by the truth."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from fixnorm.evidence.landscapes import Landscape

__all__ = ["Step", "Trace", "Tracker"]


@dataclass(frozen=True)
class Step:
    """From this cost on the answer is this point."""

    cost: float
    """Spent until then, in T_max."""
    lr: float
    level: float
    observed: float
    """What its training gave: the noise that won is in it."""
    accuracy: float
    """What the landscape has there on average: the truth."""


@dataclass(frozen=True)
class Trace:
    """One replay."""

    steps: tuple[Step, ...]
    cost: float
    """At its end, in T_max."""
    trainings: int

    @property
    def end(self) -> Step:
        """The answer."""
        return self.steps[-1]

    def at(self, cost: float) -> Step | None:
        """The answer when this much was spent; none before the first training has ended."""
        place = bisect_right(self.steps, cost + 1e-9, key=lambda step: step.cost)
        return self.steps[place - 1] if place else None


class Tracker:
    """The answer so far: the best training among the longest, the first of equals.

    Short trainings have lower accuracies by nature, so the first of a greater length takes over,
    as in ``fixnorm tune``. The truth of the answer may fall when a lucky training takes over;
    what was observed never does among trainings of one length.
    """

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self._steps: list[Step] = []
        self._length = 0.0
        self._cost = 0.0
        self._trainings = 0

    def trained(
        self, lr: float, level: float, *, observed: float, length: float, cost: float
    ) -> None:
        """A training is ``length`` long now, by ``cost`` more; less where it was continued."""
        self._cost = round(self._cost + cost, 9)
        self._trainings += cost == length
        longer = length > self._length
        if longer or (length == self._length and observed > self._steps[-1].observed):
            self._length = length
            self._answer(lr, level, observed)

    def end(self, answer: tuple[float, float] | None = None) -> Trace:
        """The trace; with the answer (lr, level) where the strategy has its own word on it."""
        last = self._steps[-1]
        if answer is not None and answer != (last.lr, last.level):
            self._answer(*answer, last.observed)
        return Trace(tuple(self._steps), self._cost, self._trainings)

    def _answer(self, lr: float, level: float, observed: float) -> None:
        accuracy = self._landscape.mean(lr, level)
        self._steps.append(Step(self._cost, lr, level, observed, accuracy))
