"""Small classification sets: all pixels in one uint8 tensor, a batch augmented at once."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from fixnorm.data.crops import draws_per_sample, flips, padded_crops, resized_crops
from fixnorm.data.draws import uniforms
from fixnorm.data.errors import DataError
from fixnorm.data.images import Images, Normalize, each_chunk, to_image, to_pixels
from fixnorm.data.settings import DataSettings
from fixnorm.data.split import Batch
from fixnorm.data.transforms import cropped, flipped, resized_crop


class MixedSizesError(DataError):
    """Images of several sizes where one tensor must hold them all."""


def decode_all(
    images: Images,
    transform: Callable[[Image.Image], Image.Image],
    *,
    skip_broken: bool,
    advance: Callable[[int], None],
) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Every readable image through `transform`, as uint8 (n, channels, height, width); which."""
    n = len(images.labels)
    pixels = torch.empty(0, dtype=torch.uint8)
    kept: list[int] = []
    for done in each_chunk(
        n, lambda i: to_pixels(transform(images.image(i))), skip_broken=skip_broken, advance=advance
    ):
        for i, one in done:
            if not kept:
                pixels = torch.empty(n, *one.shape, dtype=torch.uint8)
            elif one.shape != pixels.shape[1:]:
                raise MixedSizesError(
                    f"images of several sizes: {images.path(i)} has {one.shape[1]}×{one.shape[2]}"
                    f" pixels, {images.path(kept[0])} {pixels.shape[2]}×{pixels.shape[3]}; leave"
                    " in_memory unset to stream them, or take another train_crop"
                )
            pixels[len(kept)] = one
            kept.append(i)
    return pixels[: len(kept)], np.array(kept, dtype=np.int64)


class MemoryLoader:
    """Pixels as evaluation sees them, or with a seed as they are before random crop and flip."""

    def __init__(
        self,
        pixels: torch.Tensor,
        labels: NDArray[np.int64],
        settings: DataSettings,
        *,
        seed: int | None,
    ) -> None:
        self._pixels = pixels
        self._labels = torch.from_numpy(labels)
        self._settings = settings
        self._seed = seed
        self._normalize = Normalize(settings, channels=pixels.shape[1])

    def __len__(self) -> int:
        return len(self._labels)

    def load(self, plan: list[NDArray[np.int64]], *, epoch: int) -> Iterator[Batch]:
        """The planned batches, augmented by the epoch's table of draws."""
        draws = None
        if self._seed is not None:
            width = draws_per_sample(self._settings)
            draws = uniforms(len(self), width, seed=self._seed, epoch=epoch)
        for positions in plan:
            index = torch.from_numpy(positions)
            pixels = self._pixels[index]
            if draws is not None:
                pixels = self._augmented(pixels, draws[positions])
            yield Batch(self._normalize(pixels), self._labels[index])

    def _augmented(self, pixels: torch.Tensor, draws: NDArray[np.float64]) -> torch.Tensor:
        settings = self._settings
        flip = flips(draws) if settings.flip else np.zeros(len(draws), dtype=np.bool_)
        if settings.train_crop == "pad":
            crops = padded_crops(draws, size=settings.image_size, padding=settings.padding)
            return cropped(functional.pad(pixels, (settings.padding,) * 4), crops, flip)
        if settings.train_crop == "random-resized":
            height, width = pixels.shape[2:]
            crops = resized_crops(draws, height=height, width=width, min_scale=settings.min_scale)
            images = (
                resized_crop(to_image(one), crops, at, settings) for at, one in enumerate(pixels)
            )
            pixels = torch.stack([to_pixels(image) for image in images])
        return flipped(pixels, flip)

    def close(self) -> None:
        """There is no process to end."""
