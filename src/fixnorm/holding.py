"""What attached optimizers hold of their models, as groups join them."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from fixnorm.groups import (
    FIXED,
    LENGTH,
    RADII,
    SPHERE,
    TARGET,
    Origin,
    fixed_weights,
    is_fixed,
    kept_norm,
    origin_of,
)
from fixnorm.relative_step import set_radii
from fixnorm.spheres import set_targets, spheres
from fixnorm.structure import parameters_by_name

__all__ = ["Holding", "fixed_of"]


class Holding:
    """The fixed weights of attached optimizers, and the models that these come from."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._refs = [weakref.ref(optimizer) for optimizer in optimizers]
        self._layouts = {id(optimizer): _layout(optimizer) for optimizer in optimizers}
        self._look()

    def optimizers(self) -> list[Optimizer]:
        """Those that are still there."""
        return [optimizer for ref in self._refs if (optimizer := ref()) is not None]

    def models(self) -> list[nn.Module]:
        """Those that are still there."""
        return [model for origin in self._origins if (model := origin.model()) is not None]

    def missing(self) -> list[str]:
        """Names of weights that should be in a fixed group of the optimizers and are not."""
        held = {id(weight) for weight in fixed_of(self.optimizers())}
        wanted = (pair for origin in self._origins for pair in origin.fixed_now().items())
        return [name for name, p in wanted if id(p) not in held]

    def left_out(self) -> list[str]:
        """Names of trainable parameters of the models that no optimizer holds."""
        groups = (group for optimizer in self.optimizers() for group in optimizer.param_groups)
        held = {id(p) for group in groups for p in group["params"]}
        return [
            name
            for model in self.models()
            for name, p in parameters_by_name(model).items()
            if p.requires_grad and id(p) not in held
        ]

    def follow(self, optimizer: Optimizer) -> None:
        """Take in what has joined since the last step, or what a loaded state has brought."""
        if _layout(optimizer) == self._layouts[id(optimizer)]:
            return
        for i, group in enumerate(optimizer.param_groups):
            if kept_norm(group) is not None:
                continue
            if any(id(p) in self._fixed for p in group["params"]):
                key, kept = (RADII, "norms") if RADII in group else (TARGET, "norm")
                raise ValueError(
                    f"fixed group {i} has lost its target norm: the loaded state was not saved by "
                    f"an attached optimizer. Set optimizer.param_groups[{i}]['{key}'] to the "
                    f"{kept} the weights should keep, or detach with handle.remove()"
                )
            if not is_fixed(group):
                self._adopt(optimizer, group)
        for sphere in spheres(self.optimizers()).values():
            set_targets(sphere)
        set_radii(optimizer)
        self._layouts[id(optimizer)] = _layout(optimizer)
        self._look()

    def _adopt(self, optimizer: Optimizer, group: dict[str, Any]) -> None:
        """Fix the weights of a plain group that has joined, if any of them should be fixed."""
        wanted = {id(p): n for origin in self._origins for n, p in origin.fixed_now().items()}
        positions = [i for i, p in enumerate(group["params"]) if id(p) in wanted]
        if not positions:
            return
        name = wanted[id(group["params"][positions[0]])]
        joint = [g for g in optimizer.param_groups if SPHERE in g and g.get(TARGET) is not None]
        relative = [g for g in optimizer.param_groups if RADII in g]
        if not joint and not relative:
            raise ValueError(
                f"a group that joined the optimizer holds {name}, whose norm is to be kept by "
                "itself: add groups of fixnorm.param_groups(model, scope='layer', "
                "beside=optimizer) instead"
            )
        if group.get("weight_decay"):
            warnings.warn(
                f"fixnorm: a group with {name} joined with weight decay {group['weight_decay']}: "
                "set to 0, as FixNorm has none. Add groups of fixnorm.param_groups(model, "
                "beside=optimizer)",
                stacklevel=2,
            )
            group["weight_decay"] = 0.0
        if relative:
            group |= {RADII: None, LENGTH: relative[0].get(LENGTH, "angle"), FIXED: positions}
        else:
            group |= {TARGET: None, SPHERE: joint[0][SPHERE], FIXED: positions}

    def _look(self) -> None:
        weights = fixed_of(self.optimizers())
        self._fixed = {id(weight) for weight in weights}
        self._origins = _origins(weights)


def fixed_of(optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
    """All weights whose norm the optimizers keep, of any scope."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return [weight for group in groups if is_fixed(group) for weight in fixed_weights(group)]


def _origins(weights: Iterable[nn.Parameter]) -> list[Origin]:
    """One origin for each model that the weights come from."""
    models: dict[int, Origin] = {}
    for weight in weights:
        origin = origin_of(weight)
        if origin is not None:
            models.setdefault(id(origin.model()), origin)
    return list(models.values())


def _layout(optimizer: Optimizer) -> list[tuple[bool, int]]:
    """What changes when groups join or leave; the keys and the sizes of all groups."""
    return [
        (kept_norm(group) is not None, len(group["params"])) for group in optimizer.param_groups
    ]
