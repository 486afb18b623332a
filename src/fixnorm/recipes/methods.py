"""One recipe, four methods."""

from __future__ import annotations

from dataclasses import dataclass

from fixnorm.methods import METHODS, MethodName
from fixnorm.training.recipe import R, changed

__all__ = ["Baseline", "by_method"]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The setting of plain weight-decay training that a recipe is compared with."""

    lr: float
    weight_decay: float


def by_method(recipe: R, method: MethodName, baseline: Baseline) -> R:
    """The FixNorm recipe for another method.

    - ``wn-fc``: FixNorm's lr, no cap.
    - ``algorithm1``: FixNorm's lr; the head is decayed with the baseline's λ.
    - ``weight-decay``: the baseline's lr and λ.
    """
    changes: dict[str, float] = {}
    if METHODS[method].decays:
        changes["weight_decay"] = baseline.weight_decay
    if not METHODS[method].fixes:
        changes["lr"] = baseline.lr
    return changed(recipe, method=method, **changes)
