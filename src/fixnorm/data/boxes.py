"""Boxes (n, 4) as corners x0, y0, x1, y1, and what happens to them when their image changes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_SIDE = 0.01
"""Pixels. A box thinner than this counts as one of no area: resized and mirrored in float32 its
two edges could fall together, and detectors refuse such boxes."""

Boxes = NDArray[np.float32]


class Clipped(NamedTuple):
    """Boxes inside their images, and which of them are of any use."""

    boxes: NDArray[np.float64]
    no_area: NDArray[np.bool_]
    outside: NDArray[np.bool_]


def clip(xywh: NDArray[np.float64], sizes: NDArray[np.int64]) -> Clipped:
    """Corners of boxes (x, y, width, height), each clipped to its image (height, width)."""
    low, length = xywh[:, :2], xywh[:, 2:]
    bounds = sizes[:, ::-1]
    corners = np.concatenate([np.clip(low, 0, bounds), np.clip(low + length, 0, bounds)], axis=1)
    left = corners[:, 2:] - corners[:, :2]
    no_area, too_little_left = (np.any(sides < LEAST_SIDE, axis=1) for sides in (length, left))
    return Clipped(corners, no_area, ~no_area & too_little_left)


def scale(boxes: Boxes, before: tuple[int, int], after: tuple[int, int]) -> Boxes:
    """Boxes of an image that is resized from `before` to `after` (height, width)."""
    y, x = (new / old for old, new in zip(before, after, strict=True))
    return boxes * np.array([x, y, x, y], dtype=np.float32)


def mirror(boxes: Boxes, width: int) -> Boxes:
    """Boxes of an image that is mirrored left to right: x0 ↦ width − x1, x1 ↦ width − x0."""
    mirrored = boxes.copy()
    mirrored[:, [0, 2]] = width - boxes[:, [2, 0]]
    return mirrored
