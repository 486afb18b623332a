"""Training: a recipe, and the loop that runs it."""

from fixnorm.training.loop import Interrupted, RunOptions, train
from fixnorm.training.recipe import Recipe, changed

__all__ = ["Interrupted", "Recipe", "RunOptions", "changed", "train"]
