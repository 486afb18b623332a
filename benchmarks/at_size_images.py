"""CIFAR-10 as a whole, a byte a value, and batches that are the same for every side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from fixnorm.data.images import ArrayImages
from fixnorm.data.packed import open_cifar10

Batch = tuple[Tensor, Tensor]
PAD = 4


@dataclass(frozen=True, slots=True)
class Packed:
    """Images as (n, height, width, 3), those that train with a border of the mean colour."""

    train: NDArray[np.uint8]
    train_labels: Tensor
    val: NDArray[np.uint8]
    val_labels: Tensor
    mean: Tensor
    """Of each colour of the training images, 0 to 255, and the deviation."""
    std: Tensor

    @classmethod
    def of(
        cls,
        train: NDArray[np.uint8],
        train_labels: NDArray[np.int64],
        val: NDArray[np.uint8],
        val_labels: NDArray[np.int64],
    ) -> Packed:
        mean = train.mean((0, 1, 2), dtype=np.float64)
        std = np.array([train[..., colour].std(dtype=np.float64) for colour in range(3)])
        count, height, width, colours = train.shape
        bordered = np.empty((count, height + 2 * PAD, width + 2 * PAD, colours), dtype=np.uint8)
        bordered[:] = np.rint(mean)
        bordered[:, PAD:-PAD, PAD:-PAD] = train
        as_tensor = (torch.from_numpy(x).float().reshape(1, 3, 1, 1) for x in (mean, std))
        labels = (torch.from_numpy(x) for x in (train_labels, val_labels))
        (own, others), (middle, spread) = labels, as_tensor
        return cls(bordered, own, val, others, middle, spread)

    def epoch(self, batch: int, *, seed: int, epoch: int) -> Iterator[Batch]:
        """Whole batches, cropped and flipped: all of it follows from seed and epoch."""
        chance = np.random.default_rng([seed, epoch])
        count = len(self.train)
        order = chance.permutation(count)
        down, right = chance.integers(2 * PAD + 1, size=(2, count))
        flipped = chance.random(count) < 0.5
        size = (self.train.shape[1] - 2 * PAD, self.train.shape[2] - 2 * PAD)
        windows = np.moveaxis(sliding_window_view(self.train, size, axis=(1, 2)), 3, -1)
        for first in range(0, count - batch + 1, batch):
            at = slice(first, first + batch)
            images = windows[order[at], down[at], right[at]]
            images[flipped[at]] = images[flipped[at], :, ::-1]
            yield self._seen(images), self.train_labels[order[at]]

    def test(self) -> Iterator[Batch]:
        """All test images, in order."""
        for first in range(0, len(self.val), 1000):
            at = slice(first, first + 1000)
            yield self._seen(self.val[at]), self.val_labels[at]

    def sample(self) -> Tensor:
        """Two images, to measure a model with."""
        return self._seen(self.val[:2])

    def _seen(self, images: NDArray[np.uint8]) -> Tensor:
        """As a net sees them."""
        floats = torch.from_numpy(images).permute(0, 3, 1, 2).float()  # channels last stays
        return floats.sub_(self.mean).div_(self.std)


@cache
def cifar10(folder: Path) -> Packed:
    """All 60,000 images of a folder that ``cifar10_from_npm.py`` has written; read once."""
    source = open_cifar10(folder)
    train, val = source.train, source.val
    if not (isinstance(train, ArrayImages) and isinstance(val, ArrayImages)):
        raise SystemExit(f"no batches in {folder}: benchmarks/cifar10_from_npm.py writes them")
    return Packed.of(train.pixels, train.labels, val.pixels, val.labels)
