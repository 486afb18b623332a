"""Training: a recipe, and the loop that runs it."""

from fixnorm.system.interrupt import Interrupted
from fixnorm.training.loop import RunOptions, train
from fixnorm.training.recipe import Recipe, changed
from fixnorm.training.tasks import ClassificationRecipe, DetectionRecipe, SegmentationRecipe

__all__ = [
    "ClassificationRecipe",
    "DetectionRecipe",
    "Interrupted",
    "Recipe",
    "RunOptions",
    "SegmentationRecipe",
    "changed",
    "train",
]
