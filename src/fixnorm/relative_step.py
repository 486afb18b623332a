"""Each matrix on a sphere of its own, and a step that is relative to its radius: scope ``matrix``.

For nets whose weights are not scale-free. Let W₀ be a matrix before a step, R the radius of its
sphere, and d what the optimizer's own step adds to it, whatever the optimizer. Then::

    W  ←  R · N(W₀ + lr · R · d/‖d‖)          N(X) = X/‖X‖

The optimizer is left to say in which direction, the group's lr says how far: a step that is at
right angles to W₀, as most are in many dimensions, turns the matrix by atan(lr) ≈ lr radians. A
step along W₀ turns it by nothing. Norms are of the whole weight: a convolution's is that of its
(out, rest) matrix.

That turns every matrix at every step, also where the optimizer is not sure of its step: Adam's is
short where gradients disagree. A group with ``length="own"`` keeps the length that the optimizer
has chosen, and measures it by the root mean square of the matrix's n entries::

    W  ←  R · N(W₀ + R/√n · d)

For Adam and its kin, whose steps have entries of lr at most or about, lr is then the largest angle.

No step is no move: where d = 0 (no gradient, a frozen weight, a step that a ``GradScaler`` skips,
lr 0) the weight stays as it is, to the bit.

d is a difference, so the matrices of before the step are copied, and the copy is gone after it.
Nothing is brought to the host, and sharded weights are measured by :mod:`fixnorm.norm`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.groups import LENGTH, RADII, fixed_weights, origin_of
from fixnorm.norm import local, weight_norms
from fixnorm.spheres import Member, is_schedule_free
from fixnorm.telemetry import MatrixFigures

__all__ = ["MatrixSphere", "RelativeSteps", "Turned", "matrix_spheres", "set_radii", "turn_"]

_PRECISE = (torch.float32, torch.float64)
_WIDE = 0.5
"""Far above any angle that trains: meant for another scope."""


class Turned(NamedTuple):
    """What one relative step saw; all on the device, shape (n,)."""

    steps: Tensor
    """‖d_i‖, of the optimizer's own step."""
    lengths: Tensor
    """Of the relative step, in units of R: lr, or less; 0 where nothing was to move."""
    norms: Tensor
    """‖W‖ / R before it was brought back to the sphere: 1 where it has not moved."""

    def angles(self) -> Tensor:
        """Radians that the matrices turned: the angle at 0 of a triangle whose sides are known.

        ‖W₀/R + s·u‖² = 1 + s² + 2·x for a length s and a unit u, with x = s·cos(W₀, u).
        """
        x = (self.norms.square() - 1 - self.lengths.square()) / 2
        across = (self.lengths.square() - x.square()).clamp(min=0).sqrt()
        return torch.where(self.steps != 0, torch.atan2(across, 1 + x), 0 * x)


@torch.no_grad()
def turn_(
    weights: Sequence[Tensor],
    before: Sequence[Tensor],
    radii: Tensor,
    lr: float | Tensor,
    *,
    own: Tensor | None = None,
) -> Turned:
    """Replace the optimizer's step by the relative one, in place, for matrices that it moved.

    ``before``: W₀ of each, what this process holds of it; ``radii``: shape (n,), on their device.
    ``own``: R/√n of each, for steps that keep their own length.
    """
    held = [local(weight) for weight in weights]
    parts = [part if part.dtype in _PRECISE else part.float() for part in held]
    for part, old in zip(parts, before, strict=True):
        part.sub_(old)  # d
    steps = weight_norms(weights, parts)
    moved = steps != 0
    factors = torch.where(moved, lr * radii / steps if own is None else own, 0 * steps)
    for part, old, factor in zip(parts, before, factors.unbind(), strict=True):
        part.mul_(factor.to(part.device)).add_(old)
    norms = torch.where(moved, weight_norms(weights, parts) / radii, torch.ones_like(steps))
    for part, mine, norm in zip(parts, held, norms.unbind(), strict=True):
        part.div_(norm.to(part.device))
        if mine is not part:
            mine.copy_(part)
    return Turned(steps, factors * steps / radii, norms)


class MatrixSphere(NamedTuple):
    """One matrix and its radius: what the watch looks at."""

    weights: list[nn.Parameter]
    target: float
    members: list[Member]


def matrix_spheres(optimizers: Iterable[Optimizer]) -> dict[Any, MatrixSphere]:
    """Those of the optimizers, as their groups say now."""
    return {
        id(weight): MatrixSphere([weight], radius, [Member(optimizer, group)])
        for optimizer in optimizers
        for group in _groups(optimizer)
        for weight, radius in zip(fixed_weights(group), group[RADII] or (), strict=False)
    }


