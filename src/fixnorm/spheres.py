"""Which weights share a norm: the fixed groups of one or several optimizers, put together.

Some optimizers have a copy of the weights in their state, which a rescale has to reach as well.
Schedule-free methods keep three points: gradients are taken at y = (1 − β)·z + β·x, the steps are
z's, and x is the mean that is evaluated. The parameter is y; z is the optimizer's state; x follows
from the two. Multiplying y and z by one factor multiplies x by it: all three are the same points of
another scale, as the method wants it where scale does not matter. With y alone rescaled z would
grow as if nothing were attached, and x would be the mean of points on different spheres.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.groups import SPHERE, TARGET, fixed_weights, origin_of
from fixnorm.norm import is_sharded, joint_norm, local

__all__ = [
    "Member",
    "Sphere",
    "copies",
    "is_schedule_free",
    "set_targets",
    "spheres",
    "unknown_copies",
]


class Member(NamedTuple):
    """A fixed group of a sphere."""

    optimizer: Optimizer
    group: dict[str, Any]


@dataclass(slots=True)
class Sphere:
    """Fixed weights that have one joint norm."""

    members: list[Member] = field(default_factory=list)

    @property
    def weights(self) -> list[nn.Parameter]:
        """All weights of the sphere, group by group."""
        if len(self.members) == 1:
            return fixed_weights(self.members[0].group)
        return [weight for member in self.members for weight in fixed_weights(member.group)]

    @property
    def target(self) -> float:
        """The norm that the weights keep; each of the groups has it."""
        target: float = self.members[0].group[TARGET]
        return target

    def names(self) -> list[str]:
        """The weights' names in their model."""
        origins = [origin_of(weight) for weight in self.weights]
        return [o.name if o is not None else f"weight {i}" for i, o in enumerate(origins)]

    def __str__(self) -> str:
        names = self.names()
        return ", ".join(names[:3]) + ", …" * (len(names) > 3)


def spheres(optimizers: Iterable[Optimizer]) -> dict[Any, Sphere]:
    """The optimizers' fixed groups by what they share, as the groups say now."""
    found: dict[Any, Sphere] = {}
    for o, optimizer in enumerate(optimizers):
        for i, group in enumerate(optimizer.param_groups):
            if TARGET in group:
                key = (o, i) if SPHERE not in group else (group[SPHERE], _model(group))
                found.setdefault(key, Sphere()).members.append(Member(optimizer, group))
    return found


def set_targets(sphere: Sphere) -> None:
    """Give every group of the sphere its target: as saved, or as the weights have it now.

    Groups without one join those that have one: target² ← target² + ‖W_new‖², so that no weight is
    rescaled by joining.
    """
    for member in sphere.members:
        _refuse_decay(member.group, sphere)
    known = {m.group[TARGET] for m in sphere.members if m.group[TARGET] is not None}
    if len(known) > 1:
        raise ValueError(
            f"fixed groups that share one norm ({sphere}) have different targets "
            f"({', '.join(f'{target:g}' for target in sorted(known))}): load the states of all "
            "their optimizers from one checkpoint"
        )
    new = [m.group for m in sphere.members if m.group[TARGET] is None]
    weights = [weight for group in new for weight in fixed_weights(group)]
    measured = float(joint_norm(weights)) if weights else 0.0
    target = math.hypot(measured, *map(float, known))
    if weights:
        _check_target(measured, sphere)
    _check_target(target, sphere)
    for member in sphere.members:
        member.group[TARGET] = target


def _check_target(target: float, sphere: Sphere) -> None:
    """Refuse a norm that no weights can be brought to."""
    if not 0 < target < math.inf:
        raise ValueError(
            f"the norm of a fixed group ({sphere}) is {target}: its weights need finite, "
            "non-zero values before attach"
        )


def _refuse_decay(group: dict[str, Any], sphere: Sphere) -> None:
    if group.get("weight_decay"):
        raise ValueError(
            f"weight decay {group['weight_decay']} on a fixed group ({sphere}): its norm is "
            "fixed, so set weight_decay=0 there"
        )


def _model(group: dict[str, Any]) -> int | None:
    """Tells models apart: groups of two models share no norm, whatever their numbers."""
    weights: Sequence[nn.Parameter] = fixed_weights(group)
    origin = origin_of(weights[0]) if weights else None
    return None if origin is None else id(origin.model())


# States that are means or memories of weights and are never stepped themselves: Lookahead's slow
# weights, Prodigy's and DoG's starting point, ASGD's mean.
_HARMLESS = {"slow_params", "slow_buffer", "lookahead_slow_buff", "p0", "init_buffer", "ax"}


def is_schedule_free(optimizer: Optimizer) -> bool:
    """Whether it is a schedule-free optimizer, of ``schedulefree`` or of pytorch_optimizer."""
    return _named_schedule_free(type(optimizer).__mro__)


@functools.cache
def _named_schedule_free(kinds: tuple[type, ...]) -> bool:
    return any("schedulefree" in kind.__name__.lower() for kind in kinds)


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
