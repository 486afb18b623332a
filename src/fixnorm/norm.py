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

import functools
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from fixnorm.internals import foreach_mul_, foreach_norm

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

# Past this size one running float32 sum on the CPU is no longer good to 2e-7.
_ONE_SUM_IS_EXACT_ENOUGH = 1 << 14
_PRECISE = (torch.float32, torch.float64)
# Devices on which a foreach function is a loop over the weights, less exact than ours.
_LOOPING = ("cpu",)


class Rescaled(NamedTuple):
    """What one rescale saw and did; all on the device."""

    norms: Tensor
    """‖W_i‖ of every weight before the rescale, shape (n,)."""
    norm: Tensor
    """‖W‖ before the rescale, 0-d."""
    factor: Tensor
    """c, 0-d: target / ‖W‖ where all weights moved."""


@torch.no_grad()
def rescale_(
    weights: Sequence[Tensor], target: float, *, moved: Sequence[bool] | None = None
) -> Rescaled:
    """Multiply the weights in place so that their joint norm is ``target``.

    ``moved``: for each weight, whether it may be touched; all of them unless said otherwise.
    """
    parts = [local(weight) for weight in weights]
    norms = weight_norms(weights, parts)
    norm = torch.linalg.vector_norm(norms)
    if moved is None or all(moved):
        factor = target / norm
    else:
        factor = _factor_beside(norms, target, moved)
        parts = [part for part, touched in zip(parts, moved, strict=True) if touched]
    multiply_(parts, factor)
    return Rescaled(norms, norm, factor)


@torch.no_grad()
def multiply_(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply plain tensors in place by one number that stays on its device."""
    for device, same_device in _by_device(tensors).items():
        foreach_mul_(same_device, factor.to(device, non_blocking=True))


def _factor_beside(norms: Tensor, target: float, moved: Sequence[bool]) -> Tensor:
    """c = √(target² − ‖W_rest‖²) / ‖W_M‖, and 1 where the rest leaves nothing."""
    each = list(zip(norms.unbind(), moved, strict=True))
    still = torch.linalg.vector_norm(torch.stack([norm for norm, touched in each if not touched]))
    moving = torch.linalg.vector_norm(torch.stack([norm for norm, touched in each if touched]))
    room = (target - still) * (target + still)
    return torch.where(room > 0, room.clamp(min=0).sqrt() / moving, torch.ones_like(room))


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
    norms = _local_norms([local(weight) for weight in weights] if parts is None else parts)
    for (mesh, dims), indices in _by_sharding(weights).items():
        squares = norms[indices].square()
        for dim in dims:
            dist.all_reduce(squares, group=mesh.get_group(dim))
        norms[indices] = squares.sqrt()
    return norms


def frobenius(weight: Tensor) -> Tensor:
    """‖W‖ of one plain weight, 0-d, differentiable, summed in float32 at least.

    A large weight is summed in blocks, then over the blocks: on the CPU one float32 sum over all of
    it is off by up to 4e-5.
    """
    accumulate = None if weight.dtype in _PRECISE else torch.float32
    if weight.ndim > 1 and weight.numel() > _ONE_SUM_IS_EXACT_ENOUGH:
        block = math.gcd(weight.numel(), 4096)
        if weight.is_contiguous() and block >= 256:
            weight = weight.view(-1, block)
        over = tuple(range(1, weight.ndim))
        weight = torch.linalg.vector_norm(weight, dim=over, dtype=accumulate)
    norm: Tensor = torch.linalg.vector_norm(weight, dtype=accumulate)
    return norm


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a ``DTensor``, without importing what defines it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of it unless sharded."""
    tensor = tensor.detach()
    return tensor.to_local() if is_sharded(tensor) else tensor


def _local_norms(weights: Sequence[Tensor]) -> Tensor:
    """Norms of plain tensors, shape (n,), on the first one's device."""
    if all(weight.device.type in _LOOPING for weight in weights):
        return _norms_one_by_one(weights)
    return _norms_at_once(weights)


def _norms_one_by_one(weights: Sequence[Tensor]) -> Tensor:
    """For the CPU: good to 2e-7 in float32, whatever the size."""
    # Backwards: the optimizer wrote the last ones last, so a cache may still hold them; and what is
    # read last here is what the rescale begins with.
    return torch.stack([frobenius(weight) for weight in reversed(weights)][::-1])


def _norms_at_once(weights: Sequence[Tensor]) -> Tensor:
    """For GPUs: one kernel for the weights of a device, and no value comes to the host."""
    home = weights[0].device
    accumulate = functools.reduce(
        torch.promote_types, {weight.dtype for weight in weights}, torch.float32
    )
    norms: dict[int, Tensor] = {}
    for same_device in _by_device(weights).values():
        found = foreach_norm(same_device, accumulate)
        norms |= {id(w): norm for w, norm in zip(same_device, found, strict=True)}
    return torch.stack([norms[id(w)].to(home, non_blocking=True) for w in weights])


def _by_device(tensors: Sequence[Tensor]) -> dict[torch.device, list[Tensor]]:
    groups: dict[torch.device, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        groups[tensor.device].append(tensor)
    return groups


def _by_sharding(
    weights: Sequence[Tensor],
) -> dict[tuple[DeviceMesh, tuple[int, ...]], list[int]]:
    """Indices of the sharded weights, by mesh and the mesh dimensions that split them."""
    groups: dict[tuple[DeviceMesh, tuple[int, ...]], list[int]] = defaultdict(list)
    if "torch.distributed.tensor" not in sys.modules:
        return groups
    for i, weight in enumerate(weights):
        if is_sharded(weight):
            split = tuple(d for d, p in enumerate(weight.placements) if not p.is_replicate())
            if split:
                groups[weight.device_mesh, split].append(i)
    return groups
