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
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from fixnorm.groups import fixed_weights
from fixnorm.norm import local, weight_norms
from fixnorm.own_lr import OwnLr, check_sgd
from fixnorm.spheres import Sphere
from fixnorm.telemetry import RuleFigures

__all__ = ["C", "P", "SphereRule", "forget", "tell_unused_state"]

C, P = 2.0, 0.4
"""The two constants, chosen by ``benchmarks/auto_lr.py``."""
STEPS, SEEN, MEAN = "fixnorm_steps", "fixnorm_seen", "fixnorm_mean_square"
"""Keys of a param group: T, the steps whose gradients are in the mean, and the mean of ‖ĝ‖²."""
PART = "fixnorm_part"
"""Of one among several optimizers: ‖ĝ‖² of its own weights at its last step."""


def auto_lr(radius: float, mean_square: float, steps: int) -> float:
    """c · R² / (T^p · √(mean ‖ĝ‖²)); nothing to follow where there was no gradient at all."""
    return C * radius**2 / (steps**P * math.sqrt(mean_square)) if mean_square else 0.0


def once(group: Mapping[str, Any]) -> float:
    """1 − μ: what makes a gradient count once; a dampened one enters the momentum smaller."""
    momentum, dampening = group.get("momentum", 0.0), group.get("dampening", 0.0)
    return (1 - momentum) / (1 - dampening) if momentum else 1.0


class SphereRule:
    """Sets the learning rates of a step, and takes them back after it."""

    def __init__(
        self, optimizer: Optimizer, steps: int | None, others: Iterable[Optimizer] = ()
    ) -> None:
        self._steps = check(optimizer, steps)
        self._others = [weakref.ref(other) for other in others]
        self._own = OwnLr(optimizer.param_groups)
        self._begun: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._coming: _Coming | None = None
        self._unclipped: Tensor | None = None
        self._warned = False
        for group in optimizer.param_groups:
            group.setdefault(STEPS, steps)
            group.setdefault(SEEN, 0)
            group.setdefault(MEAN, 0.0)
        self.undo = [*self._follow_saves(optimizer), self._take_back]

    @torch.no_grad()
    def before_clipping(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> None:
        """Take the gradients of the coming step as they are now."""
        self._unclipped = _gradient_norm(optimizer, spheres)

    @torch.no_grad()
    def before(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> None:
        """Multiply the lr of every group, now that the gradients are there.

        Of several calls in one step, and after a step that raised an error, the last one counts.
        """
        self._take_back()
        self._arrive(optimizer)
        state = optimizer.param_groups[0]
        check_state(optimizer, self._steps)
        self._own.look(optimizer.param_groups, seen=state[SEEN], steps=self._steps)
        changed = ("lr", SEEN, MEAN, PART)
        self._begun = [(g, {k: g[k] for k in changed if k in g}) for g in optimizer.param_groups]
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
        if state[SEEN] > state[STEPS] and not self._warned:
            self._warned = True
            warnings.warn(
                f"fixnorm: the training goes on after the {state[STEPS]} steps that its learning "
                "rate was made for: give attach(optimizer, lr='auto', steps=…) all of them, "
                "counted in optimizer steps",
                stacklevel=4,
            )
        factor = auto_lr(radius, state[MEAN], state[STEPS])
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * (factor * once(group))

    def figures(self, optimizer: Optimizer) -> RuleFigures:
        """Where the learning rate stands."""
        self._arrive(optimizer)
        state = optimizer.param_groups[0]
        return RuleFigures(state[STEPS], state[SEEN], math.sqrt(state[MEAN]))

    def after(self) -> None:
        """The step is done: give every group its own lr back."""
        for group, own in self._begun:
            group["lr"] = own["lr"]
        self._begun = []

    def _take_back(self) -> None:
        """As if a step that has not come to its end had not begun."""
        if self._begun:
            self._coming = None
        for group, own in self._begun:
            group |= own
        self._begun = []

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

    def _follow_saves(self, optimizer: Optimizer) -> Iterator[Callable[[], None]]:
        """What is saved has the last norm in it, and the own lr, also after a step that failed."""
        owner = weakref.ref(optimizer)

        def before(_: Optimizer) -> None:
            this = owner()
            if this is not None and not self._begun:
                self._arrive(this)

        def after(_: Optimizer, saved: dict[str, Any]) -> None:
            for group, begun in zip(saved["param_groups"], self._begun, strict=False):
                group["lr"] = begun[1]["lr"]

        # timm's Lookahead takes no hooks of this kind, and leaves its state to what it wraps
        inner = getattr(optimizer, "_base_optimizer", optimizer)
        yield inner.register_state_dict_pre_hook(before).remove
        yield inner.register_state_dict_post_hook(after).remove


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


def check(optimizer: Optimizer, steps: int | None) -> int:
    """Refuse what the rule is not for."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(
            "lr='auto' needs steps, the number of optimizer steps of the whole training (at least "
            f"1) but got {steps!r}: attach(optimizer, lr='auto', steps=epochs * len(loader))"
        )
    check_sgd(optimizer)
    if any(STEPS in group for group in optimizer.param_groups):
        check_state(optimizer, steps)
    return steps


def check_state(optimizer: Optimizer, steps: int) -> None:
    """Refuse a state, loaded before or since, that is not of this training."""
    group = optimizer.param_groups[0]
    if STEPS not in group:
        raise ValueError(
            "lr='auto' but the loaded state is of a training with a learning rate of its own "
            f"({float(group['lr']):g}): load it before attach and set the lr of every group to 1.0"
        )
    if group[STEPS] != steps:
        raise ValueError(
            f"lr='auto' was given steps={steps} but the optimizer's state is of a training "
            f"of {group[STEPS]}: give the same number"
        )


def forget(optimizer: Optimizer) -> None:
    """Another training begins with the same optimizer."""
    for group in optimizer.param_groups:
        for key in (STEPS, SEEN, MEAN, PART):
            group.pop(key, None)


def tell_unused_state(optimizer: Optimizer) -> bool:
    """Warn of a state with ``lr="auto"`` where an optimizer is attached without it."""
    steps = optimizer.param_groups[0].get(STEPS)
    if steps is not None:
        warnings.warn(
            "fixnorm: the optimizer's state is of a training with lr='auto', and its lr of "
            f"{float(optimizer.param_groups[0]['lr']):g} only a factor: attach(optimizer, "
            f"lr='auto', steps={steps}), or give it an lr and take {STEPS!r} out of its groups",
            stacklevel=4,
        )
    return steps is not None
