"""``fixnorm.tune`` around functions: answers, seeds, processes, failures, the study it keeps."""

from __future__ import annotations

import errno
import io
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from rich.console import Console

import fixnorm
from fixnorm.tuning import view
from fixnorm.tuning.function import FunctionEngine
from fixnorm.tuning.progress import Progress, wants_progress
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.study import read_studies
from fixnorm.tuning.trial import Round, Trial

QUIET = {"steps": 1000, "progress": False}


def hill(lr: float, alpha: float, steps: int) -> float:
    """Best at lr 1.1 and alpha 2."""
    return 70 - 5 * math.log(lr / 1.1) ** 2 - math.log(alpha / 2) ** 2 + steps / 1000


def free_hill(lr: float, alpha: float, steps: int) -> dict[str, float]:
    """g/√C reaches 1.7 when no cap keeps it."""
    return {"accuracy": hill(lr, min(alpha, 1.7), steps), "largest_scale": min(alpha, 1.7)}


def seeded(lr: float, alpha: float, steps: int, seed: int) -> float:
    return hill(lr, alpha, steps) + (10 if seed == 1 and lr < 0.9 else 0)


def kills_itself_once(lr: float, alpha: float, steps: int) -> float:
    """At lr 1.4, while that of lr 0.8 runs beside it."""
    folder = Path(os.environ["FIXNORM_TEST_MARK"])
    with (folder / "calls").open("a") as calls:
        calls.write(f"{lr:g}/{steps}\n")
    mark = folder / "killed"
    if lr == 1.4 and not mark.exists():
        while "0.8" not in (folder / "calls").read_text():
            time.sleep(0.01)
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if lr == 0.8:
        while (folder / "calls").read_text().count("1.4") < 2:  # it has been tried again
            time.sleep(0.01)
    return hill(lr, alpha, steps)


def test_the_answer() -> None:
    calls: list[tuple[float, float, int]] = []

    def train(lr: float, alpha: float, steps: int) -> float:
        calls.append((lr, alpha, steps))
        return hill(lr, alpha, steps)

    found = fixnorm.tune(train, **QUIET)
    assert (found.lr, found.alpha) == (1.1, 2.0)
    assert found.accuracy == hill(1.1, 2.0, 1000)
    assert (found.trials, found.cost) == (15, 11.0)
    assert len(calls) == 15
    assert calls[:5] == [(lr, 0.5, 200) for lr in (0.8, 1.4, 2.0, 2.6, 3.2)]
    assert {steps for _, _, steps in calls[5:]} == {1000}


def test_free_slots() -> None:
    found = fixnorm.tune(free_hill, **QUIET)
    assert found.trials == 12
    assert found.cost == 8.0
    free = {t.alpha: t for t in found.record.trials if t.state == "free"}
    assert free.keys() == {2.0, 4.0, 8.0}
    assert {t.source for t in free.values()} == {"alpha-5-seed0"}
    for trial in free.values():
        assert trial.accuracy == free_hill(trial.lr, trial.alpha or 0, 1000)["accuracy"]


def test_seeds() -> None:
    found = fixnorm.tune(seeded, seeds=2, **QUIET)
    assert found.trials == 30
    assert found.lr == 0.8  # (70 + 80) / 2 beats 70 at 1.1


def test_unimodal_is_cheaper() -> None:
    found = fixnorm.tune(hill, plan="unimodal", margin=0.3, **QUIET)
    assert (found.lr, found.alpha) == (1.1, 2.0)
    assert found.cost == 9.0  # of 11: neither the lowest lr nor alpha 8


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_nan_and_exceptions_close_their_slots(workers: int) -> None:
    found = fixnorm.tune(faulty, workers=workers, **QUIET)
    assert found.lr == 0.8
    states = {t.lr: t.state for t in found.record.trials if t.round == "lr round 1"}
    assert states == {
        0.8: "trained",
        1.4: "trained",
        2.0: "trained",
        2.6: "diverged",
        3.2: "failed",
    }
    failed = next(t for t in found.record.trials if t.state == "failed")
    assert failed.reason == "OverflowError: too large"


def faulty(lr: float, alpha: float, steps: int) -> float:
    if lr == 3.2:
        raise OverflowError("too large")
    return math.nan if lr == 2.6 else -abs(lr - 0.8)


def test_a_function_that_always_fails_is_named() -> None:
    def wrong(**_: float) -> float:
        raise KeyError("momentum")

    with pytest.raises(ValueError, match="every training diverged or failed: KeyError") as raised:
        fixnorm.tune(wrong, **QUIET)
    assert isinstance(raised.value.__cause__, KeyError)


