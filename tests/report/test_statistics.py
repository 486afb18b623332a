"""Means and intervals that a person can check."""

from __future__ import annotations

import math

import pytest

from fixnorm.evidence.experiment import at_least, greater
from fixnorm.report.statistics import mean_of, paired


def test_interval_of_three_values() -> None:
    found = mean_of([1.0, 2.0, 3.0])

    assert found.mean == 2.0
    assert found.deviation == 1.0
    assert found.half_width == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)  # t(0.975, 2)
    assert found.spread() == "2.00 ± 1.00"
    assert found.interval() == "+2.00 [−0.48, +4.48]"
    assert not found.clear


def test_one_value_has_no_interval() -> None:
    found = mean_of([2.5])

    assert (found.deviation, found.half_width, found.clear) == (None, None, False)
    assert (found.spread(), found.interval()) == ("2.50", "+2.50")


def test_pairs_are_by_seed() -> None:
    found = paired([11.0, 21.0, 31.1], [10.0, 20.0, 30.0])

    assert found.mean == pytest.approx(1.0333, abs=1e-4)
    assert found.half_width is not None
    assert found.half_width < 0.15
    assert found.clear
    with pytest.raises(ValueError, match="zip"):
        paired([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("values", "better", "as_good"),
    [
        ([1.0, 1.1, 1.2], "holds", "holds"),
        ([-1.0, -1.1, -1.2], "does not hold", "does not hold"),
        ([-1.0, 1.0, 0.5], "cannot be told", "not contradicted"),
        ([-0.1, 0.1, 0.0], "cannot be told", "holds"),
        ([1.0], "cannot be told", "cannot be told"),
    ],
)
def test_verdicts(values: list[float], better: str, as_good: str) -> None:
    assert greater(mean_of(values)) == better
    assert at_least(mean_of(values)) == as_good
