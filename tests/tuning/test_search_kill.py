"""Drivers and trainings killed for real, at random moments: nothing lost, nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fixnorm.tuning.storage import Storage
from fixnorm.tuning.study import read_studies
from fixnorm.tuning.trial import StudyRecord
from helpers.runs import until
from helpers.searches import (
    BRANCHES,
    KEYS,
    check_whole,
    finish,
    gone,
    start,
    stored,
    trainings,
    until_it_trains,
)
from helpers.small_disk import small_disk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    """The same search, undisturbed."""
    out = tmp_path_factory.mktemp("reference") / "study"
    result = finish(out)
    assert result["trials"] in (4, 5)  # the largest alpha may be free
    record = stored(out)
    assert sorted(trial.key for trial in record.trials) == KEYS
    return record


def test_the_driver_killed_five_times(tmp_path: Path, reference: StudyRecord) -> None:
    moments, kills, studies = random.Random(0), 0, 1
    out = tmp_path / f"study{studies}"
    while kills < 5:
        driver = start(out)
        until(lambda out=out: trainings(out), driver)
        time.sleep(moments.uniform(0.0, 1.0))
        if driver.kill() == 0:  # this search was over before the kill: on with another
            check_whole(out, reference)
            studies += 1
            out = tmp_path / f"study{studies}"
            continue
        kills += 1
        assert gone(out), "a training outlived its driver"
    finish(out)
    check_whole(out, reference)


def test_trainings_killed_six_times(tmp_path: Path, reference: StudyRecord) -> None:
    """Once the process that they are forks of, and they with it."""
    out, moments = tmp_path / "study", random.Random(1)
    driver = start(out)
    kills = 0
    while kills < 6 and until(lambda: trainings(out), driver):
        time.sleep(moments.uniform(0.0, 0.1))
        for victim in moments.sample(running := trainings(out), k=min(len(running), 1)):
            with suppress(OSError):  # it has come to its end
                warm = int(Path(f"/proc/{victim}/stat").read_text().rpartition(")")[2].split()[1])
                at_home = warm in (1, driver.pid)  # started from nothing, or about to end
                os.kill(warm if kills == 2 and not at_home else victim, signal.SIGKILL)
                kills += 1
    assert driver.wait() == 0, driver.said()
    assert "trying again" in driver.said()
    assert kills == 6
    check_whole(out, reference)
    assert gone(out)


def test_ctrl_c_stops_the_search_and_leaves_nothing_running(
    tmp_path: Path, reference: StudyRecord
) -> None:
    out, number = tmp_path / "study", signal.SIGINT
    driver = start(out)
    until_it_trains(driver, out)
    assert driver.kill(number) == 128 + number, driver.said()
    assert driver.said().strip().splitlines()[-1].endswith("the same command goes on from there")
    assert gone(out)
    finish(out)
    check_whole(out, reference)


def test_the_runs_disk_fills_up_while_the_study_is_elsewhere(
    tmp_path: Path, reference: StudyRecord
) -> None:
    """No slot is closed by it, and the answer is that of an undisturbed search."""
    with small_disk(tmp_path / "disk", "8m") as disk:
        out, storage = disk.path / "study", f"sqlite:///{tmp_path / 'study.db'}"
        for _ in range(2):
            driver = start(out, "--storage", storage)
            until_it_trains(driver, out)
            disk.fill()
            assert driver.wait() == 2, driver.said()
            (line,) = [x for x in driver.said().splitlines() if x.startswith("fixnorm: ")]
            assert "make room" in line
            assert gone(out)
            disk.free()
        driver = start(out, "--storage", storage)
        assert driver.wait() == 0, driver.said()
        (record,) = read_studies(Storage.parse(storage), out)
    values = {trial.key: (trial.state, trial.accuracy) for trial in record.trials}
    assert values == {trial.key: (trial.state, trial.accuracy) for trial in reference.trials}


def test_trials_of_several_processes_die_with_the_driver(tmp_path: Path) -> None:
    """torchrun, killed, would leave its processes behind; the next driver goes on with a branch."""
    out = tmp_path / "study"
    options = ("--nproc-per-trial", "2", *BRANCHES, "--alphas", "1,16")
    driver = start(out, *options)
    branch = out / "fixnorm-auto" / "logs" / "alpha-0-seed0.log"
    # torchrun and its two processes
    assert until(lambda: branch.exists() and len(trainings(out)) >= 3, driver), driver.said()
    driver.kill()
    assert gone(out)
    result = finish(out, *options)
    assert (result["trials"], result["failed"]) == (2, 0)
    assert stored(out).over
