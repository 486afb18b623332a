"""Kinds of recipes, one for each task, and the metric by which its trainings are judged.

What a recipe says is known without torch, which takes seconds to load: recipes are listed, read and
checked here. What is done with one is in :mod:`fixnorm.training.tasks`.
"""

from __future__ import annotations

from typing import Any

from fixnorm.system import brief
from fixnorm.training.kinds.classification import ClassificationRecipe
from fixnorm.training.kinds.detection import DetectionRecipe
from fixnorm.training.kinds.metric import Metric
from fixnorm.training.kinds.segmentation import SegmentationRecipe
from fixnorm.training.recipe import Recipe

__all__ = [
    "METRICS",
    "ClassificationRecipe",
    "DetectionRecipe",
    "Metric",
    "SegmentationRecipe",
    "add_kind",
    "check_task",
    "metric_of",
    "recipe_from_dict",
]

_KINDS: dict[str, tuple[type[Recipe], Metric]] = {}
METRICS: dict[str, Metric] = {}
"""By the name that files have."""


def add_kind(name: str, kind: type[Recipe], metric: Metric) -> None:
    """Make a kind of recipes known by the name of its task; the first of a name stays."""
    if METRICS.setdefault(metric.name, metric) != metric:
        raise ValueError(f"metric {metric.name!r} has the title {METRICS[metric.name].title!r}")
    _KINDS.setdefault(name, (kind, metric))


add_kind("classification", ClassificationRecipe, Metric("accuracy", "accuracy", counts=True))
add_kind("segmentation", SegmentationRecipe, Metric("miou", "mIoU"))
add_kind("detection", DetectionRecipe, Metric("ap", "AP"))


def metric_of(recipe: Recipe) -> Metric:
    """What its trainings are judged by."""
    return _KINDS[check_task(recipe.task)][1]


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe of :meth:`Recipe.to_dict`; a wrong field is one line."""
    task = values.get("task", "classification")
    return _KINDS[check_task(task, values.get("origin"))][0].validated(values)


def check_task(name: object, origin: object = None) -> str:
    """The name of a task that is known."""
    if isinstance(name, str) and name in _KINDS:
        return name
    given = brief(name, plain=True)
    hint = f"; give {brief(origin, plain=True)}, which made it, as --recipe" if origin else ""
    raise ValueError(f"task: one of {', '.join(_KINDS)} but got {given}{hint}")
