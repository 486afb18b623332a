"""What a training of a detector depends on."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fixnorm.data.settings import DetectionSettings
from fixnorm.models.facts import CLASSIFIER
from fixnorm.training.kinds.dense import DenseRecipe

__all__ = ["DetectionRecipe"]


class DetectionRecipe(DenseRecipe, frozen=True):
    """A complete training of a detector."""

    libraries: ClassVar = ("faster_coco_eval", "torchvision.models.detection.retinanet")

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
        return DetectionSettings(**self.shared_with(DetectionSettings), skip_broken=skip_broken)
