"""Norms of plain tensors, quick and exact: on a GPU in one kernel, on a CPU in blocks.

On a CPU one float32 sum over 2 million elements is off by up to 4e-5. So a large weight is summed
in blocks as it lies in memory, at the speed of reading it, then over the blocks.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from fixnorm.internals import foreach_norm

__all__ = ["by_device", "frobenius", "plain_norms"]

# Past this size one running float32 sum on the CPU is no longer good to 2e-7.
_ONE_SUM_IS_EXACT_ENOUGH = 1 << 14
_PRECISE = (torch.float32, torch.float64)
# Devices on which a foreach function is a loop over the tensors, and its sums are not exact enough.
_LOOPING = ("cpu",)


def plain_norms(tensors: Sequence[Tensor]) -> Tensor:
    """‖W_i‖ of every tensor, shape (n,), on the first one's device."""
    if all(tensor.device.type in _LOOPING for tensor in tensors):
        return _norms_in_blocks(tensors)
    return _norms_at_once(tensors)


def frobenius(weight: Tensor) -> Tensor:
    """‖W‖ of one plain weight, 0-d, differentiable, summed in float32 at least."""
    norm: Tensor = torch.linalg.vector_norm(_blocks(weight), dtype=_accumulate(weight))
    return norm


def by_device(tensors: Sequence[Tensor]) -> dict[torch.device, list[int]]:
    """Indices of the tensors, by where they are."""
    groups: dict[torch.device, list[int]] = defaultdict(list)
    for i, tensor in enumerate(tensors):
        groups[tensor.device].append(i)
    return groups


def _norms_in_blocks(tensors: Sequence[Tensor]) -> Tensor:
    """For the CPU: good to 2e-7 in float32, whatever the size."""
    # Backwards: the optimizer wrote the last ones last, so a cache may still hold them; and what is
    # read last here is what the rescale begins with.
    blocks = [_blocks(tensor) for tensor in reversed(tensors)]
    return torch.stack(foreach_norm(blocks[::-1], _widest(tensors)))


def _norms_at_once(tensors: Sequence[Tensor]) -> Tensor:
    """For GPUs: one kernel for the tensors of a device, and no value comes to the host."""
    home = tensors[0].device
    norms: dict[int, Tensor] = {}
    for indices in by_device(tensors).values():
        found = foreach_norm([tensors[i] for i in indices], _widest(tensors))
        norms |= dict(zip(indices, found, strict=True))
    return torch.stack([norms[i].to(home, non_blocking=True) for i in range(len(tensors))])


def _blocks(weight: Tensor) -> Tensor:
    """A tensor that has the weight's norm: the norms of its blocks, or itself if it is small."""
    if weight.ndim < 2 or weight.numel() <= _ONE_SUM_IS_EXACT_ENOUGH:
        return weight
    block = math.gcd(weight.numel(), 4096)
    if block >= 256 and (dense := _in_memory_order(weight)).is_contiguous():
        weight = dense.view(-1, block)
    over = tuple(range(1, weight.ndim))
    norms: Tensor = torch.linalg.vector_norm(weight, dim=over, dtype=_accumulate(weight))
    return norms


def _in_memory_order(weight: Tensor) -> Tensor:
    """The weight with its dimensions sorted by stride: contiguous if it has no gaps."""
    if weight.is_contiguous():
        return weight
    strides = weight.stride()
    return weight.permute(sorted(range(weight.ndim), key=lambda d: strides[d], reverse=True))


def _accumulate(weight: Tensor) -> torch.dtype | None:
    """What to sum the weight in, if not in what it is."""
    return None if weight.dtype in _PRECISE else torch.float32


def _widest(tensors: Sequence[Tensor]) -> torch.dtype:
    """What to sum all of the tensors in: float32 at least."""
    dtypes = {tensor.dtype for tensor in tensors}
    return functools.reduce(torch.promote_types, dtypes, torch.float32)
