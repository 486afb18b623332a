"""The words of a search: a round, a trial of it, the result of a trial, and the record of them all.

A *trial* is one training. A *slot* is one choice of numbers, trained once for each seed and judged
by the mean; the trial of its first seed stands for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "ANEW", "AUTO", "POINTS", "Lr", "Result", "Round", "State", "StudyRecord", "Trial", "mean_of",
    "shown_lr", "ties_in_order",
]  # fmt: skip

AUTO: Literal["auto"] = "auto"
"""In the place of a learning rate: it follows from the sphere, without a search."""
Lr = float | Literal["auto"]
State = Literal["running", "trained", "free", "diverged", "failed"]


class Round(str):
    """A round of a search: a text, for that is what people see of it, that knows its data."""

    kind: str
    """What it tunes, ``"lr"`` or ``"alpha"``; ``"trunk"`` is the training of the largest alpha that
    the others branch from, ``"points"`` are those of a sampler, ``"anew"`` compares."""
    number: int
    """Its place among the rounds of a plan, from 0."""

    def __new__(cls, kind: str, number: int = 0) -> Round:
        titles = {"lr": f"lr round {number + 1}", "alpha": "alpha round"}
        made = super().__new__(cls, titles.get(kind, kind))
        made.kind, made.number = kind, number
        return made

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return self.kind, self.number

    @classmethod
    def read(cls, title: str) -> Round:
        """Of a study on disk, which has the title alone."""
        found = re.fullmatch(r"lr round ([1-9][0-9]{0,3})", title)
        if found:
            return cls("lr", int(found[1]) - 1)
        return cls("alpha" if title == "alpha round" else title)


POINTS = Round("points")
"""The round of all points that a sampler chooses."""
ANEW = Round("anew")
"""The round of a comparison: an answer and its rival, trained anew."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a trial ended."""

    state: Literal["trained", "free", "diverged", "failed"] = "trained"
    accuracy: float | None = None
    """In percent, or any number of which more is better; none where the training has none."""
    largest_scale: float | None = None
    """The largest |g|/√C of the training, if it is known."""
    reason: str | None = None
    """Why it has no accuracy."""
    seconds: float | None = None
    source: str | None = None
    """Of a free trial: the key of the one that it equals, bit for bit."""
    ended: float | None = None
    """When, in seconds since 1970."""
    share: float = 1.0
    """Of its steps, those that it trained itself: a branch takes the others from its trunk."""
    images: int | None = None
    """Validation images behind the accuracy, where it is a share of them and they are known."""

    @property
    def finite(self) -> bool:
        """Whether there is a number to compare."""
        return self.accuracy is not None and math.isfinite(self.accuracy)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training: what is to be trained, and in a study what has become of it."""

    round: Round
    index: int
    """Its slot's place in the round."""
    lr: Lr
    alpha: float | None = None
    weight_decay: float | None = None
    fraction: float = 1.0
    """Its length in T_max."""
    seed: int = 0
    branch_of: str | None = None
    """The slot, such as ``trunk-5``, whose training of the same seed is this one's, too, until g
    meets the cap of this one."""
    key: str = ""
    """Its name in the study and of its folder, such as ``lr1-2-seed0`` or ``point-017``."""
    number: int = 0
    """Its place in the order in which the trials of a study began."""
    folder: Path | None = None
    """The run's folder, with ``metrics.csv`` and ``result.json``; none of a free trial."""
    result: Result | None = None
    """None before its end."""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", self._key())

    def _key(self) -> str:
        if self.round == POINTS:
            return f"point-{self.index:03}"
        return f"{self.slot_name}-seed{self.seed}"

    @property
    def slot_name(self) -> str:
        """What the keys of all its seeds begin with."""
        name = f"lr{self.round.number + 1}" if self.round.kind == "lr" else self.round.kind
        return f"{name}-{self.index}"

    @property
    def trunk(self) -> str | None:
        """The key of the trial that it branches from."""
        return None if self.branch_of is None else f"{self.branch_of}-seed{self.seed}"

    @property
    def rate(self) -> float:
        """The learning rate of a search that has one in numbers."""
        if self.lr == AUTO:
            raise ValueError(f"{self.key} has no learning rate of its own: it is {self.lr}")
        return self.lr

    @property
    def asked(self) -> Trial:
        """What is to be trained alone: equal for equal trainings, whatever became of them."""
        if self.result is None and self.folder is None and not self.number:
            return self
        return replace(self, number=0, folder=None, result=None)

    @property
    def slot(self) -> Trial:
        """Its slot, which all seeds have in common: the trial of the first."""
        return self.seeded(0)

    def seeded(self, seed: int) -> Trial:
        """The same slot with another seed."""
        return self if seed == self.seed else replace(self, seed=seed, key="")

    def numbers(self) -> str:
        """What is tuned, for people."""
        if self.alpha is not None:
            return f"lr {shown_lr(self.lr)}, alpha {self.alpha:g}"
        return f"lr {shown_lr(self.lr, '.3g')}, weight decay {self.weight_decay:.2e}"

    # -- its result, as far as there is one ----------------------------------------------------

    @property
    def state(self) -> State:
        return "running" if self.result is None else self.result.state

    @property
    def accuracy(self) -> float | None:
        """None while running, and where the training diverged or failed."""
        return None if self.result is None else self.result.accuracy

    @property
    def largest_scale(self) -> float | None:
        return None if self.result is None else self.result.largest_scale

    @property
    def reason(self) -> str | None:
        return None if self.result is None else self.result.reason

    @property
    def seconds(self) -> float | None:
        return None if self.result is None else self.result.seconds

    @property
    def source(self) -> str | None:
        return None if self.result is None else self.result.source

    @property
    def ended(self) -> float | None:
        return None if self.result is None else self.result.ended

    @property
    def cost(self) -> float:
        """In T_max: what it trained itself; nothing for a free trial."""
        if self.state == "free":
            return 0.0
        return self.fraction * (1.0 if self.result is None else self.result.share)


