"""Bayesian optimisation of lr and weight decay: samplers, budgets, divergence, and resuming."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import pytest

from fixnorm.tuning.search import Search
from fixnorm.tuning.storage import Storage
from fixnorm.tuning.strategies import SamplerStrategy
from fixnorm.tuning.study import Study
from fixnorm.tuning.trial import Result

SAMPLERS = ["gp", "tpe", "random"]


def accuracy(lr: float, weight_decay: float) -> float:
    """Best at lr 0.53 and 8.6e-5, as in Table 1."""
    return 78.5 - math.log(lr / 0.53) ** 2 - math.log(weight_decay / 8.6e-5) ** 2


def searched(folder: Path, strategy: SamplerStrategy, *, stop_after: int = 10**6) -> Study | None:
    """Train point after point; leave in the middle of one if there are more than allowed."""
    with Study.owned(
        Storage.in_folder(folder),
        "study",
        settings=strategy.settings(),
        distributions=strategy.distributions(),
        folder=folder,
        sampler=strategy.sampler(),
    ) as study:
        search = Search(strategy, study)
        done = 0
        while trials := search.ask():
            (trial,) = trials
            if done == stop_after:
                return None
            assert trial.weight_decay is not None
            value = accuracy(trial.lr, trial.weight_decay)
            if trial.lr > 2.5:
                search.tell(trial, Result(state="diverged", reason="too large"))
            else:
                search.tell(trial, Result(state="trained", accuracy=value))
            done += 1
        return study


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_points_lie_in_the_papers_ranges(tmp_path: Path, name: str) -> None:
    study = searched(tmp_path, SamplerStrategy(budget=14, sampler_name=name))  # type: ignore[arg-type]
    assert study is not None
    trials = study.record().trials
    assert len(trials) == 14
    assert all(0.2 <= t.lr <= 3.2 for t in trials)
    assert all(1e-5 <= (t.weight_decay or 0) <= 5e-4 for t in trials)
    assert {t.fraction for t in trials} == {1.0}
    assert len({(t.lr, t.weight_decay) for t in trials}) == 14


@pytest.mark.slow
def test_gaussian_processes_learn(tmp_path: Path) -> None:
    """After its random start the sampler's points are better than chance."""
    study = searched(tmp_path, SamplerStrategy(budget=22))
    assert study is not None
    values = [t.accuracy for t in study.record().trials if t.accuracy is not None]
    assert max(values) > 78.3
    start, later = values[:9], values[12:]
    assert sum(later) / len(later) > sum(start) / len(start)


def test_a_diverged_point_is_as_bad_as_the_worst_for_the_sampler_alone(tmp_path: Path) -> None:
    strategy = SamplerStrategy(budget=12, sampler_name="random", lr_min=2.0)
    study = searched(tmp_path, strategy)
    assert study is not None
    lost = [t for t in study.record().trials if t.state == "diverged"]
    assert lost
    assert {t.accuracy for t in lost} == {None}
    last = lost[-1].number
    before = [t.accuracy for t in study.record().trials[:last] if t.accuracy is not None]
    stored = study.optuna.trials[last]
    assert (stored.state, stored.value) == (optuna.trial.TrialState.COMPLETE, min(before))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_point_that_was_left_running_is_run_again(tmp_path: Path, name: str) -> None:
    strategy = SamplerStrategy(budget=6, sampler_name=name)  # type: ignore[arg-type]
    assert searched(tmp_path, strategy, stop_after=3) is None
    study = searched(tmp_path, strategy)
    assert study is not None
    trials = study.record().trials
    assert [t.number for t in trials] == list(range(6))
    assert {t.state for t in trials} <= {"trained", "diverged"}


def test_a_budget_can_be_raised(tmp_path: Path) -> None:
    assert searched(tmp_path, SamplerStrategy(budget=3, sampler_name="random")) is not None
    study = searched(tmp_path, SamplerStrategy(budget=5, sampler_name="random"))
    assert study is not None
    assert len(study.record().trials) == 5


def test_other_ranges_are_another_search(tmp_path: Path) -> None:
    searched(tmp_path, SamplerStrategy(budget=2, sampler_name="random"))
    with pytest.raises(ValueError, match=r"lr_max \(3.2 there, 1.6 here\)"):
        searched(tmp_path, SamplerStrategy(budget=2, sampler_name="random", lr_max=1.6))
