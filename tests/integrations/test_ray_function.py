"""One's own training function as Ray tasks: the answer, errors, and a worker that is killed."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.frameworks import need_ray

pytest.importorskip("optuna")
import optuna

import fixnorm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray = need_ray()
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="CRITICAL",
        object_store_memory=100_000_000,
    )
    yield
    ray.shutdown()


def new() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize")


def test_the_answer_is_that_of_fixnorm_tune(tmp_path: Path) -> None:
    """The first training at lr 2 kills its worker; the one at lr 3.2 raises an error."""
    from fixnorm.integrations.ray import optimize

    mark = tmp_path / "killed"

    def train(lr: float, alpha: float, steps: int) -> float:
        if lr == 2.0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if lr == 3.2:
            raise OverflowError("too large")
        return 70 - 5 * math.log(lr / 1.1) ** 2 - math.log(alpha / 2) ** 2 + steps / 1000

    study = new()
    best = optimize(study, train, steps=1000)
    assert mark.exists()
    expected = fixnorm.tune(train, steps=1000, progress=False)
    assert (best.lr, best.alpha, best.accuracy) == (expected.lr, expected.alpha, expected.accuracy)
    assert len(study.trials) == expected.trials == 15
    ends = {t.params["lr"]: t.user_attrs["ended"] for t in study.trials[:5]}
    assert ends[2.0]["state"] == "trained"
    assert (ends[3.2]["state"], ends[3.2]["reason"]) == ("failed", "OverflowError: too large")


def test_the_plan_without_a_search_for_lr() -> None:
    from fixnorm.integrations.ray import optimize

    def train(lr: object, alpha: float, steps: int) -> float:
        assert lr == "auto"
        return 70 - 5 * math.log(alpha / 2) ** 2

    best = optimize(new(), train, steps=1000, plan="auto")
    assert (best.lr, best.alpha, best.accuracy) == ("auto", 2.0, 70.0)


def test_a_function_that_always_fails_is_named() -> None:
    from fixnorm.integrations.ray import optimize

    def wrong(**_: float) -> float:
        raise KeyError("momentum")

    with pytest.raises(ValueError, match=r"diverged or failed, the last: KeyError\('momentum'\)"):
        optimize(new(), wrong, steps=10)