def shown_lr(lr: Lr, digits: str = "g") -> str:
    """A learning rate for people."""
    return lr if lr == AUTO else format(lr, digits)


def ties_in_order(slots: Iterable[Trial]) -> list[Trial]:
    """As ties are decided, the first of equals wins: a trunk, of the largest alpha, comes last."""
    return sorted(slots, key=lambda slot: slot.round.kind == "trunk")


def mean_of(results: Iterable[Result | None]) -> float | None:
    """The accuracy of a slot over its seeds: −∞ if one failed, none while one is missing."""
    there = list(results)
    if any(result is None for result in there):
        return None
    values = [r.accuracy for r in there if r is not None and r.accuracy is not None and r.finite]
    return math.fsum(values) / len(values) if len(values) == len(there) else -math.inf


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What a search did, as plain values: all that its tables and drawings are made of."""

    name: str
    method: str
    """``"fixnorm"`` or ``"bo-weight-decay"``."""
    strategy: str
    """A plan's name, or that of a sampler."""
    metric: str
    """What is maximised, for people: ``"accuracy (%)"``."""
    settings: Mapping[str, Any]
    """All that the search depends on: space, seeds, budget, recipe."""
    folder: Path | None = None
    trials: tuple[Trial, ...] = field(default=())
    over: bool | None = None
    """Whether the search has come to its end; none where nobody has said."""

    @property
    def cost(self) -> float:
        """What has been spent, in T_max."""
        return round(sum(trial.cost for trial in self.trials if trial.state != "running"), 9)

    @property
    def seeds(self) -> int:
        """Trainings of each slot."""
        space = self.settings.get("space")
        said = (space if isinstance(space, Mapping) else self.settings).get("seeds")
        if isinstance(said, int) and not isinstance(said, bool) and said > 0:
            return said
        return max(map(len, self._grouped().values()), default=1)

    def slots(self) -> list[tuple[Trial, ...]]:
        """The trials of each slot by seed: by round as the rounds began, in a round by place."""
        grouped = self._grouped()
        order = list(dict.fromkeys(round_ for round_, _ in grouped))
        places = sorted(grouped, key=lambda place: (order.index(place[0]), place[1]))
        return [tuple(sorted(grouped[place], key=lambda t: t.seed)) for place in places]

    def _grouped(self) -> dict[tuple[str, int], list[Trial]]:
        grouped: dict[tuple[str, int], list[Trial]] = {}
        for trial in sorted(self.trials, key=lambda trial: trial.number):
            grouped.setdefault((trial.round, trial.index), []).append(trial)
        return grouped

    def answer(self) -> Trial | None:
        """The best slot with its mean accuracy: the one definition, of every view of a search.

        At the end it is Algorithm 4's: the best slot of all rounds, the first of equals
        (:func:`ties_in_order`). Until then the longest trainings alone count: a short one is there
        to bound the range of the next round, and what it found is not yet set against what the
        long ones will find. A slot counts when all its seeds have ended, unless one has no number.
        """
        seeds, best = self.seeds, None
        ended = {s[0]: mean_of(t.result for t in s) for s in self.slots() if len(s) >= seeds}
        known = {s: mean for s, mean in ended.items() if mean is not None and mean > -math.inf}
        longest = max((slot.fraction for slot in known), default=0.0)
        for slot in ties_in_order(known):
            if self.over is False and slot.fraction < longest:
                continue
            if best is None or known[slot] > best[1]:
                best = slot, known[slot]
        return None if best is None else judged(*best)


def judged(slot: Trial, accuracy: float) -> Trial:
    """A slot with its mean for a result."""
    return replace(slot.asked, result=Result(accuracy=accuracy))
