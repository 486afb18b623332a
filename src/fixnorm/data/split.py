"""An open set and its two splits: which samples make which batch on which rank.

Loaders fetch what a split asks for: `memory` and `stream` have one each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.draws import permutation
from fixnorm.data.errors import DataError


class Batch(NamedTuple):
    """Normalised float32 images (n, channels, height, width) and int64 labels.

    Labels are (n,) for classes of images, (n, height, width) for classes of pixels.
    """

    images: torch.Tensor
    labels: torch.Tensor


B_co = TypeVar("B_co", covariant=True)


class Loader(Protocol[B_co]):
    """Fetches samples by position."""

    def __len__(self) -> int: ...

    def load(self, plan: list[NDArray[np.int64]], *, epoch: int) -> Iterator[B_co]:
        """The batches of these positions, augmented as in `epoch` if the loader augments."""

    def close(self) -> None:
        """End the loader's processes, if it has any."""


def _share(batch_size: int, rank: int, world_size: int) -> int:
    """A rank's part of a batch."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1 but got {batch_size}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in 0..{world_size - 1} but got {rank}")
    if batch_size % world_size:
        raise ValueError(
            f"batch_size must divide by the number of processes but got {batch_size} on"
            f" {world_size}: take {batch_size // world_size * world_size or world_size}"
        )
    return batch_size // world_size


class TrainSplit(Generic[B_co]):
    """Training images in an order of their own each epoch."""

    def __init__(self, loader: Loader[B_co], *, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed must be at least 0 but got {seed}")
        self._loader = loader
        self._seed = seed

    def __len__(self) -> int:
        return len(self._loader)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Whole batches in an epoch; the rest of the images is left out."""
        _share(batch_size, 0, 1)
        if batch_size > len(self):
            raise DataError(
                f"batch larger than the set: batch_size {batch_size}, {len(self)} training images;"
                f" take at most {len(self)}"
            )
        return len(self) // batch_size

    def batches(
        self, *, epoch: int, batch_size: int, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[B_co]:
        """The epoch's batches from number `start` on.

        `batch_size` counts all ranks: batch b is positions b·B … (b+1)·B of the epoch's order, and
        rank r gets the r-th of its equal parts. The order is a function of (seed, epoch).
        """
        share = _share(batch_size, rank, world_size)
        steps = self.steps_per_epoch(batch_size)
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0 but got {epoch}")
        if not 0 <= start <= steps:
            raise ValueError(f"start must be in 0..{steps} batches but got {start}")
        order = permutation(len(self), seed=self._seed, epoch=epoch)
        parts = order[: steps * batch_size].reshape(steps, world_size, share)
        return self._loader.load(list(parts[start:, rank]), epoch=epoch)

    def close(self) -> None:
        self._loader.close()


class EvalSplit(Generic[B_co]):
    """Validation images, each exactly once over all ranks."""

    def __init__(self, loader: Loader[B_co], *, breaks: Sequence[int] = ()) -> None:
        """`breaks`: positions that begin a new batch, where images change their size."""
        self._loader = loader
        self._breaks = breaks

    def __len__(self) -> int:
        return len(self._loader)

    def eval_batches(
        self, *, batch_size: int, rank: int = 0, world_size: int = 1
    ) -> Iterator[B_co]:
        """This rank's contiguous part of the set, in order.

        `batch_size` counts all ranks. Ranks may differ by one image and so by one batch: reduce
        across ranks after the loop, not in it.
        """
        share = _share(batch_size, rank, world_size)
        first, last = (len(self) * r // world_size for r in (rank, rank + 1))
        edges = [first, *(at for at in self._breaks if first < at < last), last]
        plan = [
            np.arange(start, min(start + share, end), dtype=np.int64)
            for begin, end in pairwise(edges)
            for start in range(begin, end, share)
        ]
        return self._loader.load(plan, epoch=0)

    def close(self) -> None:
        self._loader.close()


Progress = Callable[[int, int], None]
"""Called with (files done, files in all) while a set is opened."""

MEMORY_LIMIT = 2 * 10**9
"""Bytes of pixels up to which `in_memory=None` keeps a set in memory."""

B = TypeVar("B")


@dataclass(kw_only=True)
class OpenSet(ABC, Generic[B]):
    """A set that is ready to train on."""

    name: str
    classes: tuple[str, ...]
    train: TrainSplit[B]
    val: EvalSplit[B]
    channels: int = 3
    memory_bytes: int | None
    """Bytes of pixels held, None for a set that streams."""
    broken: list[Path] = field(default_factory=list)
    """Files left out by `skip_broken`; a streaming set adds those it meets (on this rank)."""
    left_out: int = 0
    """What lies among the images and is no regular file (a pipe), or a link in a circle."""

    def describe(self) -> str:
        """The set in one line."""
        place = (
            "streaming"
            if self.memory_bytes is None
            else f"{self.memory_bytes / 1e6:.0f} MB in memory"
        )
        line = (
            f"{self._title()}: {len(self.train):,} train and {len(self.val):,} val"
            f" images, {len(self.classes)} classes, {self._shape()}, {place}"
        )
        line += f"; {len(self.broken)} broken left out" if self.broken else ""
        line += f"; {self.left_out} left out that are no regular files" if self.left_out else ""
        return line

    def _title(self) -> str:
        return self.name

    @abstractmethod
    def _shape(self) -> str:
        """The images that a model sees, in a few words."""

    def close(self) -> None:
        """End the loader processes, if there are any."""
        self.train.close()
        self.val.close()


class Counter:
    """One count over both splits for the progress callback."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, n: int) -> None:
        """`n` more files are done."""
        self._done += n
        if self._progress is not None:
            self._progress(self._done, self._total)

    def finish(self) -> None:
        """What was not needed is done too."""
        if self._done < self._total:
            self(self._total - self._done)
