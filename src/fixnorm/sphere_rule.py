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
only the first step waits for its own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from fixnorm.groups import TARGET
from fixnorm.norm import local, weight_norms
from fixnorm.spheres import Sphere
from fixnorm.telemetry import RuleFigures

__all__ = ["C", "P", "SphereRule"]

C, P = 2.0, 0.4
"""The two constants, chosen by ``benchmarks/auto_lr.py``."""
STEPS, SEEN, MEAN = "fixnorm_steps", "fixnorm_seen", "fixnorm_mean_square"
"""Keys of a param group: T, the steps whose gradients are in the mean, and the mean of ‖ĝ‖²."""


def auto_lr(radius: float, mean_square: float, steps: int) -> float:
    """c · R² / (T^p · √(mean ‖ĝ‖²)); nothing to follow where there was no gradient at all."""
    return C * radius**2 / (steps**P * math.sqrt(mean_square)) if mean_square else 0.0


def once(group: Mapping[str, Any]) -> float:
    """1 − μ: what makes a gradient count once; a dampened one enters the momentum smaller."""
    momentum, dampening = group.get("momentum", 0.0), group.get("dampening", 0.0)
    return (1 - momentum) / (1 - dampening) if momentum else 1.0


class SphereRule:
    """Sets the learning rates of a step, and takes them back after it."""

    def __init__(self, optimizers: Sequence[Optimizer], steps: int | None) -> None:
        self._own: dict[Optimizer, list[float | Tensor]] = {}
        self._coming: dict[Optimizer, _Coming] = {}
        self._warned = False
        check(optimizers, steps)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group.setdefault(STEPS, steps)
                group.setdefault(SEEN, 0)
                group.setdefault(MEAN, 0.0)
        self.undo = [o.register_state_dict_pre_hook(self._arrive).remove for o in optimizers]

    @torch.no_grad()
    def before(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> None:
        """Multiply the lr of every group, now that the gradients are there."""
        self.after(optimizer)  # a step that raised an error never came to its end
        self._arrive(optimizer)
        radius = math.hypot(*(sphere.target for sphere in spheres))
        norm = _gradient_norm(optimizer, spheres)
        state = optimizer.param_groups[0]
        if norm is not None and (_at_hand(norm) or not state[SEEN]):
            _take(optimizer, radius * norm.item())
        elif norm is not None:
            self._coming[optimizer] = _Coming.of(norm, radius)
        if state[SEEN] > state[STEPS] and not self._warned:
            self._warned = True
            warnings.warn(
                f"fixnorm: the training goes on after the {state[STEPS]} steps that its learning "
                "rate was made for: give attach(optimizer, lr='auto', steps=…) all of them",
                stacklevel=4,
            )
        factor = auto_lr(radius, state[MEAN], state[STEPS])
        self._own[optimizer] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * (factor * once(group))

    def figures(self, optimizer: Optimizer) -> RuleFigures:
        """Where the learning rate stands."""
        self._arrive(optimizer)
        state = optimizer.param_groups[0]
        return RuleFigures(state[STEPS], state[SEEN], math.sqrt(state[MEAN]))

    def after(self, optimizer: Optimizer) -> None:
        """Give every group its own lr back."""
        own = self._own.pop(optimizer, [])
        for group, lr in zip(optimizer.param_groups, own, strict=False):
            group["lr"] = lr

    def _arrive(self, optimizer: Optimizer) -> None:
        """Take in the last step's norm, which has had the time of a step to come."""
        coming = self._coming.pop(optimizer, None)
        if coming is not None:
            _take(optimizer, coming.arrived())


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


def _take(optimizer: Optimizer, norm: float) -> None:
    """Put ‖ĝ‖ of a step into the mean; one that is no number belongs to a step that is skipped."""
    if not math.isfinite(norm):
        return
    state = optimizer.param_groups[0]
    seen = state[SEEN] + 1
    mean = state[MEAN] + (norm**2 - state[MEAN]) / seen
    for group in optimizer.param_groups:
        group[SEEN], group[MEAN] = seen, mean


def _gradient_norm(optimizer: Optimizer, spheres: Iterable[Sphere]) -> Tensor | None:
    """‖∇L‖ over all fixed weights as the optimizer will see it, on the device; none without any."""
    weights = [w for sphere in spheres for w in sphere.weights if w.grad is not None]
    if not weights:
        return None
    norms = weight_norms(weights, [local(w.grad) for w in weights if w.grad is not None])
    norm: Tensor = torch.linalg.vector_norm(norms)
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    if scale is not None:  # a fused optimizer under a GradScaler unscales inside its step
        norm = norm / scale.to(norm.device)
    return norm.squeeze()


def check(optimizers: Sequence[Optimizer], steps: int | None) -> None:
    """Refuse what the rule is not for."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(
            "lr='auto' needs steps, the number of optimizer steps of the whole training (at least "
            f"1) but got {steps!r}: attach(optimizer, lr='auto', steps=epochs * len(loader))"
        )
    for optimizer in optimizers:
        if "momentum" not in optimizer.defaults or {"betas", "eps"} & optimizer.defaults.keys():
            raise ValueError(
                "lr='auto' is for SGD, whose steps are as long as the gradient says; those of "
                f"{type(optimizer).__name__} are not: give it a learning rate"
            )
        for group in optimizer.param_groups:
            saved = group.get(STEPS, steps)
            if saved != steps:
                raise ValueError(
                    f"lr='auto' was given steps={steps} but the optimizer's state is of a training "
                    f"of {saved}: give the same number"
                )
            lr = float(group.get("initial_lr", group["lr"]))
            if TARGET in group and not 0.1 <= lr <= 10:
                raise ValueError(
                    f"lr='auto' multiplies the optimizer's own lr, which is {lr:g} for the fixed "
                    "weights: build it with lr=1.0"
                )
