"""What the tuner itself costs: per trial, and whether two workers take half the time of one.

    python benchmarks/tuner_overhead.py

100 instant trials of an in-process function with a study in an SQLite file; then a round of equal
trials by the local engine, a process each that sleeps for a second, by one worker and by two.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fixnorm
from fixnorm import recipes
from fixnorm.tuning.driver import Watcher, drive
from fixnorm.tuning.local_engine import LocalEngine
from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.run import RecipeSearch, TrialRuns
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import PlanStrategy
from fixnorm.tuning.trial import Trial
from timing import report

TRIALS, EQUAL = 100, 12
SLEEPER = """
import json, pathlib, sys, time
time.sleep(1)
out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True)
result = {"accuracy": 1.0, "diverged": False, "largest_scale": None, "seconds": 1.0}
(out / "result.json").write_text(json.dumps(result))
"""


def space(splits: int) -> SearchSpace:
    """One round of so many trials."""
    return SearchSpace(splits=splits, fractions=(1.0,), alphas=(1.0,))


def instant(lr: float, alpha: float, steps: int) -> float:
    return -abs(lr - 1.0)


def of_function(train: Callable[..., float], splits: int) -> float:
    """Seconds of a search in a new study."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        fixnorm.tune(
            train,
            steps=1,
            splits=splits,
            fractions=(1.0,),
            alphas=(1.0,),
            out=Path(folder),
            progress=False,
        )
        return time.perf_counter() - started


@dataclass(frozen=True, kw_only=True)
class Sleepers(TrialRuns):
    """Runs that sleep instead of training."""

    def command(self, trial: Trial) -> list[str]:
        """A second of sleep, then a result."""
        return [sys.executable, "-I", "-S", "-c", SLEEPER, str(self.folder_of(trial))]


def of_processes(workers: int) -> float:
    """Seconds of a search by the local engine, the start of every process included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = Sleepers(
            recipe=recipes.get("digits"), settings=(), data=None, folder=folder / "runs"
        )
        equal = RecipeSearch(
            strategy=PlanStrategy(space=space(EQUAL)),
            runs=runs,
            storage=Storage.in_folder(folder),
        )
        started = time.perf_counter()
        with equal.owned() as search:
            drive(search, LocalEngine(runs, workers=workers), Watcher())
        return time.perf_counter() - started


def main() -> None:
    of_function(instant, 2)  # imports
    taken = min(of_function(instant, TRIALS) for _ in range(3)) / TRIALS
    report("our own time for a trial", 1000 * taken, target=50, unit="ms")
    one, two = of_processes(1), of_processes(2)
    print(f"{EQUAL} trials of a second: one worker {one:.2f} s, two {two:.2f} s")
    report("two workers by one", two / one, target=0.6)


if __name__ == "__main__":
    main()
