"""Where random crops lie, from uniform numbers: arithmetic on whole columns, no images.

The columns of a row of draws:
    0 flip · 1 top · 2 left · 3 seed of the policy, or scale · 4… ten attempts of (area, ratio)
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fixnorm.data.settings import ClassificationFields, SegmentationSettings

_RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10
LEAST_DRAWS = 4
"""Columns of a table of draws; a row is a multiple of this."""


class Crops(NamedTuple):
    """In pixels, one a sample."""

    top: NDArray[np.int64]
    left: NDArray[np.int64]
    height: NDArray[np.int64]
    width: NDArray[np.int64]


def draws_per_sample(settings: ClassificationFields) -> int:
    """The columns that these settings need."""
    attempts = 2 * _ATTEMPTS if settings.train_crop == "random-resized" else 0
    return LEAST_DRAWS + attempts


def flips(draws: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which samples are mirrored."""
    return draws[:, 0] < 0.5


def policy_seed(draws: NDArray[np.float64]) -> int:
    """The seed of one sample's augmentation policy."""
    return int(draws[0, 3] * 2**32)


def positions(u: NDArray[np.float64], room: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Uniform over 0 … room, both included."""
    chosen: NDArray[np.int64] = np.floor(u * (np.asarray(room) + 1)).astype(np.int64)
    return chosen


def padded_crops(draws: NDArray[np.float64], *, size: int, padding: int) -> Crops:
    """Crops of `size` from images padded to size + 2·padding."""
    side = np.full(len(draws), size)
    top, left = (positions(draws[:, column], 2 * padding) for column in (1, 2))
    return Crops(top, left, side, side)


def resized_crops(
    draws: NDArray[np.float64], *, height: int, width: int, min_scale: float
) -> Crops:
    """Crops as torchvision's `RandomResizedCrop` draws them.

    Area uniform in [min_scale, 1] of the image, log ratio uniform in [log 3/4, log 4/3]; the first
    of ten attempts that fits, else the largest centred crop of an allowed ratio.
    """
    area_u, ratio_u = draws[:, 4::2], draws[:, 5::2]
    area = height * width * (min_scale + (1 - min_scale) * area_u)
    low, high = (math.log(r) for r in _RATIO)
    ratio = np.exp(low + (high - low) * ratio_u)
    w = np.rint(np.sqrt(area * ratio)).astype(np.int64)
    h = np.rint(np.sqrt(area / ratio)).astype(np.int64)
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.argmax(axis=1)
    rows = np.arange(len(draws))
    found = fits[rows, first]

    fallback_h, fallback_w = height, width
    if width / height < _RATIO[0]:
        fallback_h = round(width / _RATIO[0])
    elif width / height > _RATIO[1]:
        fallback_w = round(height * _RATIO[1])
    h = np.where(found, h[rows, first], fallback_h)
    w = np.where(found, w[rows, first], fallback_w)
    top = np.where(found, positions(draws[:, 1], height - h), (height - fallback_h) // 2)
    left = np.where(found, positions(draws[:, 2], width - w), (width - fallback_w) // 2)
    return Crops(top, left, h, w)


class ScaledCrop(NamedTuple):
    """Rows and columns, from `top` and `left`, of an image resized to height × width."""

    height: int
    width: int
    top: int
    left: int
    rows: int
    columns: int
    flip: bool


def scaled_crop(
    size: tuple[int, int], draws: NDArray[np.float64], settings: SegmentationSettings
) -> ScaledCrop:
    """Scale, then place the crop uniformly; it is smaller where the scaled image is."""
    low, high = settings.scale
    factor = low + (high - low) * float(draws[0, 3])
    height, width = (max(1, int(side * factor + 0.5)) for side in size)
    crop_height, crop_width = settings.crop_size
    rows, columns = min(height, crop_height), min(width, crop_width)
    top, left = (
        int(positions(draws[:, column], room)[0])
        for column, room in ((1, height - rows), (2, width - columns))
    )
    flip = settings.flip and bool(flips(draws)[0])
    return ScaledCrop(height, width, top, left, rows, columns, flip)
