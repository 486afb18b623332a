"""Mean intersection over union of a segmentation, over all pixels of a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fixnorm.training.distributed import World
from fixnorm.training.scores.scorer import Score, Scorer

__all__ = ["MeanIoU"]


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
