"""One recipe, four methods."""

from __future__ import annotations

from dataclasses import dataclass

from fixnorm.groups import Method
from fixnorm.training.recipe import R, changed

__all__ = ["Baseline", "by_method"]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The setting of plain weight-decay training that a recipe is compared with."""

    lr: float
    weight_decay: float


def by_method(recipe: R, method: Method, baseline: Baseline) -> R:
    """The FixNorm recipe for another method.

    - ``wn-fc``: FixNorm's lr, no cap.
    - ``algorithm1``: FixNorm's lr; the head is decayed with the baseline's λ.
    - ``weight-decay``: the baseline's lr and λ.
    """
    if method == "algorithm1":
        return changed(recipe, method=method, weight_decay=baseline.weight_decay)
    if method == "weight-decay":
        return changed(recipe, method=method, lr=baseline.lr, weight_decay=baseline.weight_decay)
    return changed(recipe, method=method)
