"""How long the trainings of a search are: fractions of T_max in whole epochs or iterations."""

from __future__ import annotations

from fixnorm.training.recipe import Recipe

__all__ = ["length_of", "whole_lengths"]


def length_of(recipe: Recipe, fraction: float) -> int:
    """Epochs or iterations of a training of some fraction of T_max, at least one."""
    return max(round(fraction * recipe.length), 1)


def whole_lengths(recipe: Recipe, fractions: tuple[float, ...]) -> tuple[float, ...]:
    """Fractions of T_max as trainings can have them, so that the cost is what is spent."""
    if not all(0 < fraction <= 1 for fraction in fractions):
        return fractions  # for the search space to refuse
    return tuple(length_of(recipe, fraction) / recipe.length for fraction in fractions)
