"""Training: a recipe, and the loop that runs it."""

from typing import TYPE_CHECKING

from fixnorm.lazy import lazy
from fixnorm.system.interrupt import Interrupted

if TYPE_CHECKING:
    from fixnorm.training.kinds import ClassificationRecipe, DetectionRecipe, SegmentationRecipe
    from fixnorm.training.loop import RunOptions, train
    from fixnorm.training.recipe import EpochRecipe, Recipe, changed

__all__ = [
    "ClassificationRecipe",
    "DetectionRecipe",
    "EpochRecipe",
    "Interrupted",
    "Recipe",
    "RunOptions",
    "SegmentationRecipe",
    "changed",
    "train",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "kinds": "ClassificationRecipe DetectionRecipe SegmentationRecipe",
            "loop": "RunOptions train",
            "recipe": "EpochRecipe Recipe changed",
        },
    )
