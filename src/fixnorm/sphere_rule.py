"""The learning rate that follows from the sphere, without a search.

With ‖W‖ = R fixed, w = W/R lives on the unit sphere. Its gradient is ĝ = R·∇L(W), and a step of lr
on W is one of η = lr/R² on w: the paper's effective learning rate. Parameter-free methods (DoG,
D-Adaptation, Prodigy) take η = D / √Σ‖ĝ‖² and have to find out D, the distance to go. On the unit
sphere it is of order one, so it is known::

    lr_t  =  c · (1 − μ) · R² / (T^p · √(mean_{s≤t} ‖ĝ_s‖²))

with T the number of steps of the training, and 1 − μ because momentum μ takes every gradient
1/(1 − μ) times, one step after another. Theory has p = 1/2; trainings of 100 to 10,000 steps have
their best learning rates at p = 0.4 (``docs/auto-lr.md``).

It multiplies every group's own lr (1.0, times what a scheduler makes of it) for the step, biases,
affines and ``g`` included.

The squared norm of a step's gradients is a number on their device. On the CPU it is used in the
same step. Elsewhere it travels to the host while the device works on, and is used one step later:
only the first step waits for its own. Of several optimizers that share the weights each takes the
gradients of its own weights at its step, and adds what the others had at theirs: those may be
scaled, or gone, by then.

Clipping shortens steps, and the optimizer sees gradients that are clipped already: the rule would
make up for it. ``handle.before_clipping()`` shows it what the loss made.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from fixnorm.groups import fixed_weights
from fixnorm.lr_rule import MEAN, PART, SEEN, STEPS, LrRule
from fixnorm.norm import local, weight_norms
from fixnorm.own_lr import check_sgd
from fixnorm.spheres import Sphere
from fixnorm.telemetry import RuleFigures

__all__ = ["C", "P", "SphereRule"]

C, P = 2.0, 0.4
"""The two constants, chosen by ``benchmarks/auto_lr.py``."""


def auto_lr(radius: float, mean_square: float, steps: int) -> float:
    """c · R² / (T^p · √(mean ‖ĝ‖²)); nothing to follow where there was no gradient at all."""
    return C * radius**2 / (steps**P * math.sqrt(mean_square)) if mean_square else 0.0


def once(group: Mapping[str, Any]) -> float:
    """1 − μ: what makes a gradient count once; a dampened one enters the momentum smaller."""
    momentum, dampening = group.get("momentum", 0.0), group.get("dampening", 0.0)
    return (1 - momentum) / (1 - dampening) if momentum else 1.0


class SphereRule(LrRule):
    """The rule of one optimizer; ``others`` share the sphere with it."""

    changed = ("lr", SEEN, MEAN, PART)

    def __init__(
        self, optimizer: Optimizer, steps: int | None, others: Iterable[Optimizer] = ()
    ) -> None:
        check_sgd(optimizer)
        self._others = [weakref.ref(other) for other in others]
        self._coming: _Coming | None = None
        self._unclipped: Tensor | None = None
        super().__init__(optimizer, steps)
        for group in optimizer.param_groups:
            group.setdefault(MEAN, 0.0)

    @torch.no_grad()
    def before_clipping(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> None:
        """Take the gradients of the coming step as they are now."""
        self._unclipped = _gradient_norm(optimizer, spheres)

    def factors(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> list[float]:
        """By the gradients that were seen, this step's among them if they are at hand."""
        state = optimizer.param_groups[0]
        radius = math.hypot(*(sphere.target for sphere in spheres))
        norm, self._unclipped = self._unclipped, None
        if norm is None:
            norm = _gradient_norm(optimizer, spheres)
        if norm is not None and (_at_hand(norm) or not state[SEEN]):
            self._take(optimizer, radius * norm.item())
        elif norm is not None:
            self._coming = _Coming.of(norm, radius)
        elif self._others:  # it has no weights on the sphere: it follows those that have
            self._take(optimizer, 0.0)
        lr = auto_lr(radius, state[MEAN], state[STEPS])
        return [lr * once(group) for group in optimizer.param_groups]

    def figures(self, optimizer: Optimizer) -> RuleFigures:
        """Where the learning rate stands."""
        self._arrive(optimizer)
        state = optimizer.param_groups[0]
        return RuleFigures(state[STEPS], state[SEEN], math.sqrt(state[MEAN]))

    def _take_back(self) -> None:
        if self._begun:
            self._coming = None
        super()._take_back()

    def _arrive(self, optimizer: Optimizer) -> None:
        """Take in the last step's norm, which has had the time of a step to come."""
        coming, self._coming = self._coming, None
        if coming is not None:
            self._take(optimizer, coming.arrived())

    def _take(self, optimizer: Optimizer, norm: float) -> None:
        """Put ‖ĝ‖ of a step into the mean.

        One that is no number belongs to a step that is skipped; one of exactly 0 to none of the
        training's (``torch.distributed.checkpoint`` makes such a step).
        """
        square = norm**2
        if self._others and math.isfinite(square):
            for group in optimizer.param_groups:
                group[PART] = square
            others = (other for ref in self._others if (other := ref()) is not None)
            square += math.fsum(other.param_groups[0].get(PART, 0.0) for other in others)
        if not math.isfinite(square) or not square:
            return
        state = optimizer.param_groups[0]
        seen = state[SEEN] + 1
        mean = state[MEAN] + (square - state[MEAN]) / seen
        for group in optimizer.param_groups:
            group[SEEN], group[MEAN] = seen, mean


class _Coming(NamedTuple):
    """A number on its way to the host."""

    norm: Tensor
    radius: float
    there: torch.Event | None

    @classmethod
    def of(cls, norm: Tensor, radius: float) -> _Coming:
        if norm.is_cpu:
            return cls(norm.clone(), radius, None)
        host = torch.empty((), dtype=norm.dtype, pin_memory=True)
        host.copy_(norm, non_blocking=True)
        there = torch.Event(norm.device)
        there.record()
        return cls(host, radius, there)

    def arrived(self) -> float:
        if self.there is not None:
            self.there.synchronize()
        return self.radius * self.norm.item()


def _at_hand(norm: Tensor) -> bool:
    """Whether the host can read it without waiting for a device."""
    return norm.is_cpu


def _gradient_norm(optimizer: Optimizer, spheres: Iterable[Sphere]) -> Tensor | None:
    """‖∇L‖ over its fixed weights as the optimizer will see it, on the device; none without any."""
    members = [m for sphere in spheres for m in sphere.members if m.optimizer is optimizer]
    weights = [w for m in members for w in fixed_weights(m.group) if w.grad is not None]
    if not weights:
        return None
    norms = weight_norms(weights, [local(w.grad) for w in weights if w.grad is not None])
    norm: Tensor = torch.linalg.vector_norm(norms)
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    if scale is not None:  # a fused optimizer under a GradScaler unscales inside its step
        norm = norm / scale.to(norm.device)
    skips: Tensor | None = getattr(optimizer, "found_inf", None)
    if skips is not None:  # by any parameter's gradient; such an optimizer then makes no step
        norm = torch.where(skips.to(norm.device) > 0, math.nan, norm)
    return norm.squeeze()
