"""From the words of a command to a recipe."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fixnorm.training.recipe import Recipe

__all__ = ["configured", "found_here"]


def configured(name: str, method: str | None, settings: list[str]) -> Recipe:
    """The named recipe for a method, with some fields changed."""
    from fixnorm import recipes
    from fixnorm.methods import method_named
    from fixnorm.training.recipe import changed, parsed_settings

    if ":" in name:
        found_here()
    changes: dict[str, Any] = dict(parsed_settings(type(recipes.get(name)), settings))
    if method is not None and "method" in changes:
        raise ValueError(f"--method {method} and --set method={changes['method']}: give one")
    method = changes.pop("method", method)
    named = None if method is None else method_named(method).name
    return changed(recipes.get(name, named), **changes)


def found_here() -> None:
    """Let packages of the current folder be found, as ``python -m`` does for the trials."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
