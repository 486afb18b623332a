"""Random windows of an image and of its pixel labels: scale, crop, pad, flip.

The columns of a row of draws:
    0 flip · 1 top · 2 left · 3 scale
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from fixnorm.data.crops import flips, positions
from fixnorm.data.dense_settings import SegmentationSettings
from fixnorm.data.pixels import to_pixels
from fixnorm.data.transforms import resized

DRAWS = 4


class Window(NamedTuple):
    """Rows and columns, from `top` and `left`, of an image resized to height × width."""

    height: int
    width: int
    top: int
    left: int
    rows: int
    columns: int
    flip: bool


def draw_window(
    size: tuple[int, int], draws: NDArray[np.float64], settings: SegmentationSettings
) -> Window:
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
    return Window(height, width, top, left, rows, columns, flip)


def image_window(image: NDArray[np.uint8], at: Window) -> torch.Tensor:
    """uint8 (3, rows, columns) of an image (h, w, 3), bilinear, not yet mirrored."""
    h = image.shape[0]
    wide = resized(Image.fromarray(image), h, at.width)
    # y is resized after x: columns that the crop leaves out can go before
    columns = wide.crop((at.left, 0, at.left + at.columns, h))
    tall = resized(columns, at.height, at.columns)
    return to_pixels(tall.crop((0, at.top, at.columns, at.top + at.rows)))


def label_window(labels: NDArray[np.uint8], at: Window) -> torch.Tensor:
    """(rows, columns) of the labels in which the scaled pixels' centres lie, not yet mirrored.

    The centre of scaled pixel i is in pixel floor((i + ½) · h/height).
    """
    h, w = labels.shape
    rows = (2 * np.arange(at.top, at.top + at.rows) + 1) * h // (2 * at.height)
    columns = (2 * np.arange(at.left, at.left + at.columns) + 1) * w // (2 * at.width)
    return torch.from_numpy(labels[rows[:, None], columns])


def completed(
    window: torch.Tensor, at: Window, settings: SegmentationSettings, *, fill: int
) -> torch.Tensor:
    """Padded at the bottom and the right to the size of a crop, then mirrored where it must be."""
    height, width = settings.crop_size
    padded = functional.pad(window, (0, width - at.columns, 0, height - at.rows), value=fill)
    return padded.flip(-1) if at.flip else padded
