"""The joint norm of many weights, and the one line of Algorithm 1 that fixes it.

Line 7 of Algorithm 1, for the weights W = (W_1, …, W_n) of one group::

    W  ←  W / ‖W‖ · ‖W_0‖

A weight that the step left alone (frozen, or without a gradient) stays as it is; the others, M, go
to what it leaves of the norm: W_M ← W_M / ‖W_M‖ · √(‖W_0‖² − ‖W_rest‖²).

Everything stays on the weights' device: no value is brought to the host. Sums run in float32 at
least. Weights may be spread over devices, and may be sharded (``DTensor``): then each process
sums the squares of what it holds and one all-reduce per sharded mesh dimension completes them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from fixnorm.internals import foreach_mul_, foreach_mul_each_, foreach_norm, foreach_quotients
from fixnorm.plain_norms import by_device, frobenius, plain_norms

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

__all__ = [
    "Joint",
    "Rescaled",
    "frobenius",
    "is_sharded",
    "joint_norm",
    "local",
    "multiply_",
    "rescale_",
    "rescale_each_",
    "weight_norms",
]


class Joint(NamedTuple):
    """Weights that have one norm together."""

    weights: Sequence[Tensor]
    target: float
    """‖W_0‖, which they are to have."""
    moved: Sequence[bool] | None = None
    """For each weight, whether it may be touched; all of them unless said otherwise."""


class Rescaled(NamedTuple):
    """What one rescale saw and did; all on the device."""

    norms: Tensor
    """‖W_i‖ of every weight before the rescale, shape (n,)."""
    norm: Tensor
    """‖W‖ before the rescale, 0-d."""
    factor: Tensor
    """c, 0-d: target / ‖W‖ where all weights moved."""


def rescale_(
    weights: Sequence[Tensor], target: float, *, moved: Sequence[bool] | None = None
) -> Rescaled:
    """Multiply the weights in place so that their joint norm is ``target``."""
    return rescale_each_([Joint(weights, target, moved)])[0]


@torch.no_grad()
def rescale_each_(
    joints: Sequence[Joint], measure: Callable[[Sequence[Tensor]], Tensor] = plain_norms
) -> list[Rescaled]:
    """W ← W / ‖W‖ · ‖W_0‖ in place, for the weights W of each of them by themselves.

    ``measure``: how norms of plain tensors are taken.
    """
    weights = [weight for joint in joints for weight in joint.weights]
    parts = _parts(weights)
    every = _weight_norms(weights, parts, measure)
    norms: Sequence[Tensor]
    if len(joints) == 1:  # with fewer calls: after a step no cache is warm for them
        norms = [every]
        norm = [torch.linalg.vector_norm(every)]
        factor = [norm[0].reciprocal().mul_(joints[0].target)]
    else:
        norms = every.split([len(joint.weights) for joint in joints])
        norm = foreach_norm(norms, every.dtype)
        factor = foreach_quotients([joint.target for joint in joints], norm)
    for i, (_, target, moved) in enumerate(joints):
        if moved is not None and not all(moved):
            factor[i] = _factor_beside(norms[i], target, moved)
    _multiply_touched_(joints, parts, factor)
    return [Rescaled(*seen) for seen in zip(norms, norm, factor, strict=True)]


@torch.no_grad()
def multiply_(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply plain tensors in place by one number that stays on its device."""
    if factor.device.type == "cpu":  # such a number goes anywhere by itself
        foreach_mul_(tensors, factor)
        return
    for device, indices in by_device(tensors).items():
        foreach_mul_([tensors[i] for i in indices], factor.to(device, non_blocking=True))


def _factor_beside(norms: Tensor, target: float, moved: Sequence[bool]) -> Tensor:
    """c = √(target² − ‖W_rest‖²) / ‖W_M‖, and 1 where the rest leaves nothing."""
    each = list(zip(norms.unbind(), moved, strict=True))
    still = torch.linalg.vector_norm(torch.stack([norm for norm, touched in each if not touched]))
    moving = torch.linalg.vector_norm(torch.stack([norm for norm, touched in each if touched]))
    room = (target - still) * (target + still)
    return torch.where(room > 0, room.clamp(min=0).sqrt() / moving, torch.ones_like(room))


