"""What the tuner itself costs: per trial, and whether two workers take half the time of one.

    python benchmarks/tuner_overhead.py

100 instant trials of an in-process function with a study in an SQLite file; then a round of equal
trials, each half a second of sleep in a process of its own, by one worker and by two.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fixnorm
from timing import report

TRIALS = 100
SLEEP = 0.5


def instant(lr: float, alpha: float, steps: int) -> float:
    return -abs(lr - 1.0)


def equal(lr: float, alpha: float, steps: int) -> float:
    time.sleep(SLEEP)
    return -abs(lr - 1.0)


def seconds(train: Callable[..., float], **options: Any) -> float:
    """A search of one round of trials, in a new study."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        fixnorm.tune(
            train,
            steps=1,
            fractions=(1.0,),
            alphas=(1.0,),
            out=Path(folder),
            progress=False,
            **options,
        )
        return time.perf_counter() - started


def main() -> None:
    seconds(instant, splits=2)  # imports, and the first tables of a database
    taken = min(seconds(instant, splits=TRIALS) for _ in range(3)) / TRIALS
    report("our own time for a trial", 1000 * taken, target=50, unit="ms")
    warm = {workers: seconds(instant, splits=2, workers=workers) for workers in (2,)}[2]
    one = seconds(equal, splits=12)
    two = seconds(equal, splits=12, workers=2) - warm
    print(f"12 trials of {SLEEP:g} s: one worker {one:.2f} s, two {two:.2f} s (after {warm:.1f} s")
    print("in which their processes start and import)")
    report("two workers by one", two / one, target=0.6)


if __name__ == "__main__":
    main()
