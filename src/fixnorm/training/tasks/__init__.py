"""Tasks: what a training does with images, by the kind of recipe. Here they are registered."""

from typing import Any, TypeVar

from fixnorm.system import brief
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks.classification import Classification, ClassificationRecipe
from fixnorm.training.tasks.detection import Detection, DetectionRecipe
from fixnorm.training.tasks.segmentation import Segmentation, SegmentationRecipe
from fixnorm.training.tasks.task import (
    Estimates,
    Exports,
    Logits,
    Metric,
    Part,
    Score,
    Scorer,
    Task,
)

__all__ = [
    "METRICS",
    "ClassificationRecipe",
    "DetectionRecipe",
    "Logits",
    "Metric",
    "Part",
    "Score",
    "Scorer",
    "SegmentationRecipe",
    "Task",
    "estimates_of",
    "exports_of",
    "recipe_from_dict",
    "register",
    "task_of",
]

_TASKS: dict[str, type[Task[Any, Any]]] = {}
METRICS: dict[str, Metric] = {}
"""By the name that files have."""

T = TypeVar("T", bound=type[Task[Any, Any]])


def register(task: T) -> T:
    """Make a task known by the ``task`` of its recipes; a decorator for those of other packages."""
    name, metric = task.recipe_kind.model_fields["task"].default, task.metric
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{task.__name__}: its recipe needs a task, a name, but has {brief(name)}")
    if METRICS.setdefault(metric.name, metric) != metric:
        raise ValueError(f"metric {metric.name!r} has the title {METRICS[metric.name].title!r}")
    if str(_TASKS.setdefault(name, task)) != str(task):  # the same again, of a module run twice
        raise ValueError(f"task {name!r} is {_TASKS[name].__name__} already: give another name")
    return task


for known in (Classification, Segmentation, Detection):
    register(known)


def task_of(recipe: Recipe) -> Task[Any, Any]:
    """What the recipe trains."""
    task: Task[Any, Any] = _known(recipe.task)(recipe)
    return task


def estimates_of(recipe: Recipe) -> Estimates[Any]:
    """What is known of the recipe's training without its data."""
    estimates = _known(recipe.task).estimates
    if estimates is None:
        raise ValueError(f"task {recipe.task!r} says nothing of its data: it cannot be estimated")
    return estimates(recipe)


def exports_of(recipe: Recipe) -> Exports[Any]:
    """How the recipe's model is given away."""
    exports = _known(recipe.task).exports
    if exports is None:
        raise ValueError(f"task {recipe.task!r} does not say how its models are exported")
    return exports(recipe)


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe of :meth:`Recipe.to_dict`; a wrong field is one line."""
    task = values.get("task", "classification")
    return _known(task, values.get("origin")).recipe_kind.validated(values)


def _known(name: object, origin: object = None) -> type[Task[Any, Any]]:
    if isinstance(name, str) and name in _TASKS:
        return _TASKS[name]
    given = brief(name, plain=True)
    hint = f"; give {brief(origin, plain=True)}, which made it, as --recipe" if origin else ""
    raise ValueError(f"task: one of {', '.join(_TASKS)} but got {given}{hint}")
