"""Classes of images: cross-entropy, and the share of images whose highest logit is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.data import Data, Progress, count_training_images, open_data
from fixnorm.data.errors import EMBEDDED
from fixnorm.models import create
from fixnorm.training.distributed import World
from fixnorm.training.kinds import METRICS
from fixnorm.training.kinds.classification import ClassificationRecipe, DataName
from fixnorm.training.tasks.task import (
    Estimates,
    Expected,
    Exports,
    Head,
    HeadRisk,
    Part,
    Risk,
    Score,
    Scorer,
    Task,
    by_channel,
)

__all__ = ["Classification"]

_SETS: dict[DataName, tuple[int, int]] = {
    "digits": (1_442, 10),
    "few-digits": (200, 10),
    "imagefolder": (1_281_167, 1000),
    "cifar10": (50_000, 10),
    "fashion-mnist": (60_000, 10),
}
"""Training images and classes of the sets as they are given away."""


class Accuracy(Scorer):
    """Top-1: the share of images whose highest logit is their class's."""

    def __init__(self, device: torch.device) -> None:
        self._counts = torch.zeros(2, dtype=torch.int64, device=device)

    def update(self, outputs: Tensor, labels: Tensor) -> None:
        self._counts[0] += (outputs.argmax(1) == labels).sum()
        self._counts[1] += len(labels)

    def compute(self, world: World) -> Score:
        correct, seen = world.sum(self._counts).tolist()
        return Score(100 * correct / seen)


class ImageRisk(HeadRisk):
    """Counts nothing where the head's features are not flat."""

    def update(self, labels: Tensor) -> None:
        features = self._input.features
        if features.ndim == 2 and len(features) == len(labels):
            self.metric.update(features.float(), labels, self._head.weight.detach().flatten(1))


class _Estimates(Estimates[ClassificationRecipe]):
    def expected(self) -> Expected:
        """The whole set, or the recipe's share of it; an image folder is taken for ImageNet."""
        recipe, (images, all_classes) = self.recipe, _SETS[self.recipe.data]
        classes = min(recipe.classes or all_classes, all_classes)
        if recipe.classes is not None or recipe.train_per_class is not None:
            per_class = images // all_classes
            images = classes * min(recipe.train_per_class or per_class, per_class)
        channels = 1 if recipe.data in (*EMBEDDED, "fashion-mnist") else 3
        return Expected(images, classes, (channels, recipe.image_size, recipe.image_size))

    def example(self, images: int, device: torch.device) -> Part:
        _, classes, size = self.expected()
        noise = torch.randn(images, *size, device=device)
        return Part((noise,), torch.arange(images, device=device) % classes, images)


class _Exports(Exports[ClassificationRecipe]):
    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        return cast(Tensor, model(images))

    def preparation(self, channels: int) -> dict[str, Any]:
        recipe, size = self.recipe, self.recipe.image_size
        crop_pct, interpolation = {
            "none": (1.0, "bilinear"),
            "resnet": (0.875, "bilinear"),
            "efficientnet": (size / (size + 32), "bicubic"),
        }[recipe.eval_crop]
        return {
            "input_size": [channels, size, size],
            "mean": by_channel(recipe.mean, channels),
            "std": by_channel(recipe.std, channels),
            "crop_pct": crop_pct,
            "interpolation": interpolation,
            "eval_crop": recipe.eval_crop,
        }


class Classification(Task[ClassificationRecipe, Data]):
    recipe_kind = ClassificationRecipe
    estimates = _Estimates
    exports = _Exports
    metric = METRICS["accuracy"]

    def open(
        self, root: Path | None, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> Data:
        settings = self.recipe.data_settings(skip_broken=skip_broken)
        return open_data(
            self.recipe.data, root, settings=settings, seed=self.recipe.seed, progress=progress
        )

    def training_images(self, root: Path | None) -> int:
        settings = self.recipe.data_settings()
        return count_training_images(self.recipe.data, root, settings=settings)

    def check(self, data: Data) -> None:
        if len(data.classes) < 2:
            raise ValueError(
                f"{data.name} has one class, {data.classes[0]!r}: a classifier needs two or more"
            )

    def network(self, classes: int, channels: int) -> nn.Module:
        return create(
            self.recipe.model,
            num_classes=classes,
            in_chans=channels,
            drop_path=self.recipe.drop_path,
            drop=self.recipe.drop,
        )

    @torch.no_grad()
    def prepare(self, model: nn.Module, data: Data) -> None:
        size = (data.channels, data.image_size, data.image_size)
        model.eval()  # so that running statistics stay as they are
        try:
            model(torch.zeros(1, *size))
        except (AssertionError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"{self.recipe.model} does not take {'×'.join(map(str, size))} images: {error}; "
                "set image_size to what it takes"
            ) from None
        model.train()

    def loss(self, outputs: Tensor, part: Part) -> Tensor:
        smoothing = self.recipe.label_smoothing
        return F.cross_entropy(outputs, part.labels, label_smoothing=smoothing)

    def correct(self, outputs: Tensor, part: Part) -> tuple[Tensor, int]:
        return (outputs.detach().argmax(1) == part.labels).sum(), part.images

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        return Risk(device) if head is None else ImageRisk(head, device)

    def scorer(self, data: Data, device: torch.device) -> Accuracy:
        return Accuracy(device)
