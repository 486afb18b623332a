"""Training: a recipe, and the loop that runs it."""

from fixnorm.training.interrupt import Interrupted
from fixnorm.training.loop import RunOptions, train
from fixnorm.training.recipe import Recipe, changed

__all__ = ["Interrupted", "Recipe", "RunOptions", "changed", "train"]
