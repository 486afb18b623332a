"""What the tuner itself costs: per trial, and whether two workers take half the time of one.

    python benchmarks/tuner_overhead.py

100 instant trials of an in-process function with a study in an SQLite file. Then a round of trials
by the local engine, each a fork of a process that has imported what trainings do: how long one
takes to start, and all of a trial that does nothing, from its start to the start of the next. Then
a round of trials that sleep for a second, by one worker and by two.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

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

TRIALS, FORKS, EQUAL = 100, 30, 12
PROGRAM = """
import json, pathlib, sys, time
began, seconds, out = time.time(), float(sys.argv[1]), pathlib.Path(sys.argv[2])
time.sleep(seconds)
out.mkdir(parents=True)
result = {"metric": "accuracy", "accuracy": 1.0, "diverged": False, "epochs": 1,
          "largest_scale": None, "seconds": seconds, "recipe": json.loads(sys.argv[3])}
(out / "result.json").write_text(json.dumps(result))
(out / "began").write_text(repr(began))
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
class Programs(TrialRuns):
    """Runs that sleep instead of training, in processes that have imported what trainings do."""

    seconds: float

    def command(self, trial: Trial) -> list[str]:
        """Some sleep, then a result."""
        recipe = json.dumps(self.recipe_of(trial).to_dict())
        given = (str(self.seconds), str(self.folder_of(trial)), recipe)
        return [sys.executable, "-c", PROGRAM, *given]


class Clock(Watcher):
    """When trials were started, and when they ended."""

    def __init__(self) -> None:
        self.start: dict[str, float] = {}
        self.end: list[float] = []

    def started(self, trial: Trial) -> None:
        self.start[trial.key] = time.time()

    def ended(self, trial: Trial) -> None:
        self.end.append(time.time())


def of_processes(trials: int, *, workers: int, seconds: float) -> tuple[float, float]:
    """Seconds until a trial begins and seconds of a trial, once the first has ended."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digits = recipes.get("digits")
        runs = Programs(
            recipe=digits, settings=(), data=None, folder=folder / "runs", seconds=seconds
        )
        equal = RecipeSearch(
            strategy=PlanStrategy(space=space(trials)),
            runs=runs,
            storage=Storage.in_folder(folder),
        )
        clock = Clock()
        with equal.owned() as search:
            drive(search, LocalEngine(runs, workers=workers), clock)
        starts = [
            float((runs.folder / key / "began").read_text()) - start
            for key, start in list(clock.start.items())[workers:]
        ]
        return median(starts), (clock.end[-1] - clock.end[0]) / (len(clock.end) - 1)


def main() -> None:
    of_function(instant, 2)  # imports
    taken = min(of_function(instant, TRIALS) for _ in range(3)) / TRIALS
    report("our own time for a trial", 1000 * taken, target=50, unit="ms")
    start, trial = of_processes(FORKS, workers=1, seconds=0.0)
    print(f"a trial's process starts in {1000 * start:.1f} ms; all of a trial that does nothing")
    print(f"takes one worker {1000 * trial:.1f} ms")
    report("our own time and the start", 1000 * (taken + start), target=50, unit="ms")
    (_, one), (_, two) = (of_processes(EQUAL, workers=n, seconds=1.0) for n in (1, 2))
    print(f"trials of a second: one worker {one:.2f} s each, two {two:.2f} s")
    report("two workers by one", two / one, target=0.6)


if __name__ == "__main__":
    main()
