"""Small sets: all pixels in one uint8 tensor, a batch augmented at once."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fixnorm.data.crops import Boxes, draws_per_sample, flips, padded_boxes, resized_boxes
from fixnorm.data.draws import uniforms
from fixnorm.data.pixels import Normalize
from fixnorm.data.resample import resized_crops
from fixnorm.data.settings import DataSettings
from fixnorm.data.split import Batch


class MemoryEval:
    """Pixels as evaluation sees them."""

    def __init__(
        self, pixels: torch.Tensor, labels: NDArray[np.int64], settings: DataSettings
    ) -> None:
        self.pixels = pixels
        self._labels = torch.from_numpy(labels)
        self._normalize = Normalize(settings, channels=pixels.shape[1])

    def __len__(self) -> int:
        return len(self._labels)

    def load(self, plan: list[NDArray[np.int64]], *, epoch: int) -> Iterator[Batch]:
        """The planned batches; every epoch sees the same."""
        for positions in plan:
            index = torch.from_numpy(positions)
            yield Batch(self._normalize(self.pixels[index]), self._labels[index])

    def close(self) -> None:
        """Nothing runs."""


class MemoryTrain:
    """Pixels before random crop and flip."""

    def __init__(
        self, pixels: torch.Tensor, labels: NDArray[np.int64], settings: DataSettings, *, seed: int
    ) -> None:
        self.pixels = pixels
        self._labels = torch.from_numpy(labels)
        self._settings = settings
        self._seed = seed
        self._normalize = Normalize(settings, channels=pixels.shape[1])

    def __len__(self) -> int:
        return len(self._labels)

    def load(self, plan: list[NDArray[np.int64]], *, epoch: int) -> Iterator[Batch]:
        """The planned batches, augmented by the epoch's table of draws."""
        draws = uniforms(len(self), draws_per_sample(self._settings), seed=self._seed, epoch=epoch)
        for positions in plan:
            index = torch.from_numpy(positions)
            pixels = self._augment(self.pixels[index], draws[positions])
            yield Batch(self._normalize(pixels), self._labels[index])

    def _augment(self, pixels: torch.Tensor, draws: NDArray[np.float64]) -> torch.Tensor:
        settings = self._settings
        flip = flips(draws) if settings.flip else np.zeros(len(draws), dtype=np.bool_)
        if settings.train_crop == "random-resized":
            boxes = resized_boxes(
                draws,
                height=pixels.shape[2],
                width=pixels.shape[3],
                min_scale=settings.min_scale,
            )
            size, mode = settings.image_size, settings.train_interpolation
            return flipped(resized_crops(pixels, boxes, size, mode), flip)
        if settings.train_crop == "pad":
            boxes = padded_boxes(draws, size=settings.image_size, padding=settings.padding)
            padded = functional.pad(pixels, (settings.padding,) * 4)
            return cropped(padded, boxes, flip)
        return flipped(pixels, flip)

    def close(self) -> None:
        """Nothing runs."""


def flipped(pixels: torch.Tensor, flip: NDArray[np.bool_]) -> torch.Tensor:
    """Mirror the chosen images of a batch."""
    if not flip.any():
        return pixels
    return torch.where(torch.from_numpy(flip)[:, None, None, None], pixels.flip(3), pixels)


def cropped(pixels: torch.Tensor, boxes: Boxes, flip: NDArray[np.bool_]) -> torch.Tensor:
    """Box b of image b, all of one size, mirrored where `flip`: one gather for the batch."""
    batch, channels, _, full_width = pixels.shape
    height, width = int(boxes.height[0]), int(boxes.width[0])
    x = np.arange(width)
    columns = boxes.left[:, None] + np.where(flip[:, None], x[::-1], x)
    rows = boxes.top[:, None] + np.arange(height)
    index = torch.from_numpy(rows[:, :, None] * full_width + columns[:, None, :])
    return (
        pixels.flatten(2)
        .gather(2, index.view(batch, 1, -1).expand(-1, channels, -1))
        .view(batch, channels, height, width)
    )