NUMBERS = {
    "tensor": lambda x: torch.tensor(x, requires_grad=True),
    "tensor of one element": lambda x: torch.tensor([x]),
    "float32": np.float32,
    "array of no dimension": np.array,
    "int": int,
    "fraction": Fraction,
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_any_real_number_is_an_accuracy(tmp_path: Path, kind: str) -> None:
    def train(lr: float, alpha: float, steps: int) -> Any:
        accuracy = NUMBERS[kind](hill(lr, alpha, steps))
        return {"accuracy": accuracy, "largest_scale": NUMBERS[kind](16.0)}

    found = fixnorm.tune(train, out=tmp_path, **QUIET)
    assert found.accuracy == pytest.approx(hill(1.1, 2.0, 1000), abs=1)
    assert isinstance(found.accuracy, float)
    assert fixnorm.tune(train, out=tmp_path, **QUIET).record.trials == found.record.trials


NO_NUMBERS = [
    None,
    True,
    "70",
    torch.tensor(True),
    torch.ones(2),
    1j,
    np.bool_(True),
    {"top1": 1.0},
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_what_is_no_number_stops_the_search_at_once(tmp_path: Path, value: Any) -> None:
    calls = []

    def train(lr: float, alpha: float, steps: int) -> Any:
        calls.append(lr)
        return value

    with pytest.raises(ValueError, match=r"must return an accuracy|returned a dict without"):
        fixnorm.tune(train, out=tmp_path, **QUIET)
    assert len(calls) == 1
    assert fixnorm.tune(hill, out=tmp_path, **QUIET).trials == 15


def test_a_function_that_cannot_be_called_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match="train must take the keywords lr, alpha, steps: missing"):
        fixnorm.tune(lambda lr, alpha, steps, momentum: 0.0, **QUIET)
    with pytest.raises(ValueError, match="keywords lr, alpha, steps, seed: got an unexpected"):
        fixnorm.tune(hill, seeds=2, **QUIET)
    with pytest.raises(ValueError, match=r"train must be a function but got 'train\.py'"):
        fixnorm.tune("train.py", **QUIET)  # type: ignore[arg-type]


MACHINE = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("could not create a primitive"),
    ConnectionResetError("the file server went away"),
]


