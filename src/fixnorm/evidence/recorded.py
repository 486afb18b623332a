"""Trainings that a recording of ``fixnorm reproduce landscapes`` holds already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fixnorm.evidence.experiments.fig4 import GridPoint
from fixnorm.evidence.landscapes import files_of
from fixnorm.evidence.trainings import Found
from fixnorm.training.bounded import Name
from fixnorm.training.checked import Part, read_checked
from fixnorm.training.kinds import recipe_from_dict
from fixnorm.training.recipe import Recipe, changed
from fixnorm.tuning.lengths import length_of

__all__ = ["read_recorded"]


class _Recording(Part):
    """What a recording says beside its landscape."""

    trained_at: tuple[Name, ...]
    hardware: tuple[Name, ...]
    recipe: dict[str, Any]
    points: tuple[GridPoint, ...]


def read_recorded(paths: Sequence[Path]) -> dict[Recipe, Found]:
    """What every training of the recordings found; what it did not leave in them is missing."""
    found: dict[Recipe, Found] = {}
    for file in files_of(paths):
        recording = read_checked(
            file,
            _Recording,
            what="a recorded landscape",
            advice="give the JSON file of fixnorm reproduce landscapes",
        )
        try:
            recipe = recipe_from_dict(recording.recipe)
        except ValueError as error:
            raise ValueError(f"{file} holds no recipe of today ({error}): record it anew") from None
        for point in recording.points:
            found[_recipe_at(recipe, point)] = _found(recording, point)
    return found


def _recipe_at(recipe: Recipe, point: GridPoint) -> Recipe:
    length = length_of(recipe, point.fraction)
    numbers = {"lr": point.lr, "alpha": point.alpha, "weight_decay": point.weight_decay}
    given = {name: value for name, value in numbers.items() if value is not None}
    shorter = {} if length == recipe.length else recipe.of_length(length)
    return changed(recipe, **given, **shorter, seed=point.seed)


def _found(recording: _Recording, point: GridPoint) -> Found:
    return Found(
        score=point.accuracy,
        largest_scale=point.largest_scale,
        mcbr_train=None,
        mcbr_val=point.mcbr_val,
        seconds=point.seconds or 0.0,
        steps=0,
        device=", ".join(recording.hardware),
        commits=recording.trained_at,
        curve={"score": point.curve or ()},
        recorded=True,
    )
