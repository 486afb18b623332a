"""One training as the study and the engines know it, and how it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fixnorm.tuning.plan import Outcome, Round, Slot, Trial
from fixnorm.tuning.record import TrialRecord

__all__ = ["Ended", "Job", "job_of", "outcome_of", "trial_of"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training to run."""

    key: str
    """Its name in the study and of its folder."""
    round: str
    index: int
    lr: float
    alpha: float | None = None
    weight_decay: float | None = None
    fraction: float = 1.0
    """Its length in T_max."""
    seed: int = 0

    def numbers(self) -> str:
        """What is tuned, for people."""
        if self.alpha is not None:
            return f"lr {self.lr:g}, alpha {self.alpha:g}"
        return f"lr {self.lr:.3g}, weight decay {self.weight_decay:.2e}"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a training ended."""

    state: Literal["trained", "diverged", "failed"]
    accuracy: float | None = None
    largest_scale: float | None = None
    reason: str | None = None
    seconds: float | None = None


def job_of(trial: Trial, round: Round) -> Job:
    """The training of a plan's trial."""
    slot = trial.slot
    name = f"lr{slot.round + 1}" if round.kind == "lr" else "alpha"
    return Job(
        key=f"{name}-{slot.index}-seed{trial.seed}",
        round=round.title,
        index=slot.index,
        lr=slot.lr,
        alpha=slot.alpha,
        fraction=slot.fraction,
        seed=trial.seed,
    )


def trial_of(record: TrialRecord, *, lr_rounds: int) -> Trial:
    """The plan's trial that a record is of: the inverse of :func:`job_of`."""
    assert record.alpha is not None
    number = int(record.round.split()[-1]) - 1 if record.round.startswith("lr") else lr_rounds
    slot = Slot(number, record.index, record.lr, record.alpha, record.fraction)
    return Trial(slot, record.seed)


def outcome_of(record: TrialRecord) -> Outcome:
    """What the plan needs to know of it."""
    accuracy = -math.inf if record.accuracy is None else record.accuracy
    return Outcome(accuracy, record.largest_scale)
