"""Samples of classification: one image and its class, cropped and augmented by itself."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.crops import draws_per_sample
from fixnorm.data.images import Images
from fixnorm.data.pixels import Normalize, to_pixels
from fixnorm.data.settings import DataSettings
from fixnorm.data.split import Batch
from fixnorm.data.transforms import eval_image, train_image


class ClassSample(NamedTuple):
    """uint8 pixels (channels, size, size) and a class."""

    pixels: torch.Tensor
    label: int


class ClassReader:
    """Reads labelled images one by one."""

    def __init__(self, images: Images, settings: DataSettings, *, channels: int) -> None:
        self.draws = draws_per_sample(settings)
        self._images = images
        self._settings = settings
        self._normalize = Normalize(settings, channels=channels)

    def __len__(self) -> int:
        return len(self._images.labels)

    def path(self, at: int) -> Path | None:
        """The file of image `at`, if it is one."""
        return self._images.path(at)

    def read(self, at: int, draws: NDArray[np.float64] | None) -> ClassSample:
        """Image `at` as evaluation sees it, or augmented by `draws`."""
        image, settings = self._images.image(at), self._settings
        if draws is None:
            image = eval_image(image, settings)
        else:
            image = train_image(image, draws, settings)
        return ClassSample(to_pixels(image), int(self._images.labels[at]))

    def collate(self, samples: list[ClassSample]) -> Batch:
        """Stacked and normalised."""
        labels = torch.tensor([sample.label for sample in samples])
        return Batch(self._normalize(torch.stack([s.pixels for s in samples])), labels)