def set_radii(optimizer: Optimizer) -> None:
    """Give every group of matrices its radii: as saved, or as the weights have them now."""
    for group in _groups(optimizer):
        weights = fixed_weights(group)
        _check_group(optimizer, group)
        if group[RADII] is None:
            group[RADII] = [float(norm) for norm in weight_norms(weights).tolist()]
        if len(group[RADII]) != len(weights):
            raise ValueError(
                f"a group of {len(weights)} matrices has {len(group[RADII])} radii: load the state "
                "of an optimizer that was built from the same model"
            )
        for weight, radius in zip(weights, group[RADII], strict=True):
            if not 0 < radius < math.inf:
                raise ValueError(
                    f"the norm of {_name(weight)} is {radius}: a matrix needs finite, non-zero "
                    "values before attach. Initialise it, or leave it to the optimizer: "
                    "fixnorm.convert(model, ..., scope='matrix', exclude=[...])"
                )


def _check_group(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """Refuse what a relative step is not for."""
    name = _name(fixed_weights(group)[0])
    if group.get("weight_decay"):
        raise ValueError(
            f"weight decay {group['weight_decay']} on the group of {name}: each of its norms is "
            "fixed, so set weight_decay=0 there"
        )
    if is_schedule_free(optimizer):
        raise ValueError(
            f"{type(optimizer).__name__} steps a copy of the weights, which a relative step does "
            "not reach: take another optimizer, or scope='layer'"
        )
    if group.get("lr") is None:
        raise ValueError(
            f"{type(optimizer).__name__} has no lr, which would be the angle of a relative step: "
            "take another optimizer, or scope='layer'"
        )


class _UnderWay(NamedTuple):
    """The matrices of a group in a step that has begun."""

    key: tuple[int, int]
    group: dict[str, Any]
    weights: list[nn.Parameter]
    radii: list[float]
    before: list[Tensor]


class _Done(NamedTuple):
    """The last step of a group."""

    names: list[str]
    radii: list[float]
    turned: Turned


class RelativeSteps:
    """Makes the steps of attached optimizers relative, and keeps what the last ones saw."""

    def __init__(self) -> None:
        self._under_way: list[_UnderWay] = []
        self._done: dict[tuple[int, int], _Done] = {}
        self._on_device: dict[tuple[tuple[float, ...], torch.device], Tensor] = {}
        self._warned = False

    def before(self, optimizer: Optimizer) -> None:
        """Copy the matrices that the step may move."""
        self._under_way = []
        for i, group in enumerate(_groups(optimizer)):
            pairs = zip(fixed_weights(group), group[RADII], strict=True)
            moving = [(weight, radius) for weight, radius in pairs if weight.requires_grad]
            if moving:
                weights = [weight for weight, _ in moving]
                radii = [radius for _, radius in moving]
                copies = [local(weight).clone() for weight in weights]
                key = (id(optimizer), i)
                self._under_way.append(_UnderWay(key, group, weights, radii, copies))

    def after(self) -> None:
        """Make the step relative; the copy is gone with it."""
        under_way, self._under_way = self._under_way, []
        for key, group, weights, radii, before in under_way:
            self._warn_of(group["lr"])
            own = None
            if group.get(LENGTH) == "own":
                sizes = (math.sqrt(weight.numel()) for weight in weights)
                own = self._tensor([r / s for r, s in zip(radii, sizes, strict=True)], weights[0])
            on_device = self._tensor(radii, weights[0])
            turned = turn_(weights, before, on_device, group["lr"], own=own)
            self._done[key] = _Done([_name(weight) for weight in weights], radii, turned)

    def figures(self) -> dict[str, MatrixFigures]:
        """The last steps' numbers, fetched to the host."""
        found: dict[str, MatrixFigures] = {}
        for names, radii, turned in self._done.values():
            numbers = (turned.steps.tolist(), turned.angles().tolist())
            for name, radius, step, angle in zip(names, radii, *numbers, strict=True):
                found[name] = MatrixFigures(radius, step / radius, angle)
        return found

    def _tensor(self, numbers: list[float], weight: Tensor) -> Tensor:
        """Numbers on the weight's device: they are sent there once, as sending may wait for it."""
        key = (tuple(numbers), weight.device)
        if key not in self._on_device:
            dtype = torch.promote_types(weight.dtype, torch.float32)
            self._on_device[key] = torch.tensor(numbers, dtype=dtype, device=weight.device)
        return self._on_device[key]

    def _warn_of(self, lr: float | Tensor) -> None:
        if not self._warned and not isinstance(lr, Tensor) and lr > _WIDE:
            self._warned = True
            warnings.warn(
                f"fixnorm: lr {lr:g} is the angle, in radians, by which a step turns each matrix "
                "of scope 'matrix': begin with 0.02",
                stacklevel=5,
            )


def _groups(optimizer: Optimizer) -> Iterator[dict[str, Any]]:
    """Those of scope ``matrix``."""
    return (group for group in optimizer.param_groups if RADII in group)


def _name(weight: nn.Parameter) -> str:
    origin = origin_of(weight)
    return f"a weight {tuple(weight.shape)}" if origin is None else origin.name
