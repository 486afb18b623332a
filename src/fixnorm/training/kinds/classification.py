"""What a training of a classifier depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from fixnorm.data.errors import check_root
from fixnorm.data.settings import ClassificationFields, DataSettings
from fixnorm.training.recipe import EpochRecipe

__all__ = ["ClassificationRecipe", "DataName"]

DataName = Literal["digits", "few-digits", "imagefolder", "cifar10", "fashion-mnist"]


class ClassificationRecipe(ClassificationFields, EpochRecipe, frozen=True):
    """A complete training of a classifier."""

    task: Literal["classification"] = "classification"
    """``model`` is a name of :func:`fixnorm.models.create`."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Stochastic depth: the rate of the last block."""
    drop: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the head."""

    data: DataName

    label_smoothing: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _images_can_be_made(self) -> Self:
        self.data_settings()
        return self

    def check_data(self, root: Path | None) -> None:
        check_root(root, self.data)

    def data_settings(self, *, skip_broken: bool = False) -> DataSettings:
        return DataSettings(**self.shared_with(DataSettings), skip_broken=skip_broken)
