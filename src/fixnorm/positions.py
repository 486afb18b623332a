"""Optimizers whose own state is a copy of the weights, which a rescale has to reach as well.

Schedule-free methods keep three points: gradients are taken at y = (1 − β)·z + β·x, the steps are
z's, and x is the mean that is evaluated. The parameter is y; z is the optimizer's state; x follows
from the two. Multiplying y and z by one factor multiplies x by it: all three are the same points of
another scale, as the method wants it where scale does not matter. With y alone rescaled z would
grow as if nothing were attached, and x would be the mean of points on different spheres.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.norm import is_sharded, local

__all__ = ["copies", "is_schedule_free", "unknown_copies"]

# States that are means or memories of weights and are never stepped themselves: Lookahead's slow
# weights, Prodigy's and DoG's starting point, ASGD's mean.
_HARMLESS = {"slow_params", "slow_buffer", "lookahead_slow_buff", "p0", "init_buffer", "ax"}


def is_schedule_free(optimizer: Optimizer) -> bool:
    """Whether it is a schedule-free optimizer, of ``schedulefree`` or of pytorch_optimizer."""
    return any("schedulefree" in kind.__name__.lower() for kind in type(optimizer).__mro__)


def copies(optimizer: Optimizer, weights: Iterable[nn.Parameter]) -> list[Tensor]:
    """The points z of a schedule-free optimizer's weights; none of any other's."""
    if not is_schedule_free(optimizer):
        return []
    states = (optimizer.state.get(weight, {}) for weight in weights)
    return [local(state["z"]) for state in states if "z" in state]


@torch.no_grad()
def unknown_copies(optimizer: Optimizer, weights: Iterable[nn.Parameter]) -> Iterator[str]:
    """Names of states that look like the weight itself. Brings values to the host."""
    known = _HARMLESS | ({"z"} if is_schedule_free(optimizer) else set())
    for weight in weights:
        state: dict[str, Any] = optimizer.state.get(weight, {})
        if not state or is_sharded(weight):
            continue
        for name, value in state.items():
            if name in known or not isinstance(value, Tensor) or value.shape != weight.shape:
                continue
            cosine = nn.functional.cosine_similarity(
                value.flatten().double(), weight.flatten().double(), dim=0
            )
            if cosine > 0.9:
                yield name
        return  # one weight is enough
