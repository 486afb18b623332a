"""Tasks: what a training does with images, by the kind of recipe. Here they are registered."""

from typing import Any, TypeVar

from fixnorm.system import brief
from fixnorm.training.kinds import (
    METRICS,
    ClassificationRecipe,
    DetectionRecipe,
    Metric,
    SegmentationRecipe,
    add_kind,
    check_task,
    recipe_from_dict,
)
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks.classification import Classification
from fixnorm.training.tasks.detection import Detection
from fixnorm.training.tasks.segmentation import Segmentation
from fixnorm.training.tasks.task import (
    Estimates,
    Exports,
    Logits,
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

T = TypeVar("T", bound=type[Task[Any, Any]])


def register(task: T) -> T:
    """Make a task known by the ``task`` of its recipes; a decorator for those of other packages."""
    name = task.recipe_kind.model_fields["task"].default
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{task.__name__}: its recipe needs a task, a name, but has {brief(name)}")
    add_kind(name, task.recipe_kind, task.metric)
    if str(_TASKS.setdefault(name, task)) != str(task):  # the same again, of a module run twice
        raise ValueError(f"task {name!r} is {_TASKS[name].__name__} already: give another name")
    return task


for known in (Classification, Segmentation, Detection):
    register(known)


def task_of(recipe: Recipe) -> Task[Any, Any]:
    """What the recipe trains."""
    task: Task[Any, Any] = _TASKS[check_task(recipe.task)](recipe)
    return task


def estimates_of(recipe: Recipe) -> Estimates[Any]:
    """What is known of the recipe's training without its data."""
    estimates = _TASKS[check_task(recipe.task)].estimates
    if estimates is None:
        raise ValueError(f"task {recipe.task!r} says nothing of its data: it cannot be estimated")
    return estimates(recipe)


def exports_of(recipe: Recipe) -> Exports[Any]:
    """How the recipe's model is given away."""
    exports = _TASKS[check_task(recipe.task)].exports
    if exports is None:
        raise ValueError(f"task {recipe.task!r} does not say how its models are exported")
    return exports(recipe)
