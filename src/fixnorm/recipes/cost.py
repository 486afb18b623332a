"""What a recipe's model costs."""

from __future__ import annotations

from functools import cache

import torch

from fixnorm.models import Counts, count, create
from fixnorm.training.recipe import Recipe

__all__ = ["cost"]

_GREY = ("digits", "fashion-mnist")


def cost(recipe: Recipe) -> Counts:
    """Parameters, and multiply-adds of one image of the recipe's size, without any arithmetic.

    An image folder of which all classes are taken counts with as many as the model was made for.
    """
    channels = 1 if recipe.data in _GREY else 3
    return _cost(recipe.model, recipe.classes, channels, recipe.image_size)


@cache
def _cost(model: str, classes: int | None, channels: int, size: int) -> Counts:
    with torch.device("meta"):
        network = create(model, num_classes=classes, in_chans=channels)
    return count(network, (channels, size, size))
