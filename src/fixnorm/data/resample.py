"""Crop and resize a whole batch, bit for bit as Pillow does it image by image.

An image is resized along x, then along y. Output pixel x is a weighted sum of the input
pixels within `support · max(scale, 1)` of its centre (x + ½)·scale; weights are fixed-point
integers of 22 bits, and each pass rounds to 8 bits. Integer sums have no rounding error, so an
image's result does not depend on the batch it is in.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fixnorm.data.crops import Boxes
from fixnorm.data.settings import Interpolation

_BITS = 22


def _triangle(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    a = -0.5
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


_Filter = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_FILTERS: dict[Interpolation, tuple[_Filter, float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
}


class _Taps(NamedTuple):
    position: torch.Tensor  # (taps, B, size)
    weight: torch.Tensor  # (taps, B, size): int32 fixed point


def _taps(
    begin: NDArray[np.int64], length: NDArray[np.int64], size: int, interpolation: Interpolation
) -> _Taps:
    """Positions and weights that turn pixels begin … begin+length into `size` pixels."""
    kernel, radius = _FILTERS[interpolation]
    scale = (length / size)[:, None]
    spread = np.maximum(scale, 1.0)
    centre = (np.arange(size) + 0.5) * scale
    support = radius * spread
    low = np.maximum(0, (centre - support + 0.5).astype(np.int64))
    high = np.minimum(length[:, None], (centre + support + 0.5).astype(np.int64))
    count = int((high - low).max())
    positions = low + np.arange(count)[:, None, None]
    inside = positions < high
    weights = np.where(inside, kernel((positions - centre + 0.5) * (1.0 / spread)), 0.0)
    total = np.zeros_like(centre)
    for weight in weights:  # in Pillow's order, for the same last bit
        total += weight
    fixed = np.trunc(weights / total * 2**_BITS + np.copysign(0.5, weights))
    position = np.where(inside, positions, 0) + begin[:, None]
    return _Taps(torch.from_numpy(position), torch.from_numpy(fixed.astype(np.int32)))


def _weighted_lines(lines: torch.Tensor, taps: _Taps) -> torch.Tensor:
    """(B, length, n) to (B, size, n): whole lines are copied, which is fast, then summed."""
    batch, length, n = lines.shape
    offset = torch.arange(batch)[:, None] * length
    flat = lines.reshape(batch * length, n)
    total = torch.full((batch, taps.position.shape[2], n), 1 << (_BITS - 1), dtype=torch.int32)
    for position, weight in zip(*taps, strict=True):
        picked = flat.index_select(0, (offset + position).flatten()).view_as(total)
        total.addcmul_(picked, weight[:, :, None])
    return total.bitwise_right_shift_(_BITS).clamp_(0, 255)


def resized_crops(
    pixels: torch.Tensor, boxes: Boxes, size: int, interpolation: Interpolation
) -> torch.Tensor:
    """uint8 (B, C, H, W) to (B, C, size, size): box b of image b, resized along x, then y."""
    batch, channels, height, _ = pixels.shape
    x_taps = _taps(boxes.left, boxes.width, size, interpolation)
    y_taps = _taps(boxes.top, boxes.height, size, interpolation)
    lines_BWCH = pixels.permute(0, 3, 1, 2).to(torch.int32).flatten(2)
    wide = _weighted_lines(lines_BWCH, x_taps).view(batch, size, channels, height)
    lines_BHCW = wide.permute(0, 3, 2, 1).flatten(2)
    square = _weighted_lines(lines_BHCW, y_taps).view(batch, size, channels, size)
    return square.permute(0, 2, 1, 3).to(torch.uint8).contiguous()
