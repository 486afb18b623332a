"""What the models of recipes cost, counted on the models themselves."""

from __future__ import annotations

from functools import cache

import torch

from fixnorm.models import Counts, count
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import Logits, estimates_of, exports_of, task_of

__all__ = ["cost"]


@cache
def cost(recipe: Recipe) -> Counts:
    """Parameters, and multiply-adds of one image of the recipe's size, without any arithmetic.

    An image folder of which all classes are taken counts with ImageNet's. A detector's numbers
    are those of its layers: boxes are sorted out by comparisons.
    """
    _, classes, size = estimates_of(recipe).expected()
    with torch.device("meta"):
        network = task_of(recipe).network(classes, size[0])
    return count(Logits(network, exports_of(recipe)), size)
