"""What segmenters and detectors have in common: a pretrained backbone, a convolution as their head,
pictures of what they find."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.data import DenseSettings, Progress
from fixnorm.models.backbones import load_backbone
from fixnorm.system.extras import needs
from fixnorm.training.kinds.dense import DenseRecipe
from fixnorm.training.tasks.task import D, Task

__all__ = ["DenseTask", "enlargement", "patches", "side_by_side"]

_GAP = 6
_LEAST = 320
"""Pixels of width below which a picture is enlarged, so that names can be read."""


X = TypeVar("X", bound=DenseRecipe)


class DenseTask(Task[X, D]):
    """How their data is opened and their backbone loaded."""

    opener: ClassVar[Callable[..., Any]]
    """Called with the folder, settings, seed and progress."""
    package: ClassVar[str]
    """What the metric needs."""

    def open(
        self, root: Path | None, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> D:
        if importlib.util.find_spec(self.package) is None:  # or the first evaluation would fail
            raise ValueError(needs(self.recipe.task, self.package, "dense"))
        return self._opened(root, self.recipe.data_settings(skip_broken=skip_broken), progress)

    def training_images(self, root: Path | None) -> int:
        data = self._opened(root, replace(self.recipe.data_settings(), in_memory=False, workers=0))
        data.close()
        return len(data.train)

    def _opened(
        self, root: Path | None, settings: DenseSettings, progress: Progress | None = None
    ) -> D:
        self.recipe.check_data(root)
        data: D = self.opener(root, settings=settings, seed=self.recipe.seed, progress=progress)
        return data

    def prepare(self, model: nn.Module, data: D) -> None:
        if self.recipe.backbone_weights is not None:
            load_backbone(model, self.recipe.model, self.recipe.backbone_weights)


def patches(maps: Tensor, conv: nn.Conv2d, image: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """What the conv multiplies with its flattened weight at these positions: (n, d·kh·kw)."""
    if isinstance(conv.padding, str) or conv.groups != 1:
        raise ValueError(f"a head of padding {conv.padding!r} and {conv.groups} groups has no MCBR")
    kernel, stride, dilation = conv.kernel_size, conv.stride, conv.dilation
    down, right = conv.padding
    padded = F.pad(maps, (right, right, down, down))
    found = [
        padded[image, :, row * stride[0] + i * dilation[0], column * stride[1] + j * dilation[1]]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return torch.stack(found, dim=2).flatten(1).float()


def side_by_side(pictures: list[Tensor]) -> Image.Image:
    """Pictures (3, H, W) in 0..1 from left to right, with a gap between."""
    factor = enlargement(pictures[0])
    height = pictures[0].shape[1]
    white = torch.ones(3, height, _GAP)
    row = [part for picture in pictures for part in (white, picture)][1:]
    pixels = torch.cat(row, dim=2)
    pixels = pixels.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    array = (pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return Image.fromarray(array)


def enlargement(image: Tensor) -> int:
    """The whole factor that makes the picture wide enough."""
    return max(1, -(-_LEAST // image.shape[2]))
