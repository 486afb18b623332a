"""Tasks: what a training does with images, by the kind of recipe."""

from typing import Any

from fixnorm.system import brief
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks.classification import Classification, ClassificationRecipe
from fixnorm.training.tasks.detection import Detection, DetectionRecipe
from fixnorm.training.tasks.segmentation import Segmentation, SegmentationRecipe
from fixnorm.training.tasks.task import Logits, Metric, Part, Task

__all__ = [
    "METRICS",
    "ClassificationRecipe",
    "DetectionRecipe",
    "Logits",
    "Metric",
    "Part",
    "SegmentationRecipe",
    "Task",
    "recipe_from_dict",
    "task_of",
]

_KINDS: dict[str, tuple[type[Recipe], type[Task[Any, Any]]]] = {
    "classification": (ClassificationRecipe, Classification),
    "segmentation": (SegmentationRecipe, Segmentation),
    "detection": (DetectionRecipe, Detection),
}


METRICS = {task.metric.name: task.metric for _, task in _KINDS.values()}
"""By the name that files have."""


def task_of(recipe: Recipe) -> Task[Any, Any]:
    """What the recipe trains."""
    _, task = _KINDS[recipe.task]
    return task(recipe)


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe of :meth:`Recipe.to_dict`; a wrong field is one line."""
    task = values.get("task", "classification")
    if not isinstance(task, str) or task not in _KINDS:
        raise ValueError(f"task: one of {', '.join(_KINDS)} but got {brief(task, plain=True)}")
    kind, _ = _KINDS[task]
    return kind.validated(values)
