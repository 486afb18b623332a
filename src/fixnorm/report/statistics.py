"""Means and intervals over few seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Mean", "mean_of", "paired"]

_LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean with its spread."""

    mean: float
    deviation: float | None
    """Between the values; none of a single one."""
    half_width: float | None
    """Of the 95 % interval of the mean, by Student's t."""
    count: int

    def spread(self, digits: int = 2) -> str:
        """``68.34 ± 0.56``: mean and deviation."""
        text = f"{self.mean:.{digits}f}"
        return text if self.deviation is None else f"{text} ± {self.deviation:.{digits}f}"

    def interval(self, digits: int = 2) -> str:
        """``+0.37 [−0.17, +0.91]``: mean and its interval."""
        if self.half_width is None:
            return _signed(self.mean, digits)
        low, high = self.mean - self.half_width, self.mean + self.half_width
        return f"{_signed(self.mean, digits)} [{_signed(low, digits)}, {_signed(high, digits)}]"

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of independent values, with its spread and its interval."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return Mean(mean, None, None, count)
    from scipy.stats import t  # half a second to import

    deviation = statistics.stdev(values)
    quantile = float(t.ppf(0.5 + _LEVEL / 2, count - 1))
    return Mean(mean, deviation, quantile * deviation / math.sqrt(count), count)


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Mean:
    """Of the differences, seed by seed."""
    return mean_of([a - b for a, b in zip(ours, theirs, strict=True)])


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
