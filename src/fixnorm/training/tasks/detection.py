"""Boxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from PIL.Image import Image
from pydantic import Field
from torch import Tensor, nn

from fixnorm.data import (
    DenseSettings,
    DetectionBatch,
    DetectionData,
    DetectionSettings,
    Progress,
    Target,
    open_detection,
)
from fixnorm.models.detectors import CLASSIFIER, create_detector
from fixnorm.roles import Sample
from fixnorm.training.overlays import boxes_overlay
from fixnorm.training.scores import AveragePrecision
from fixnorm.training.tasks.dense import DenseRecipe, DenseTask
from fixnorm.training.tasks.risk import AnchorRisk, Head, NoRisk, Risk
from fixnorm.training.tasks.task import Expected, Metric, Part

__all__ = ["Detection", "DetectionRecipe"]

_AUDITED = 96
"""Side of the images that the audit tries: what a layer depends on does not depend on it."""


class DetectionRecipe(DenseRecipe, frozen=True):
    """A complete training of a detector."""

    task: Literal["detection"] = "detection"
    """``model`` is a name of :func:`fixnorm.models.detectors.create_detector`."""
    head: str | None = CLASSIFIER
    """The classification subnet's last conv; the boxes' is a regressor and has no cap."""
    width: int = Field(default=256, ge=1)
    """Channels of the feature pyramid and of both subnets."""
    smallest_anchor: int = Field(default=32, ge=2)
    """Side of the anchors on the finest map, in pixels of the resized image."""
    he_subnets: bool = False
    """He's initialisation of the subnets, for trainings from random weights."""
    frozen_norms: bool = False
    """Batch norms that keep their pretrained statistics. A conv before one is not scale-invariant:
    ``convert`` weight-normalises it."""

    data: Literal["coco"] = "coco"
    short_side: int = 800
    max_side: int = 1333

    def data_settings(self, *, skip_broken: bool = False) -> DetectionSettings:
        """What the data package needs to know."""
        return DetectionSettings(**self.shared_with(DetectionSettings), skip_broken=skip_broken)


class Detection(DenseTask[DetectionRecipe, DetectionData]):
    """Focal loss and smooth L1, as RetinaNet has them; COCO's AP."""

    package: ClassVar[str] = "faster_coco_eval"
    metric: ClassVar[Metric] = Metric("ap", "AP")
    normalises_always: ClassVar[bool] = True  # the paper does so "for all the models"

    def opened(
        self, root: Path, settings: DenseSettings, *, seed: int, progress: Progress | None = None
    ) -> DetectionData:
        """COCO's layout."""
        return open_detection(
            root, settings=cast(DetectionSettings, settings), seed=seed, progress=progress
        )

    def network(self, classes: int, channels: int) -> nn.Module:
        """One of :func:`fixnorm.models.detectors.create_detector`."""
        return create_detector(
            self.recipe.model,
            num_classes=classes,
            short_side=self.recipe.short_side,
            long_side=self.recipe.max_side,
            width=self.recipe.width,
            smallest_anchor=self.recipe.smallest_anchor,
            he_subnets=self.recipe.he_subnets,
            frozen_norms=self.recipe.frozen_norms,
        )

    def sample(self) -> Sample:
        """Noise of a small size, with a box each."""
        part = self._noise(2, (_AUDITED, _AUDITED), classes=1, device=torch.device("cpu"))

        def call(model: nn.Module) -> Any:
            transform = cast(Any, model.transform)  # the audit's copy: its own resize is set aside
            transform.min_size, transform.max_size = (_AUDITED,), _AUDITED
            return model(*part.inputs)

        return call

    def expected(self) -> Expected:
        """COCO's images with boxes."""
        size = (3, self.recipe.short_side, self.recipe.max_side)
        return Expected(self.recipe.train_images or 117_266, 80, size)

    def example(self, images: int, device: torch.device) -> Part:
        """Noise, with a box each."""
        _, classes, (_, height, width) = self.expected()
        return self._noise(images, (height, width), classes=classes, device=device)

    def _noise(
        self, images: int, size: tuple[int, int], *, classes: int, device: torch.device
    ) -> Part:
        height, width = size
        box = torch.tensor([[0.2 * width, 0.2 * height, 0.7 * width, 0.6 * height]], device=device)
        batch = DetectionBatch(
            [torch.rand(3, height, width, device=device) for _ in range(images)],
            [
                Target(boxes=box, labels=torch.tensor([k % classes], device=device), image_id=k)
                for k in range(images)
            ],
        )
        return _part(batch)

    def part(
        self, batch: DetectionBatch, device: torch.device, memory_format: torch.memory_format
    ) -> Part:
        """Lists of images and targets; the model stacks them itself."""
        targets = [
            Target(
                boxes=target["boxes"].to(device, non_blocking=True),
                labels=target["labels"].to(device, non_blocking=True),
                image_id=target["image_id"],
            )
            for target in batch.targets
        ]
        images = [image.to(device, non_blocking=True) for image in batch.images]
        return _part(DetectionBatch(images, targets))

    def split(self, part: Part, parts: int) -> Iterator[Part]:
        """Equal parts of the lists."""
        images, targets = part.inputs
        share = len(images) // parts
        for k in range(0, len(images), share):
            yield _part(DetectionBatch(images[k : k + share], targets[k : k + share]))

    def loss(self, outputs: Mapping[str, Tensor], part: Part) -> Tensor:
        """Of classes (focal, α 0.25, γ 2) and of boxes (smooth L1)."""
        return outputs["classification"] + outputs["bbox_regression"]

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        """Of the anchors on objects."""
        return AnchorRisk(model, head, device) if isinstance(head, nn.Conv2d) else NoRisk(device)

    def scorer(self, data: DetectionData, device: torch.device) -> AveragePrecision:
        """COCO's."""
        return AveragePrecision(data)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """Of classes and boxes, before anything is sorted out."""
        network = cast(Any, model)
        heads = network.head(list(network.backbone(images).values()))
        return torch.cat([heads["cls_logits"], heads["bbox_regression"]], dim=-1)

    def preparation(self, channels: int) -> dict[str, Any]:
        """Pixels in 0..1 of any size: the model resizes and normalises them itself."""
        return {"short_side": self.recipe.short_side, "max_side": self.recipe.max_side}

    @torch.no_grad()
    def draw(
        self, model: nn.Module, data: DetectionData, images: int, device: torch.device
    ) -> list[Image]:
        """Labelled boxes beside those found."""
        drawn: list[Image] = []
        for batch in data.val.eval_batches(batch_size=1):
            if len(drawn) == images:
                break
            (found,) = model([batch.images[0].to(device)])
            found = {name: value.cpu() for name, value in found.items()}
            drawn.append(boxes_overlay(batch.images[0], batch.targets[0], found, data.classes))
        return drawn


def _part(batch: DetectionBatch) -> Part:
    return Part((batch.images, batch.targets), batch, len(batch.images))
