"""Norms of plain tensors, quick and exact: on a GPU in one kernel, on a CPU in blocks.

On a CPU one float32 sum over 2 million elements is off by up to 4e-5. So a large weight is summed
in blocks as it lies in memory, at the speed of reading it, then over the blocks.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fixnorm.internals import foreach_norm

__all__ = ["NormsOfTheSame", "by_device", "frobenius", "plain_norms"]

# Past this size one running float32 sum on the CPU is no longer good to 2e-7.
_ONE_SUM_IS_EXACT_ENOUGH = 1 << 14
_PRECISE = (torch.float32, torch.float64)
# Devices on which a foreach function is a loop over the tensors, and its sums are not exact enough.
_LOOPING = ("cpu",)


def plain_norms(tensors: Sequence[Tensor]) -> Tensor:
    """‖W_i‖ of every tensor, shape (n,), on the first one's device."""
    return _norms_in_blocks(tensors) if _on_looping(tensors) else _norms_at_once(tensors)


class NormsOfTheSame:
    """:func:`plain_norms` of the same tensors, step after step.

    A step of the optimizer leaves nothing of this in a cache, and what is to be looked up for a
    tensor takes as long as to sum a small one. So on a CPU the blocks of each tensor are found
    once, and again when one of the tensors lies elsewhere.
    """

    def __init__(self) -> None:
        self._places: list[int] = []
        """Where each tensor begins, and how many elements it has."""
        self._sums: list[Callable[[], Tensor]] = []
        """Each writes the norms of the blocks of one tensor."""
        self._summed: list[Tensor] = []
        """For each tensor what has its norm: itself, or the norms of its blocks."""
        self._dtype = torch.float32

    @torch.no_grad()
    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        if torch.compiler.is_compiling():
            return plain_norms(tensors)
        places = [*map(Tensor.data_ptr, tensors), *map(Tensor.numel, tensors)]
        if places != self._places:
            if not _on_looping(tensors):
                return plain_norms(tensors)
            self._find_blocks(tensors)
            self._places = places
        for write in self._sums:
            write()
        return torch.stack(foreach_norm(self._summed, self._dtype))

    def _find_blocks(self, tensors: Sequence[Tensor]) -> None:
        self._sums, self._summed, self._dtype = [], [], _widest(tensors)
        for tensor in tensors:
            blocks = _as_blocks(tensor)
            if blocks is None:
                self._summed.append(tensor)
            else:
                norms = blocks.new_empty(len(blocks), dtype=_accumulate(tensor))
                how = _of_rows(blocks)
                self._sums.append(partial(torch.linalg.vector_norm, blocks, out=norms, **how))
                self._summed.append(norms)
        self._sums.reverse()  # as in _norms_in_blocks


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


def _on_looping(tensors: Sequence[Tensor]) -> bool:
    return all(device.type in _LOOPING for device in {tensor.device for tensor in tensors})


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
    blocks = _as_blocks(weight)
    return weight if blocks is None else torch.linalg.vector_norm(blocks, **_of_rows(blocks))


def _of_rows(blocks: Tensor) -> dict[str, Any]:
    """How ``vector_norm`` takes the norms over all dimensions but the first."""
    return {"dim": tuple(range(1, blocks.ndim)), "dtype": _accumulate(blocks)}


def _as_blocks(weight: Tensor) -> Tensor | None:
    """A view of the weight with a block in each row, or the weight; none if it is small."""
    if weight.ndim < 2 or weight.numel() <= _ONE_SUM_IS_EXACT_ENOUGH:
        return None
    block = math.gcd(weight.numel(), 4096)
    if block >= 256 and (dense := _in_memory_order(weight)).is_contiguous():
        return dense.view(-1, block)
    return weight


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
