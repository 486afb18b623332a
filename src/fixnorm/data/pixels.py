"""From images to the tensors that a model sees."""

from typing import Protocol

import numpy as np
import torch
from PIL import Image


def to_pixels(image: Image.Image) -> torch.Tensor:
    """uint8 (channels, height, width)."""
    pixels = torch.from_numpy(np.array(image))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)


class _Normalised(Protocol):
    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...


class Normalize:
    """uint8 images to float32: (x/255 − mean)/std, in torchvision's order of operations."""

    def __init__(self, settings: _Normalised, *, channels: int) -> None:
        self._mean, self._std = (
            torch.tensor(values * channels if len(values) == 1 else values).view(1, -1, 1, 1)
            for values in (settings.mean, settings.std)
        )

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """A new tensor."""
        return pixels.float().div_(255).sub_(self._mean).div_(self._std)
