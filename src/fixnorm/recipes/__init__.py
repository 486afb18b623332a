"""Trainings by name: every row of the paper's Table 2, ResNet50 of section 2, and small ones.

A recipe is a function of the method that returns a complete frozen configuration:

    from fixnorm import recipes

    recipe = recipes.get("resnet50d-120", method="weight-decay")

:mod:`fixnorm.recipes.imagenet` and :mod:`fixnorm.recipes.small` hold the functions.
"""

from typing import TYPE_CHECKING

from fixnorm.lazy import lazy
from fixnorm.recipes.catalogue import get, groups, names

if TYPE_CHECKING:
    from fixnorm.recipes.counting import cost

__all__ = ["cost", "get", "groups", "names"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {"counting": "cost"})
