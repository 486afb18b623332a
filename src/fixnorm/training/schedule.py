"""The learning rate over a training: linear warm-up, then one cosine to zero."""

from __future__ import annotations

import math


def multiplier(step: int, *, steps: int, warmup: int) -> float:
    """η_t of Algorithm 1, by which the peak learning rate is multiplied at step t = 0, 1, …

    >>> [round(multiplier(t, steps=6, warmup=2), 3) for t in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
