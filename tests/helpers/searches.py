"""A small search of real trainings, run by the command as a user would, and what it must leave."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from fixnorm.tuning.storage import Storage
from fixnorm.tuning.study import read_studies
from fixnorm.tuning.trial import StudyRecord
from helpers.runs import PATIENCE, Life, shared_nursery, until

SMALL = (
    *("--set", "epochs=2", "--set", "warmup_epochs=0", "--set", "train_per_class=40"),
    *("--splits", "2", "--fractions", "0.5,1", "--alphas", "0.5,16", "--workers", "2"),
)
BRANCHES = (
    *("--plan", "auto", "--alphas", "0.5,1,2,16", "--margin", "100", "--workers", "2"),
    *("--set", "epochs=2", "--set", "warmup_epochs=1"),
)
"""A search in which alpha 2 is free, alpha 1 branches after the first of the two epochs, and alpha
0.5, which is met before the first step, begins at zero."""
KEYS = ["alpha-1-seed0", "lr1-0-seed0", "lr1-1-seed0", "lr2-0-seed0", "lr2-1-seed0"]


def command(out: Path, *options: str) -> list[str]:
    """What is given again replaces what is there; a cluster takes no number of workers."""
    tune = [sys.executable, "-m", "fixnorm", "tune", "digits", "--out", str(out)]
    if "auto" in options:
        return [*tune, *options]
    small = {SMALL[k]: SMALL[k + 1] for k in range(6, len(SMALL), 2)}
    small = {name: value for name, value in small.items() if name not in options}
    if "ray" in options:
        del small["--workers"]
    words = [word for pair in small.items() for word in pair]
    return [*tune, *SMALL[:6], *words, *options]


def start(out: Path, *options: str, drawn: bool = False) -> Life:
    """The command, as a fork: see :mod:`helpers.runs`."""
    nursery = shared_nursery()
    log = nursery.home / f"{uuid.uuid4()}.log"
    return nursery.start(command(out, *options)[3:], log=log, drawn=drawn)


def finish(out: Path, *options: str, drawn: bool = False) -> dict[str, object]:
    """Run the command to its end; the content of result.json."""
    driver = start(out, *options, drawn=drawn)
    assert driver.wait() == 0, driver.said()
    return json.loads((out / "result.json").read_text())


def until_it_trains(driver: Life, out: Path) -> None:
    """Wait for a first training of the search."""
    assert until(lambda: trainings(out), driver), driver.said()


def stored(out: Path) -> StudyRecord:
    (record,) = read_studies(Storage.in_folder(out), out)
    return record


def trainings(out: Path) -> list[int]:
    """Processes whose words go to a log of the study; a fork has no command line of its own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "fd" / "1").startswith(f"{out.resolve()}/"):
                found.append(int(entry.name))
    return found


def gone(out: Path) -> bool:
    """Whether no training is left, once all have had time to notice."""
    deadline = time.monotonic() + PATIENCE
    while trainings(out):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def check_whole(out: Path, reference: StudyRecord) -> None:
    """Every slot has exactly one value, and it is the one of an undisturbed search."""
    record = stored(out)
    assert sorted(trial.key for trial in record.trials) == KEYS
    values = {trial.key: (trial.state, trial.accuracy) for trial in record.trials}
    assert values == {trial.key: (trial.state, trial.accuracy) for trial in reference.trials}