def _multiply_touched_(
    joints: Sequence[Joint], parts: Sequence[Tensor], factors: Sequence[Tensor]
) -> None:
    """Multiply the parts of each joint's moved weights by its factor."""
    if len(joints) == 1:  # one number for all: one kernel on a GPU
        moved = joints[0].moved
        multiply_(parts if moved is None else list(compress(parts, moved)), factors[0])
        return
    own = [factor for joint, factor in zip(joints, factors, strict=True) for _ in joint.weights]
    moved = [m for joint in joints for m in joint.moved or repeat(True, len(joint.weights))]
    touched, own = list(compress(parts, moved)), list(compress(own, moved))
    for device, indices in by_device(touched).items():
        numbers = [own[i].to(device, non_blocking=True) for i in indices]
        foreach_mul_each_([touched[i] for i in indices], numbers)


@torch.no_grad()
def joint_norm(weights: Sequence[Tensor]) -> Tensor:
    """‖W‖ = √Σ‖W_i‖², 0-d, on the first weight's device."""
    norm: Tensor = torch.linalg.vector_norm(weight_norms(weights))
    return norm


@torch.no_grad()
def weight_norms(weights: Sequence[Tensor], parts: Sequence[Tensor] | None = None) -> Tensor:
    """‖W_i‖ of every weight (the whole weight, where it is sharded), shape (n,).

    ``parts``: measure these local tensors instead, sharded as the weights are.
    """
    return _weight_norms(weights, _parts(weights) if parts is None else parts)


def _weight_norms(
    weights: Sequence[Tensor],
    parts: Sequence[Tensor],
    measure: Callable[[Sequence[Tensor]], Tensor] = plain_norms,
) -> Tensor:
    norms = measure(parts)
    for (mesh, dims), indices in _by_sharding(weights).items():
        squares = norms[indices].square()
        for dim in dims:
            dist.all_reduce(squares, group=mesh.get_group(dim))
        norms[indices] = squares.sqrt()
    return norms


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a ``DTensor``, without importing what defines it."""
    kind = _sharded_kind()
    return kind is not None and isinstance(tensor, kind)


def _some_sharded(tensors: Sequence[Tensor]) -> bool:
    """Whether any of them is a ``DTensor``: a look at each kind among them, not at each tensor."""
    kind = _sharded_kind()
    return kind is not None and any(issubclass(own, kind) for own in set(map(type, tensors)))


def _sharded_kind() -> type[DTensor] | None:
    """``DTensor``, once something has imported it."""
    module = sys.modules.get("torch.distributed.tensor")
    return None if module is None else module.DTensor


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of it unless sharded."""
    tensor = tensor.detach()
    return tensor.to_local() if is_sharded(tensor) else tensor


def _parts(weights: Sequence[Tensor]) -> list[Tensor]:
    """What this process holds of the weights, where no gradient is recorded."""
    if not _some_sharded(weights):
        return list(weights)
    return [weight.to_local() if is_sharded(weight) else weight for weight in weights]


def _by_sharding(
    weights: Sequence[Tensor],
) -> dict[tuple[DeviceMesh, tuple[int, ...]], list[int]]:
    """Indices of the sharded weights, by mesh and the mesh dimensions that split them."""
    groups: dict[tuple[DeviceMesh, tuple[int, ...]], list[int]] = defaultdict(list)
    if not _some_sharded(weights):
        return groups
    for i, weight in enumerate(weights):
        if is_sharded(weight):
            split = tuple(d for d, p in enumerate(weight.placements) if not p.is_replicate())
            if split:
                groups[weight.device_mesh, split].append(i)
    return groups
