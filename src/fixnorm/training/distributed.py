"""One process or many: what ``torchrun`` set up, and sums over all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fixnorm.internals import default_store
from fixnorm.system.interrupt import Interrupted
from fixnorm.system.launched import SAID, launched, mark_said
from fixnorm.system.leash import hold
from fixnorm.system.words import mistake, say

__all__ = ["World", "world"]


@dataclass(frozen=True, slots=True)
class World:
    """This process among all processes of the training."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        total = values.clone()
        if self.size > 1:
            dist.all_reduce(total)
        return total

    def gather(self, values: Tensor) -> list[Tensor]:
        """What each process holds, in rank order."""
        if self.size == 1:
            return [values.clone()]
        found = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(found, values)
        return found

    def largest(self, value: int) -> int:
        """The largest over all processes; waits for the device."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return int(tensor.item())

    def share_buffers(self, model: nn.Module) -> None:
        """Give every process the first one's running statistics."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def average_buffers(self, model: nn.Module) -> None:
        """Give every process the mean of all processes' running statistics."""
        if self.size > 1:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= self.size

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()


def _told(error: Exception, rank: int) -> None:
    """Say what went wrong, here or on the process that met it first; all others follow from it."""
    try:
        store = default_store()
        first = store.add(SAID, 1) == 1
    except (RuntimeError, ValueError):  # it is gone with the first process, which has spoken
        first = rank == 0
    message = mistake(error)
    if first and message is None:
        return  # a mistake of ours: the traceback says it
    if first and message is not None:
        say(message)
    mark_said(error)


@contextmanager
def world() -> Iterator[World]:
    """The processes that ``torchrun`` started, or this one alone."""
    place = launched()
    local = int(os.environ.get("LOCAL_RANK", "0")) if place is not None else 0
    if torch.cuda.is_available():
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    if place is None or dist.is_initialized():
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        yield World(rank, size, device)
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        hold("-")  # torchrun starts sessions of their own, which outlive a killed torchrun
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size(), device)
    except Interrupted:
        raise
    except Exception as error:  # while the others are still there to be told
        _told(error, dist.get_rank())
        raise
    finally:
        dist.destroy_process_group()
