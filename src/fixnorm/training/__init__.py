"""Training: a recipe, and the loop that runs it."""

from fixnorm.system.interrupt import Interrupted
from fixnorm.training.loop import RunOptions, train
from fixnorm.training.recipe import EpochRecipe, Recipe, changed
from fixnorm.training.tasks import ClassificationRecipe, DetectionRecipe, SegmentationRecipe

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
