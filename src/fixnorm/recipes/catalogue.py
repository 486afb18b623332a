"""Recipes by name."""

from __future__ import annotations

from collections.abc import Callable

from fixnorm.methods import MethodName, method_named
from fixnorm.recipes.dense import APPENDIX, DENSE_SMALL
from fixnorm.recipes.imagenet import SECTION_2, TABLE_2
from fixnorm.recipes.outside import from_outside
from fixnorm.recipes.small import SMALL
from fixnorm.system import brief
from fixnorm.system.nearest import nearest_are
from fixnorm.training.recipe import Recipe

__all__ = ["get", "groups", "names"]

_GROUPS: dict[str, tuple[Callable[[MethodName], Recipe], ...]] = {
    "Table 2": TABLE_2,
    "section 2": SECTION_2,
    "appendix": APPENDIX,
    "small": (*SMALL, *DENSE_SMALL),
}
_RECIPES = {row("fixnorm").name: row for rows in _GROUPS.values() for row in rows}


def names() -> tuple[str, ...]:
    """All names: Table 2 in its order, section 2, the appendix, then the small ones."""
    return tuple(_RECIPES)


def groups() -> dict[str, tuple[str, ...]]:
    """The names by where they come from: a part of the paper, or ``small``."""
    return {group: tuple(row("fixnorm").name for row in rows) for group, rows in _GROUPS.items()}


def get(name: str, method: MethodName | None = None) -> Recipe:
    """The recipe of that name, or of a function ``package.module:function`` of another package.

    No method is ``fixnorm``. Each method has settings of its own: ask for it here rather than
    change it afterwards.
    """
    for what, value in (("name", name), ("method", "fixnorm" if method is None else method)):
        if not isinstance(value, str):
            raise ValueError(f"{what} of a recipe must be a text but got {brief(value)}")
    row = from_outside(name) if ":" in name else _RECIPES.get(name)
    if row is None:
        hint = nearest_are(name, names(), otherwise=f"one of {', '.join(names())}")
        raise ValueError(f"unknown recipe {name!r}: {hint}")
    return row(method_named(method or "fixnorm").name)
