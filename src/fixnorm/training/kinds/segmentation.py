"""What a training of a segmenter depends on."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fixnorm.data.settings import SegmentationFields, SegmentationSettings
from fixnorm.training.kinds.dense import DenseRecipe

__all__ = ["SegmentationRecipe"]


class SegmentationRecipe(SegmentationFields, DenseRecipe, frozen=True):
    """A complete training of a segmenter."""

    libraries: ClassVar = ("torchmetrics.classification",)

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
        return SegmentationSettings(
            **self.shared_with(SegmentationSettings), skip_broken=skip_broken
        )
