"""Classes of pixels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from PIL.Image import Image
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.data import (
    IGNORED,
    DenseSettings,
    Progress,
    SegmentationData,
    SegmentationFields,
    SegmentationSettings,
    open_segmentation,
)
from fixnorm.models.segmenters import create_segmenter
from fixnorm.roles import Sample
from fixnorm.training.overlays import pixels_overlay
from fixnorm.training.scores import MeanIoU
from fixnorm.training.tasks.dense import DenseRecipe, DenseTask
from fixnorm.training.tasks.risk import Head, NoRisk, PixelRisk, Risk
from fixnorm.training.tasks.task import Expected, Metric, Part, by_channel
from fixnorm.training.tasks.tensors import TensorTask

__all__ = ["Segmentation", "SegmentationRecipe"]

_AUDITED = 65
"""Side of the images that the audit tries: what a layer depends on does not depend on it."""


class SegmentationRecipe(SegmentationFields, DenseRecipe, frozen=True):
    """A complete training of a segmenter."""

    task: Literal["segmentation"] = "segmentation"
    """``model`` is a name of :func:`fixnorm.models.segmenters.create_segmenter`."""
    width: int | None = Field(default=None, ge=1)
    """Channels before the head of ``base-oc``; none: the paper's 512."""

    data: Literal["cityscapes"] = "cityscapes"
    crop: tuple[int, int] = (769, 769)
    """Height and width of training crops; validation sees whole images."""

    auxiliary: float = Field(default=0.4, ge=0)
    """Weight of the auxiliary head's loss."""

    def data_settings(self, *, skip_broken: bool = False) -> SegmentationSettings:
        """What the data package needs to know."""
        return SegmentationSettings(
            **self.shared_with(SegmentationSettings), skip_broken=skip_broken
        )


class Segmentation(
    TensorTask[SegmentationRecipe, SegmentationData],
    DenseTask[SegmentationRecipe, SegmentationData],
):
    """Cross-entropy over pixels, with an auxiliary head; mIoU over whole images."""

    package: ClassVar[str] = "torchmetrics"
    metric: ClassVar[Metric] = Metric("miou", "mIoU")

    def opened(
        self, root: Path, settings: DenseSettings, *, seed: int, progress: Progress | None = None
    ) -> SegmentationData:
        """Cityscapes's layout."""
        return open_segmentation(
            root, settings=cast(SegmentationSettings, settings), seed=seed, progress=progress
        )

    def network(self, classes: int, channels: int) -> nn.Module:
        """One of :func:`fixnorm.models.segmenters.create_segmenter`."""
        return create_segmenter(self.recipe.model, num_classes=classes, width=self.recipe.width)

    def sample(self) -> Sample:
        """Noise of a small size."""
        return torch.randn(4, 3, _AUDITED, _AUDITED)

    def heads(self, measured: list[str]) -> list[str]:
        """Both heads are measured; the auxiliary one comes last."""
        return sorted(super().heads(measured), key=lambda name: name.startswith("aux"))

    def expected(self) -> Expected:
        """Cityscapes' fine annotations."""
        return Expected(self.recipe.train_images or 2_975, 19, (3, *self.recipe.crop))

    def example(self, images: int, device: torch.device) -> Part:
        """Noise, and classes at random."""
        _, classes, (_, height, width) = self.expected()
        noise = torch.randn(images, 3, height, width, device=device)
        return Part((noise,), torch.randint(classes, noise[:, 0].shape, device=device), images)

    def loss(self, outputs: Mapping[str, Tensor], part: Part) -> Tensor:
        """L = L_out + auxiliary · L_aux, each the mean over the pixels that have a class."""
        loss = _mean_over_labelled(outputs["out"], part.labels)
        if self.recipe.auxiliary and "aux" in outputs:
            loss = loss + self.recipe.auxiliary * _mean_over_labelled(outputs["aux"], part.labels)
        return loss

    def correct(self, outputs: Mapping[str, Tensor], part: Part) -> tuple[Tensor, Tensor]:
        """Pixels that have a class."""
        right = outputs["out"].detach().argmax(1) == part.labels
        return right.sum(), (part.labels != IGNORED).sum()

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        """By the map before the main head."""
        if not isinstance(head, nn.Conv2d):
            return NoRisk(device)
        return PixelRisk(head, device, ignored=IGNORED)

    def scorer(self, data: SegmentationData, device: torch.device) -> MeanIoU:
        """Over the classes that the set has."""
        return MeanIoU(data.classes, ignored=data.ignored, device=device)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """Of the main head."""
        out: Tensor = model(images)["out"]
        return out

    def preparation(self, channels: int) -> dict[str, Any]:
        """Whole images of any size; ``input_size`` is that of a training crop."""
        recipe = self.recipe
        return {
            "input_size": [channels, *recipe.crop],
            "mean": by_channel(recipe.mean, channels),
            "std": by_channel(recipe.std, channels),
        }

    @torch.no_grad()
    def draw(
        self, model: nn.Module, data: SegmentationData, images: int, device: torch.device
    ) -> list[Image]:
        """Image, labels and prediction side by side."""
        recipe = self.recipe
        drawn: list[Image] = []
        for batch in data.val.eval_batches(batch_size=1):
            if len(drawn) == images:
                break
            predicted = model(batch.images.to(device))["out"].argmax(1).cpu()
            mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (recipe.mean, recipe.std))
            pixels = (batch.images[0] * std + mean).clamp(0, 1)
            drawn.append(pixels_overlay(pixels, batch.labels[0], predicted[0], ignored=IGNORED))
        return drawn


def _mean_over_labelled(logits: Tensor, labels: Tensor) -> Tensor:
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum().clamp(min=1)  # a crop may have no labelled pixel
