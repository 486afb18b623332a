"""What segmenters and detectors have in common: a length in iterations, a pretrained backbone, a
convolution as their head, pictures of what they find."""

from __future__ import annotations

import importlib.util
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.data import DataError, DenseFields, DenseSettings, Progress
from fixnorm.models.backbones import load_backbone
from fixnorm.system.extras import needs
from fixnorm.training.recipe import Recipe
from fixnorm.training.schedule import Timetable
from fixnorm.training.tasks.task import D, Task

__all__ = ["DenseRecipe", "DenseTask", "enlargement", "patches", "side_by_side"]

_GAP = 6
_LEAST = 320
"""Pixels of width below which a picture is enlarged, so that names can be read."""


class DenseRecipe(DenseFields, Recipe, frozen=True):
    """A training whose length is counted in iterations."""

    lr_range: ClassVar[tuple[float, float]] = (0.005, 0.1)
    """The appendix's, lower than for classifiers as backbones are pretrained."""
    unit: ClassVar[Literal["epochs", "iterations"]] = "iterations"

    backbone_weights: str | None = None
    """What the backbone starts from: a file of a classifier's weights (safetensors, or a state dict
    of torch), ``pretrained`` for the model library's own, none for random ones."""
    sync_norms: bool = False
    """Batch statistics over all GPUs, for batches of one or two images a GPU."""

    nesterov: bool = False
    iterations: int = Field(ge=1)
    warmup_iterations: int = Field(default=0, ge=0)
    """Linear warm-up, before the schedule."""
    eval_every: int = Field(default=1000, ge=1)
    """Iterations between evaluations, and lines of metrics.csv; the last is always evaluated."""
    eval_batch_size: int = Field(default=8, ge=1)
    flip: bool = True

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        if self.warmup_iterations > self.iterations:
            raise ValueError(
                f"warmup_iterations: {self.warmup_iterations} is more than"
                f" iterations={self.iterations}"
            )
        return self

    @model_validator(mode="after")
    def _images_can_be_made(self) -> Self:
        self.data_settings()
        return self

    @abstractmethod
    def data_settings(self, *, skip_broken: bool = False) -> DenseSettings:
        """What the data package needs to know."""

    @property
    def length(self) -> int:
        return self.iterations

    def of_length(self, length: int) -> dict[str, Any]:
        """Warm-up is not scaled with the length, but leaves most of a short training to the lr."""
        return {
            "iterations": length,
            "warmup_iterations": min(self.warmup_iterations, length // 4),
        }

    def rows(self) -> int:
        return math.ceil(self.iterations / self.eval_every)

    def timetable(self, steps_per_epoch: int) -> Timetable:
        return Timetable(
            steps=self.iterations,
            warmup=self.warmup_iterations,
            row=self.eval_every,
            evaluation=self.eval_every,
        )


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
        if root is None:
            name = self.recipe.data
            raise DataError(f"{name} needs a folder: give the one that holds its files")
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
