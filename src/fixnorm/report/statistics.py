"""Means and intervals over few seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

__all__ = ["Mean", "mean_of", "paired", "pairs_for"]

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


def pairs_for(difference: float, deviation: float, *, power: float = 0.8) -> int:
    """How many pairs show a difference, with that chance, as one outside of its 95 % interval.

    ``deviation`` is that of the differences of pairs; by Student's t, two-sided.
    """
    from scipy.stats import nct, t

    if not deviation > 0:
        return 2
    normal = NormalDist()
    needed = normal.inv_cdf(0.5 + _LEVEL / 2) + normal.inv_cdf(power)
    count = max(int((needed * deviation / difference) ** 2), 2)  # Student's t needs a few more
    while True:
        freedom, effect = count - 1, difference / deviation * math.sqrt(count)
        least = float(t.ppf(0.5 + _LEVEL / 2, freedom))
        if float(nct.sf(least, freedom, effect)) >= power:
            return count
        count += 1


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
