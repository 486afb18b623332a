"""Timing side by side: alternated rounds, so that a busy machine slows all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["alternate", "ratio"]


def alternate(runs: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, list[float]]:
    """Seconds of each run in each round; one round runs every one of them once."""
    for run in runs.values():
        run()  # warm-up: caches, lazily made state
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], one: str, other: str) -> float:
    """Median over the rounds of one run's time by the other's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))