@pytest.mark.slow
@pytest.mark.parametrize("error", MACHINE, ids=repr)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_of_the_machine_is_no_outcome(
    tmp_path: Path, error: Exception, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once mended, the answer is that of an undisturbed search."""
    if workers == 2 and error is not MACHINE[0]:
        pytest.skip("one is enough where each costs two processes")
    monkeypatch.setenv("FIXNORM_TEST_MARK", str(tmp_path / "mended"))
    monkeypatch.setattr(f"{__name__}.BROKEN", error)
    with pytest.raises(OSError, match=r"lr1-1-seed0 ended for a reason of the machine") as raised:
        fixnorm.tune(breaks, out=tmp_path / "study", workers=workers, **QUIET)
    assert type(raised.value.__cause__) is type(error)
    (tmp_path / "mended").touch()
    found = fixnorm.tune(breaks, out=tmp_path / "study", **QUIET)
    assert (found.lr, found.alpha, found.trials) == (1.1, 2.0, 15)
    assert {t.state for t in found.record.trials} == {"trained"}


BROKEN: Exception = MACHINE[0]


def breaks(lr: float, alpha: float, steps: int) -> float:
    if lr == 1.4 and not Path(os.environ["FIXNORM_TEST_MARK"]).exists():
        raise BROKEN
    return hill(lr, alpha, steps)


@pytest.mark.slow
def test_several_processes_find_the_same() -> None:
    assert fixnorm.tune(hill, workers=2, **QUIET).record.trials


@pytest.mark.slow
def test_a_killed_process_is_one_training_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXNORM_TEST_MARK", str(tmp_path))
    found = fixnorm.tune(kills_itself_once, workers=2, **QUIET)
    calls = (tmp_path / "calls").read_text().split()
    assert (calls.count("0.8/200"), calls.count("1.4/200")) == (1, 2)
    assert (found.lr, found.alpha, found.trials) == (1.1, 2.0, 15)
    assert {t.state for t in found.record.trials} == {"trained"}


def test_processes_need_a_function_by_name() -> None:
    with pytest.raises(ValueError, match="define it at the top level of a module"):
        fixnorm.tune(lambda lr, alpha, steps: 0.0, workers=2, **QUIET)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be at least 1 but got 0"),
        ({"workers": 0}, "workers must be at least 1 but got 0"),
        ({"steps": True}, "steps must be a whole number but got True"),
        ({"steps": 10**30}, r"steps must be at most .* but got about 10\^30"),
        ({"workers": 1.5}, "workers must be a whole number but got 1.5"),
        ({"splits": "5"}, "must be a whole number but got '5'"),
        ({"splits": 10**9}, "must be at most 1,000 but got 1000000000"),
        ({"seeds": 10**12}, "seeds must be at most 1,000 but got"),
        ({"lr_range": 1.0}, "lr_range must be numbers in a row but got 1.0"),
        ({"lr_range": (0.1, 1e300)}, "lr_max must lie in"),
        ({"lr_range": (0.1, True)}, "lr_range must be a number but got True"),
        ({"alphas": "1,2"}, "alphas must be numbers in a row but got '1,2'"),
        ({"alphas": [1, math.nan]}, "alphas must be finite but got nan"),
        ({"out": 5}, "out must be a text or None but got 5"),
        ({"name": ""}, "name must be a text but got ''"),
        ({"plan": "best"}, "plan must be one of paper, unimodal, uncapped, auto but got 'best'"),
        ({"margin": math.nan}, "margin must be"),
        ({"lr_range": (1.0, 0.1)}, "lr_max must be greater than lr_min"),
        ({"storage": "mysql://x/y"}, "--storage must be sqlite or postgresql but got mysql"),
    ],
)
def test_bad_arguments(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fixnorm.tune(hill, **(QUIET | changes))  # type: ignore[arg-type]


# -- progress --------------------------------------------------------------------------------------


def test_a_long_training_of_this_process_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The view is drawn while the function is under way, as another thread draws it."""
    terminal = io.StringIO()
    console = partial(Console, file=terminal, force_terminal=True, width=200, color_system=None)
    monkeypatch.setattr(view, "Console", lambda **_: console())
    seen = []

    def train(lr: float, alpha: float, steps: int, progress: Callable[[float], None]) -> float:
        if not seen:
            progress(steps / 4)
            deadline = time.monotonic() + 600
            while "25 % …" not in terminal.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append("25 % …" in terminal.getvalue())
        return hill(lr, alpha, steps)

    assert fixnorm.tune(train, steps=1000).trials == 15
    assert seen == [True]


def stays_half_way(lr: float, alpha: float, steps: int, *, progress: Any = None) -> float:
    for step in range(1 + steps // 2):
        progress(step)
    while not Path(os.environ["FIXNORM_TEST_MARK"]).exists():
        time.sleep(0.11)
        progress(steps // 2)
    return hill(lr, alpha, steps)


@pytest.mark.slow
def test_a_training_of_another_process_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXNORM_TEST_MARK", str(tmp_path / "seen"))
    engine = FunctionEngine(stays_half_way, steps=1000, seeds=1, workers=2)
    trial = Trial(key="job", round=Round("lr"), index=0, lr=1.0, alpha=1.0)
    try:
        engine.start(trial)
        while engine.progress(trial) != 0.5:
            assert engine.wait(0.05) == []
        (tmp_path / "seen").touch()
        while not engine.wait(1.0):
            pass
        assert engine.progress(trial) == 0.0  # another try would begin at zero
    finally:
        engine.stop()


def test_progress_is_told_ten_times_a_second_at_most() -> None:
    told: list[float] = []
    progress = Progress(1000, told.append)
    started = time.monotonic()
    for step in range(1, 1001):
        progress(step)
    assert told[0] == 0.001
    assert len(told) <= 1 + (time.monotonic() - started) / 0.1
    for step, done in ((-1, 0.0), (math.nan, 0.0), (1500, 1.0), (torch.tensor(500), 0.5)):
        Progress(1000, told.append)(step)  # type: ignore[arg-type]
        assert told[-1] == done


@pytest.mark.parametrize(
    ("train", "wants"),
    [
        (stays_half_way, True),
        (lambda lr, alpha, steps, progress: 0.0, True),
        (lambda lr, alpha, steps, progress=False: 0.0, False),  # a word of its own
        (partial(stays_half_way, progress=print), False),
        (lambda **others: 0.0, False),
        (hill, False),
        (max, False),
    ],
)
def test_who_is_given_progress(train: Any, wants: bool) -> None:
    assert wants_progress(train) is wants


# -- the study -------------------------------------------------------------------------------------


def test_a_finished_study_is_read_and_not_trained_again(tmp_path: Path) -> None:
    first = fixnorm.tune(hill, out=tmp_path, **QUIET)

    def never(lr: float, alpha: float, steps: int) -> float:
        raise AssertionError("was trained again")

    again = fixnorm.tune(never, out=tmp_path, **QUIET)
    assert again.record.trials == first.record.trials


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    fixnorm.tune(hill, out=tmp_path, **QUIET)
    with pytest.raises(ValueError, match=r"space.lr_max \(3.2 there, 1.6 here\), steps \(1000"):
        fixnorm.tune(hill, out=tmp_path, lr_range=(0.2, 1.6), steps=500, progress=False)


def test_optuna_reads_the_study_as_it_is(tmp_path: Path) -> None:
    fixnorm.tune(free_hill, out=tmp_path, **QUIET)
    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert len(study.trials) == 15
    assert study.best_value == free_hill(1.1, 2.0, 1000)["accuracy"]
    assert {t.state for t in study.trials} == {optuna.trial.TrialState.COMPLETE}
    assert study.trials[0].user_attrs["slot"]["round"] == "lr round 1"


def test_a_second_driver_is_refused_with_the_owners_name(tmp_path: Path) -> None:
    script = tmp_path / "second.py"
    script.write_text(
        "import sys, fixnorm\n"
        "try:\n"
        "    fixnorm.tune(lambda lr, alpha, steps: 0.0, steps=1000, out=sys.argv[1])\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    said: list[str] = []

    def train(lr: float, alpha: float, steps: int) -> float:
        if not said:
            command = [sys.executable, str(script), str(tmp_path / "study")]
            said.append(subprocess.run(command, capture_output=True, text=True).stdout)
        return hill(lr, alpha, steps)

    found = fixnorm.tune(train, out=tmp_path / "study", **QUIET)
    assert f"belongs to process {os.getpid()} on " in said[0]
    assert found.trials == 15


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"a letter to a friend, which is no database at all")
    with pytest.raises(ValueError, match="cannot be read as a study"):
        fixnorm.tune(hill, out=tmp_path, **QUIET)
    assert (tmp_path / "study.db").read_bytes().startswith(b"a letter")
    assert list(tmp_path.iterdir()) == [tmp_path / "study.db"]


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    database.close()
    before = (tmp_path / "study.db").read_bytes()
    with pytest.raises(ValueError, match="is another program's database"):
        fixnorm.tune(hill, out=tmp_path, **QUIET)
    assert (tmp_path / "study.db").read_bytes() == before


def test_somebody_elses_optuna_study_is_refused(tmp_path: Path) -> None:
    study = optuna.create_study(study_name="tune", storage=f"sqlite:///{tmp_path / 'study.db'}")
    study.set_user_attr("mine", True)
    with pytest.raises(ValueError, match="is not one of fixnorm's"):
        fixnorm.tune(hill, out=tmp_path, **QUIET)


@pytest.mark.slow
@pytest.mark.parametrize("calls", range(1, 22))
def test_killed_at_any_write_nothing_is_lost_or_counted_twice(tmp_path: Path, calls: int) -> None:
    """A process forked here dies at the n-th write to the database; the next call goes on."""
    space = {"splits": 2, "fractions": (0.5, 1.0), "alphas": (0.5, 2.0, 16.0), **QUIET}
    child = os.fork()
    if child == 0:  # pragma: no cover
        _die_at(calls)
        fixnorm.tune(free_hill, out=tmp_path, **space)  # type: ignore[arg-type]
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or calls > 15
    found = fixnorm.tune(free_hill, out=tmp_path, **space)  # type: ignore[arg-type]
    reference = fixnorm.tune(free_hill, **space)  # type: ignore[arg-type]
    assert (found.lr, found.alpha, found.cost) == (reference.lr, reference.alpha, reference.cost)
    keys = [t.key for t in found.record.trials]
    assert sorted(keys) == sorted(t.key for t in reference.record.trials)
    (stored,) = read_studies(Storage.in_folder(tmp_path), tmp_path)
    assert [t.accuracy for t in stored.trials] == [t.accuracy for t in found.record.trials]
    assert None not in [t.accuracy for t in stored.trials]


def _die_at(calls: int) -> None:  # pragma: no cover
    """Make the n-th statement that writes to a database the last of this process."""
    import sqlalchemy

    left = [calls]

    @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "before_cursor_execute")
    def count(connection, cursor, statement, *rest) -> None:  # type: ignore[no-untyped-def]
        if statement.lstrip().upper().startswith(("INSERT", "UPDATE")):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
