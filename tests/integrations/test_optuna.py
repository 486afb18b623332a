"""The plans on an Optuna study of one's own: answers, resumption, refusals."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")
import optuna

from fixnorm.integrations.optuna import PlanSearch, SearchSpace, fraction_of, optimize, seed_of

SMALL = SearchSpace(splits=2, fractions=(0.5, 1.0), alphas=(0.5, 2.0, 16.0))


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def hill(trial: Any) -> float:
    """Best at lr 1.1 and alpha 2; written as Optuna's users write objectives."""
    lr = trial.suggest_float("lr", 0.2, 3.2)
    alpha = trial.suggest_float("alpha", 0.5, 16.0, log=True)
    value = 70 - 5 * math.log(lr / 1.1) ** 2 - math.log(alpha / 2) ** 2
    return float(value + fraction_of(trial))


def new(storage: Any = None) -> Any:
    return optuna.create_study(
        direction="maximize", storage=storage, study_name="mine", load_if_exists=True
    )


def test_algorithm_4() -> None:
    study = new()
    best = optimize(study, hill)
    assert (best.lr, best.alpha, best.accuracy) == (1.1, 2.0, study.best_value)
    assert len(study.trials) == 15
    first = [(t.params["lr"], t.params["alpha"], fraction_of(t)) for t in study.trials[:5]]
    assert first == [(lr, 0.5, 0.2) for lr in (0.8, 1.4, 2.0, 2.6, 3.2)]


def test_without_a_search_for_lr() -> None:
    study, space = new(), SearchSpace(alphas=SMALL.alphas)
    seen = []

    def objective(trial: Any) -> float:
        lr = trial.suggest_categorical("lr", ["auto"])  # or trial.params["lr"]
        seen.append((lr, trial.params["alpha"], fraction_of(trial)))
        return 70 - abs(math.log2(trial.suggest_float("alpha", 0.5, 16.0, log=True) / 2)) / 10

    best = optimize(study, objective, space=space, plan="auto")
    assert (best.lr, best.alpha, best.accuracy) == ("auto", 2.0, 70.0)
    assert seen == [("auto", alpha, 1.0) for alpha in (16.0, 2.0, 0.5)]
    with pytest.raises(ValueError, match="splits means nothing to plan auto"):
        optimize(optuna.create_study(direction="maximize"), objective, space=SMALL, plan="auto")


def test_unimodal_and_free_slots_train_less() -> None:
    trained = []

    def free(trial: Any) -> dict[str, float]:
        trained.append(trial.number)
        alpha = min(trial.params["alpha"], 1.7)  # g/√C reaches 1.7 when no cap keeps it
        accuracy = 70 - math.log(trial.params["lr"] / 1.1) ** 2 - math.log(alpha / 2) ** 2
        return {"accuracy": accuracy, "largest_scale": alpha}

    optimize(new(), free)
    assert len(trained) == 12  # alphas 2, 4 and 8 are the training of 16
    trained.clear()
    best = optimize(new(), free, plan="unimodal", margin=0.3)
    assert len(trained) < 12
    assert (best.lr, best.alpha) == (1.1, 2.0)


def test_seeds() -> None:
    def seeded(trial: Any) -> float:
        return hill(trial) + (10 if seed_of(trial) == 1 and trial.params["lr"] < 0.9 else 0)

    study = new()
    assert optimize(study, seeded, space=SearchSpace(seeds=2)).lr == 0.8  # 75 beats 70 at 1.1
    assert len(study.trials) == 30


def test_ask_and_tell_with_trials_side_by_side() -> None:
    search, told = PlanSearch(new(), space=SMALL), []
    first, second = search.ask(), search.ask()
    assert first is not None
    assert second is not None
    assert (first.params["lr"], second.params["lr"]) == (1.7, 3.2)
    assert search.ask() is None  # the round is under way
    assert search.running == 2
    search.tell(second, 50.0)
    assert search.ask() is None
    search.tell(first, 60.0)
    while (trial := search.ask()) is not None:
        told.append((trial.params["lr"], trial.params["alpha"]))
        search.tell(trial, 70.0 + trial.params["alpha"])
    assert told == [(0.2, 0.5), (1.7, 0.5), (0.2, 16.0), (0.2, 2.0)]
    best = search.best()
    assert best is not None
    assert (best.lr, best.alpha) == (0.2, 16.0)
    with pytest.raises(ValueError, match="trial 0 is not under way: tell what was asked, once"):
        search.tell(first, 60.0)


def test_nan_exceptions_and_pruning_close_their_slots() -> None:
    def faulty(trial: Any) -> float:
        if trial.params["lr"] == 3.2:
            raise OverflowError("too large")
        if trial.params["lr"] == 2.6:
            raise optuna.TrialPruned
        return math.nan if trial.params["lr"] == 2.0 else -abs(trial.params["lr"] - 0.8)

    study = new()
    assert optimize(study, faulty).lr == 0.8
    ends = {t.params["lr"]: t.user_attrs["ended"]["state"] for t in study.trials[:5]}
    assert ends == {
        0.8: "trained",
        1.4: "trained",
        2.0: "diverged",
        2.6: "failed",
        3.2: "failed",
    }


def test_an_objective_that_always_fails_is_named() -> None:
    def wrong(trial: Any) -> float:
        raise KeyError("momentum")

    with pytest.raises(ValueError, match=r"diverged or failed, the last: KeyError\('mom") as raised:
        optimize(new(), wrong, space=SMALL)
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize("after", [1, 4])
def test_killed_and_resumed(tmp_path: Path, after: int) -> None:
    storage = f"sqlite:///{tmp_path / 'mine.db'}"
    child = os.fork()
    if child == 0:  # pragma: no cover
        left = [after]

        def dies(trial: Any) -> float:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return hill(trial)

        optimize(new(storage), dies, space=SMALL)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    calls: list[int] = []

    def counted(trial: Any) -> float:
        calls.append(trial.number)
        return hill(trial)

    found = optimize(new(storage), counted, space=SMALL)
    assert len(calls) == 6 - after
    assert found == optimize(new(), hill, space=SMALL)
    assert [t.state.name for t in new(storage).trials] == ["COMPLETE"] * 6


def test_refuses_what_is_not_its_own() -> None:
    with pytest.raises(ValueError, match="minimises but more accuracy is better"):
        PlanSearch(optuna.create_study())
    other = new()
    other.enqueue_trial({"lr": 1.0})
    with pytest.raises(ValueError, match="study 'mine' has trials that are not of this search"):
        PlanSearch(other)
    study = new()
    PlanSearch(study, space=SMALL)
    with pytest.raises(ValueError, match=r"other settings: space\.alphas .*; give it another name"):
        PlanSearch(study)
