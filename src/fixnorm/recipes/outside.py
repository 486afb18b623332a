"""Recipes of other packages, by ``package.module:function``."""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fixnorm.methods import MethodName
from fixnorm.system import brief
from fixnorm.system.nearest import nearest
from fixnorm.training.checked import fault
from fixnorm.training.recipe import ORIGIN, Recipe, changed

__all__ = ["from_outside"]


def from_outside(name: str) -> Callable[[MethodName], Recipe]:
    """The function of that name, its recipes checked; what is wrong with it is one line."""
    if re.fullmatch(ORIGIN, name) is None:
        raise ValueError(
            f"a recipe of another package is package.module:function but got {brief(name)}"
        )
    module, _, function = name.partition(":")
    found = getattr(_imported(module), function, _imported)
    if found is _imported:
        near = nearest(function, vars(_imported(module)), most=1)
        hint = f"did you mean {module}:{near[0]}?" if near else "define it there"
        raise ValueError(f"module {module} has no {function}: {hint}")
    if not callable(found) or isinstance(found, type):
        raise ValueError(
            f"{name} is {brief(found)}: give a function of the method that returns a recipe"
        )

    def recipe(method: MethodName) -> Recipe:
        made = _called(name, found, method)
        if not isinstance(made, Recipe):
            raise ValueError(f"{name} returned {brief(made)} for method {method}: no recipe")
        if made.method != method:
            raise ValueError(f"{name} returned a recipe of {made.method} for method {method}")
        from fixnorm.training.tasks import task_of  # here: recipes of this package need no torch

        task_of(made)
        return changed(made, origin=name)

    return recipe


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise ValueError(
                f"there is no module {missing}: run fixnorm where it is, or put its folder on"
                " PYTHONPATH"
            ) from error
        raise ValueError(f"module {module} cannot be imported: {_told(error)}") from error


def _called(name: str, function: Callable[[MethodName], Any], method: MethodName) -> Any:
    try:
        return function(method)
    except ValidationError as error:
        raise ValueError(f"{name} makes no recipe of method {method}: {fault(error)}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name} failed for method {method}: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """The error, and the line of the user's file where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # says itself where
        return words
    return f"{words} ({Path(last.filename).name}, line {last.lineno})"
