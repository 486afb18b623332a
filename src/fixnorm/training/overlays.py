"""Predictions drawn on their images, beside what is true."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from fixnorm.data import Target

__all__ = ["boxes_overlay", "pixels_overlay"]

CITYSCAPES = (
    *((128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153)),
    *((153, 153, 153), (250, 170, 30), (220, 220, 0), (107, 142, 35), (152, 251, 152)),
    *((70, 130, 180), (220, 20, 60), (255, 0, 0), (0, 0, 142), (0, 0, 70)),
    *((0, 60, 100), (0, 80, 100), (0, 0, 230), (119, 11, 32)),
)
"""The colours in which everybody shows its 19 classes."""
_SHOWN = 0.3
"""Score from which on a box is drawn, unless even the best one is below: then that one."""
_GAP = 6
_LEAST = 320
"""Pixels of width below which a picture is enlarged, so that names can be read."""


def pixels_overlay(
    image: Tensor, labels: Tensor, predicted: Tensor, *, ignored: int
) -> Image.Image:
    """Image, labels and prediction from left to right; pixels without a label stay grey.

    Args:
        image: (3, H, W) in 0..1.
        labels: (H, W) of Cityscapes' classes, ``ignored`` where there is none.
        predicted: (H, W) of its classes.
        ignored: the label that is none.
    """
    palette = torch.tensor(CITYSCAPES)

    def tinted(classes: Tensor, shown: Tensor) -> Tensor:
        colour = palette[torch.where(shown, classes, 0)].permute(2, 0, 1) / 255
        grey = image.mean(0, keepdim=True).expand(3, -1, -1)
        return torch.where(shown, 0.35 * image + 0.65 * colour, 0.7 * grey)

    everywhere = torch.ones_like(predicted, dtype=torch.bool)
    return _side_by_side([image, tinted(labels, labels != ignored), tinted(predicted, everywhere)])


def boxes_overlay(
    image: Tensor, target: Target, found: Mapping[str, Tensor], classes: Sequence[str]
) -> Image.Image:
    """Labelled boxes on the left, found ones with their scores on the right.

    Args:
        image: (3, H, W) in 0..1.
        target: boxes and labels in the image's pixels.
        found: ``boxes``, ``scores`` and ``labels`` as torchvision's detectors give them.
        classes: names by label.
    """
    scores = found["scores"]
    least = min(_SHOWN, float(scores.max())) if len(scores) else _SHOWN
    shown = scores >= least
    labels = found["labels"][shown].tolist()
    words = [f"{classes[k]} {s:.2f}" for k, s in zip(labels, scores[shown].tolist(), strict=True)]
    true = target["labels"].tolist()
    return _side_by_side(
        [
            _boxed(image, target["boxes"], true, [classes[k] for k in true]),
            _boxed(image, found["boxes"][shown], labels, words),
        ]
    )


def _boxed(image: Tensor, boxes: Tensor, labels: list[int], words: list[str]) -> Tensor:
    from torchvision.utils import draw_bounding_boxes

    factor = _enlargement(image)
    pixels = image[None].repeat_interleave(factor, 2).repeat_interleave(factor, 3)[0]
    pixels = (pixels * 255).round().byte()
    if len(boxes):
        colours: Any = [_colour(k) for k in labels]
        pixels = draw_bounding_boxes(pixels, boxes * factor, words, colours, width=2)
    return pixels / 255


def _side_by_side(pictures: list[Tensor]) -> Image.Image:
    factor = _enlargement(pictures[0])
    height = pictures[0].shape[1]
    white = torch.ones(3, height, _GAP)
    row = [part for picture in pictures for part in (white, picture)][1:]
    pixels = torch.cat(row, dim=2)
    pixels = pixels.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    array = (pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(array)


def _enlargement(image: Tensor) -> int:
    return max(1, -(-_LEAST // image.shape[2]))


def _colour(label: int) -> tuple[int, int, int]:
    """Hues a golden ratio apart: those of the first labels differ most."""
    red, green, blue = colorsys.hsv_to_rgb((0.04 + label * 0.618034) % 1, 0.9, 0.85)
    return round(255 * red), round(255 * green), round(255 * blue)
