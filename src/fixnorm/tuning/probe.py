"""From a weight-decay recipe to a range of FixNorm learning rates.

In equilibrium weight decay turns the weights by about √(2·lr·λ / (1 + μ)) in a step. FixNorm's
rescale stands in for a decay λ_t of its own, so it turns them by the same amount when
lr_t·λ_t = lr·λ. λ_t grows in proportion to lr_t: one short training measures c = λ_t / lr_t, and
√(lr·λ / c) is the learning rate that turns the weights as the recipe does.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from fixnorm.training.folder import read_table

__all__ = ["decay_slope", "equivalent_lr", "range_around"]

_SPAN = 4.0
"""The paper's range [0.2, 3.2] reaches this far to both sides of its middle, 0.8."""


def decay_slope(metrics: Path) -> float:
    """c = λ_t / lr_t, the median over the epochs of a training."""
    advice = "give --lr-min and --lr-max instead of --from-weight-decay"
    table = read_table(metrics, advice=advice)
    pairs = zip(table.get("implied_decay", ()), table.get("lr", ()), strict=False)
    slopes = [decay / lr for decay, lr in pairs if decay is not None and lr is not None and lr > 0]
    slope = statistics.median(slopes) if slopes else math.nan
    if not (math.isfinite(slope) and slope > 0):
        raise ValueError(f"{metrics} shows no implied decay: {advice}")
    return slope


def equivalent_lr(lr: float, weight_decay: float, slope: float) -> float:
    """The FixNorm learning rate that turns the weights as (lr, weight decay) does."""
    return math.sqrt(lr * weight_decay / slope)


def range_around(lr: float) -> tuple[float, float]:
    """A range as wide as the paper's with this lr in its middle."""
    return float(f"{lr / _SPAN:.2g}"), float(f"{lr * _SPAN:.2g}")
