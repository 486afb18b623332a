"""What happens when: the lengths of a training in steps, and the learning rate over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Schedule", "Timetable", "multiplier"]

Schedule = Literal["cosine", "poly", "step"]

POWER = 0.9
"""Of ``poly``, as segmenters have it."""
DROPS = (2 / 3, 8 / 9)
"""Where ``step`` divides by 10: at 60,000 and 80,000 of a detector's 90,000 iterations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timetable:
    """A recipe's lengths in optimizer steps."""

    steps: int
    warmup: int
    row: int
    """Steps between two lines of ``metrics.csv``."""
    evaluation: int
    """Steps between evaluations; the last step is always evaluated."""


def multiplier(step: int, *, steps: int, warmup: int, schedule: Schedule = "cosine") -> float:
    """η_t of Algorithm 1, by which the peak learning rate is multiplied at step t = 0, 1, …

    >>> [round(multiplier(t, steps=6, warmup=2), 3) for t in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / (steps - warmup)
    if schedule == "poly":
        return float((1 - done) ** POWER)
    if schedule == "step":
        # Of the whole training: a warm-up does not move the drops.
        return float(0.1 ** sum(step >= round(drop * steps) for drop in DROPS))
    return 0.5 * (1 + math.cos(math.pi * done))
