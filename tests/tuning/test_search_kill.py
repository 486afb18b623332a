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
from helpers.searches import BRANCHES, KEYS, check_whole, finish, gone, start, stored, trainings
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


def test_the_driver_killed_ten_times(tmp_path: Path, reference: StudyRecord) -> None:
    moments, kills, studies = random.Random(0), 0, 1
    out = tmp_path / f"study{studies}"
    while kills < 10:
        driver = start(out)
        # Most of the time goes into starting; from then on it trains.
        while not trainings(out) and driver.poll() is None:
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 2.5))
        if driver.poll() is not None:  # this search was over before the kill: on with another
            driver.communicate()
            check_whole(out, reference)
            studies += 1
            out = tmp_path / f"study{studies}"
            continue
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        kills += 1
        assert gone(out), "a training outlived its driver"
    finish(out)
    check_whole(out, reference)


def test_trainings_killed_ten_times(tmp_path: Path, reference: StudyRecord) -> None:
    """Every third time the process that they are forks of, and they with it."""
    out, moments = tmp_path / "study", random.Random(1)
    driver = start(out)
    kills = 0
    while kills < 10 and driver.poll() is None:
        time.sleep(moments.uniform(0.0, 0.4))
        for victim in moments.sample(running := trainings(out), k=min(len(running), 1)):
            with suppress(OSError):  # it has come to its end
                warm = int(Path(f"/proc/{victim}/stat").read_text().rpartition(")")[2].split()[1])
                at_home = warm in (1, driver.pid)  # started from nothing, or about to end
                os.kill(warm if kills % 3 == 2 and not at_home else victim, signal.SIGKILL)
                kills += 1
    said, _ = driver.communicate(timeout=600)
    assert driver.returncode == 0, said
    assert "trying again" in said
    assert kills == 10
    check_whole(out, reference)
    assert gone(out)


def test_ctrl_c_stops_the_search_and_leaves_nothing_running(
    tmp_path: Path, reference: StudyRecord
) -> None:
    out, number = tmp_path / "study", signal.SIGINT
    driver = start(out)
    while not trainings(out):
        assert driver.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)
    driver.send_signal(number)
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == 128 + number, said
    assert said.strip().splitlines()[-1].endswith("the same command goes on from there")
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
            while not trainings(out):
                assert driver.poll() is None
                time.sleep(0.05)
            disk.fill()
            said, _ = driver.communicate(timeout=120)
            assert driver.returncode == 2, said
            (line,) = [line for line in said.splitlines() if line.startswith("fixnorm: ")]
            assert "make room" in line
            assert gone(out)
            disk.free()
        driver = start(out, "--storage", storage)
        said, _ = driver.communicate(timeout=600)
        assert driver.returncode == 0, said
        (record,) = read_studies(Storage.parse(storage), out)
    values = {trial.key: (trial.state, trial.accuracy) for trial in record.trials}
    assert values == {trial.key: (trial.state, trial.accuracy) for trial in reference.trials}


@pytest.mark.parametrize(
    ("search", "at", "trials"),
    [
        (("--workers", "1", "--fractions", "1", "--alphas", "0.5"), "lr1-0-seed0", 2),
        (BRANCHES, "alpha-1-seed0", 3),  # a branch: the next driver goes on with it
    ],
)
def test_trials_of_several_processes_die_with_the_driver(
    tmp_path: Path, search: tuple[str, ...], at: str, trials: int
) -> None:
    """torchrun, killed, would leave its processes behind."""
    out = tmp_path / "study"
    options = ("--nproc-per-trial", "2", *search)
    driver = start(out, *options)
    # torchrun and its two processes
    while len(trainings(out)) < 3 or not list(out.glob(f"*/logs/{at}.log")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert gone(out)
    result = finish(out, *options)
    assert (result["trials"], result["failed"]) == (trials, 0)
    assert stored(out).over
