"""Wrong arguments of the tuning API: a ValueError that names argument and value, in our words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import optuna
import pytest
import torch

import fixnorm
from fixnorm import recipes
from fixnorm.integrations.optuna import PlanSearch, optimize
from fixnorm.training import changed

WRONG = [None, True, "abc", -1, 1.5, math.nan, 10**30, [], {}, object(), torch.ones(2), b"x"]
FOREIGN = ("object is not", "has no attribute", "cannot convert", "invalid literal", "unhashable")


def new() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize")


def hill(lr: float, alpha: float, steps: int) -> float:
    return -abs(lr - 1) - abs(alpha - 2)


def tuned(**given: Any) -> object:
    return fixnorm.tune(hill, **({"steps": 10, "progress": False} | given))


def told(value: Any) -> None:
    search = PlanSearch(new())
    trial = search.ask()
    assert trial is not None
    search.tell(trial, value)


CALLS: dict[str, Callable[[Any], object]] = {
    **{
        f"tune {name}": lambda value, name=name: tuned(**{name: value})
        for name in ("steps", "lr_range", "splits", "fractions", "alphas", "plan", "margin")
    },
    **{
        f"tune {name}": lambda value, name=name: tuned(**{name: value})
        for name in ("seeds", "storage", "name")
    },
    "tune train": lambda value: fixnorm.tune(value, steps=1, progress=False),
    "recipe": recipes.get,
    "method": lambda value: recipes.get("digits", value),
    "changed": lambda value: changed(recipes.get("digits"), batch_size=value),
    "study": lambda value: optimize(value, lambda trial: 1.0),
    "objective": lambda value: optimize(new(), value),
    "space": lambda value: optimize(new(), lambda trial: 1.0, space=value),
    "plan": lambda value: optimize(new(), lambda trial: 1.0, plan=value),
    "told": told,
    "trial": lambda value: PlanSearch(new()).tell(value, 1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused_in_our_words(name: str) -> None:
    refusals = 0
    for value in WRONG:
        try:
            CALLS[name](value)
        except ValueError as error:
            refusals += 1
            said = str(error)
            assert "\n" not in said, said
            assert not any(words in said for words in FOREIGN), said
    assert refusals > len(WRONG) // 2  # a few of them are right for some arguments
