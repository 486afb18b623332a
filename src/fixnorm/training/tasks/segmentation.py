"""Classes of pixels: cross-entropy, and the mean intersection over union over whole images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor, nn
from torch.nn import functional as F

from fixnorm.data import IGNORED, SegmentationData, open_segmentation
from fixnorm.models.segmenters import create_segmenter
from fixnorm.roles import Sample
from fixnorm.training.distributed import World
from fixnorm.training.kinds import METRICS
from fixnorm.training.kinds.segmentation import SegmentationRecipe
from fixnorm.training.tasks.dense import DenseTask, patches, side_by_side
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
    by_channel,
)

__all__ = ["Segmentation"]

_AUDITED = 65
"""Side of the images that the audit tries: what a layer depends on does not depend on it."""


CITYSCAPES = (
    *((128, 64, 128), (244, 35, 232), (70, 70, 70), (102, 102, 156), (190, 153, 153)),
    *((153, 153, 153), (250, 170, 30), (220, 220, 0), (107, 142, 35), (152, 251, 152)),
    *((70, 130, 180), (220, 20, 60), (255, 0, 0), (0, 0, 142), (0, 0, 70)),
    *((0, 60, 100), (0, 80, 100), (0, 0, 230), (119, 11, 32)),
)
"""The colours in which everybody shows its 19 classes."""


class MeanIoU(Scorer):
    """IoU_c = TP_c / (TP_c + FP_c + FN_c), and its mean over the classes that the set has.

    Counts are added up over images and processes before anything is divided: a mean over images
    would weigh an image with one pixel of a class as much as one that is full of it.
    """

    def __init__(self, classes: Sequence[str], *, ignored: int = 255, device: torch.device) -> None:
        from torchmetrics.classification import MulticlassConfusionMatrix

        self._classes = tuple(classes)
        self._matrix = MulticlassConfusionMatrix(
            len(classes), ignore_index=ignored, validate_args=False, sync_on_compute=False
        ).to(device)

    def update(self, outputs: Mapping[str, Tensor], labels: Tensor) -> None:
        """Count a batch: ``out`` (B, classes, H, W), labels (B, H, W)."""
        self._matrix.update(outputs["out"].argmax(1), labels)

    def compute(self, world: World) -> Score:
        """The mean in percent, and that of each class; none for a class no pixel is labelled."""
        # counts[t, p]: pixels of class t that were taken for p
        counts = world.sum(self._matrix.compute().double())
        right = counts.diag()
        labelled = counts.sum(1)
        union = labelled + counts.sum(0) - right
        found = [
            100 * hit / every if pixels else None
            for hit, every, pixels in zip(
                right.tolist(), union.tolist(), labelled.tolist(), strict=True
            )
        ]
        there = [value for value in found if value is not None]
        mean = sum(there) / len(there) if there else 0.0
        return Score(mean, dict(zip(self._classes, found, strict=True)))


class PixelRisk(HeadRisk):
    """Every position of the head's map that has a class counts: its feature is the patch there."""

    def __init__(self, head: nn.Conv2d, device: torch.device, *, ignored: int) -> None:
        super().__init__(head, device)
        self._conv, self._ignored = head, ignored

    def update(self, labels: Tensor) -> None:
        """Labels: (B, H, W), of which the pixel nearest to each position is taken."""
        features = self._input.features
        features = features[..., None, None] if features.ndim == 2 else features
        size = list(features.shape[2:])
        nearest = F.interpolate(labels[:, None].float(), size=size, mode="nearest-exact")[:, 0]
        classes = nearest.long()
        image, row, column = (classes != self._ignored).nonzero(as_tuple=True)
        self.metric.update(
            patches(features, self._conv, image, row, column),
            classes[image, row, column],
            self._head.weight.detach().flatten(1),
        )


class _Estimates(Estimates[SegmentationRecipe]):
    def expected(self) -> Expected:
        return Expected(self.recipe.train_images or 2_975, 19, (3, *self.recipe.crop))

    def example(self, images: int, device: torch.device) -> Part:
        _, classes, (_, height, width) = self.expected()
        noise = torch.randn(images, 3, height, width, device=device)
        return Part((noise,), torch.randint(classes, noise[:, 0].shape, device=device), images)


class _Exports(Exports[SegmentationRecipe]):
    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
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


class Segmentation(DenseTask[SegmentationRecipe, SegmentationData]):
    """Cross-entropy over pixels, with an auxiliary head; mIoU over whole images."""

    recipe_kind = SegmentationRecipe
    estimates = _Estimates
    exports = _Exports
    opener = staticmethod(open_segmentation)
    package = "torchmetrics"
    metric = METRICS["miou"]

    def network(self, classes: int, channels: int) -> nn.Module:
        return create_segmenter(self.recipe.model, num_classes=classes, width=self.recipe.width)

    def sample(self) -> Sample:
        return torch.randn(4, 3, _AUDITED, _AUDITED)

    def heads(self, measured: list[str]) -> list[str]:
        """Both heads are measured; the auxiliary one comes last."""
        return sorted(super().heads(measured), key=lambda name: name.startswith("aux"))

    def loss(self, outputs: Mapping[str, Tensor], part: Part) -> Tensor:
        """L = L_out + auxiliary · L_aux, each the mean over the pixels that have a class."""
        loss = _mean_over_labelled(outputs["out"], part.labels)
        if self.recipe.auxiliary and "aux" in outputs:
            loss = loss + self.recipe.auxiliary * _mean_over_labelled(outputs["aux"], part.labels)
        return loss

    def correct(self, outputs: Mapping[str, Tensor], part: Part) -> tuple[Tensor, Tensor]:
        right = outputs["out"].detach().argmax(1) == part.labels
        return right.sum(), (part.labels != IGNORED).sum()

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        if not isinstance(head, nn.Conv2d):
            return Risk(device)
        return PixelRisk(head, device, ignored=IGNORED)

    def scorer(self, data: SegmentationData, device: torch.device) -> MeanIoU:
        return MeanIoU(data.classes, ignored=data.ignored, device=device)

    @torch.no_grad()
    def draw(
        self, model: nn.Module, data: SegmentationData, images: int, device: torch.device
    ) -> list[Image]:
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


def pixels_overlay(image: Tensor, labels: Tensor, predicted: Tensor, *, ignored: int) -> Image:
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
    return side_by_side([image, tinted(labels, labels != ignored), tinted(predicted, everywhere)])
