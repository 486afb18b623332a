"""The angle of a relative step that follows from the length of the training, without a search.

A matrix on a sphere of its own (scope ``matrix``) is turned by every step, by an angle that the lr
is. T steps at right angles to each other turn it by √T of them, and a matrix has an angle of order
one to go, whatever its size. So it is known what a step is to be::

    lr  =  c / √T

times the optimizer's own lr, which is 1.0 and what a scheduler makes of it. No gradient enters, as
a relative step does not have its length: any optimizer will do. Steps that keep the length of the
optimizer (``length="own"``) have another c, since lr is the largest angle then, and Adam and Muon
take a fifth of it. What is no matrix (embeddings, norms, biases, ``g``) is on no sphere; its
numbers are of order one in nets with norms, and its lr has a c of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from torch.optim import Optimizer

from fixnorm.groups import LENGTH, RADII
from fixnorm.lr_rule import SEEN, STEPS, LrRule
from fixnorm.own_lr import is_sgd
from fixnorm.spheres import Sphere
from fixnorm.telemetry import RuleFigures

__all__ = ["ANGLE", "OWN", "PLAIN", "AngleRule", "has_matrices"]

ANGLE, OWN, PLAIN = 0.5, 1.0, 1.0
"""c of matrices by the length of their steps, and of all else; ``benchmarks/matrix_scope.py``."""


def auto_angle(group: dict[str, Any], steps: int) -> float:
    """c/√T for a group."""
    c = PLAIN if RADII not in group else OWN if group.get(LENGTH) == "own" else ANGLE
    return c / math.sqrt(steps)


class AngleRule(LrRule):
    """Of one optimizer, whose groups need not all be matrices."""

    def __init__(self, optimizer: Optimizer, steps: int | None) -> None:
        own = any(group.get(LENGTH) == "own" for group in optimizer.param_groups)
        if own and is_sgd(optimizer):
            raise ValueError(
                "lr='auto' with length='own' is for Adam, Muon and their kin, whose steps have a "
                "length that lr alone decides; SGD's have not: leave length='own' out"
            )
        super().__init__(optimizer, steps)

    def factors(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> list[float]:
        """The same at every step."""
        for group in optimizer.param_groups:
            group[SEEN] += 1
        return [auto_angle(group, group[STEPS]) for group in optimizer.param_groups]

    def figures(self, optimizer: Optimizer) -> RuleFigures:
        """How far the training is."""
        state = optimizer.param_groups[0]
        return RuleFigures(state[STEPS], state[SEEN], None)


def has_matrices(optimizers: Iterable[Optimizer]) -> bool:
    """Whether any group is of scope ``matrix``."""
    return any(RADII in group for optimizer in optimizers for group in optimizer.param_groups)
