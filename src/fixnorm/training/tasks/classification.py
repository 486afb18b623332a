"""Classes of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from fixnorm.data import (
    ClassificationFields,
    Data,
    DataSettings,
    Progress,
    count_training_images,
    open_data,
)
from fixnorm.models import create
from fixnorm.training.recipe import Recipe, Timetable
from fixnorm.training.scores import Accuracy
from fixnorm.training.tasks.risk import Head, ImageRisk, NoRisk, Risk
from fixnorm.training.tasks.task import Expected, Metric, Part, by_channel
from fixnorm.training.tasks.tensors import TensorTask

__all__ = ["Classification", "ClassificationRecipe"]

DataName = Literal["digits", "imagefolder", "cifar10", "fashion-mnist"]

_SETS: dict[DataName, tuple[int, int]] = {
    "digits": (1_437, 10),
    "imagefolder": (1_281_167, 1000),
    "cifar10": (50_000, 10),
    "fashion-mnist": (60_000, 10),
}
"""Training images and classes of the sets as they are given away."""


class ClassificationRecipe(ClassificationFields, Recipe, frozen=True):
    """A complete training of a classifier; its length is counted in epochs."""

    lr_range: ClassVar[tuple[float, float]] = (0.2, 3.2)
    unit: ClassVar[Literal["epochs", "iterations"]] = "epochs"

    task: Literal["classification"] = "classification"
    """``model`` is a name of :func:`fixnorm.models.create`."""
    drop_path: float = Field(default=0.0, ge=0, lt=1)
    """Stochastic depth: the rate of the last block."""
    drop: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the head."""

    data: DataName

    epochs: int = Field(ge=1)
    warmup_epochs: float = Field(default=4.0, ge=0)
    """Linear warm-up, before the schedule."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _warm_up_ends(self) -> Self:
        if self.warmup_epochs > self.epochs:
            raise ValueError(
                f"warmup_epochs: {self.warmup_epochs:g} is more than epochs={self.epochs}"
            )
        return self

    @model_validator(mode="after")
    def _images_can_be_made(self) -> Self:
        self.data_settings()
        return self

    @property
    def length(self) -> int:
        """T_max in epochs."""
        return self.epochs

    def of_length(self, length: int) -> dict[str, Any]:
        """Warm-up is not scaled with the length, but leaves most of a short training to the lr."""
        return {"epochs": length, "warmup_epochs": min(self.warmup_epochs, length / 4)}

    def rows(self) -> int:
        """One an epoch."""
        return self.epochs

    def timetable(self, steps_per_epoch: int) -> Timetable:
        """All of it in steps."""
        return Timetable(
            steps=self.epochs * steps_per_epoch,
            warmup=round(self.warmup_epochs * steps_per_epoch),
            row=steps_per_epoch,
            evaluation=self.eval_every * steps_per_epoch,
        )

    def data_settings(self, *, skip_broken: bool = False) -> DataSettings:
        """What the data package needs to know."""
        return DataSettings(**self.shared_with(DataSettings), skip_broken=skip_broken)


class Classification(TensorTask[ClassificationRecipe, Data]):
    """Cross-entropy, accuracy."""

    metric: ClassVar[Metric] = Metric("accuracy", "accuracy")

    def __init__(self, recipe: ClassificationRecipe) -> None:
        super().__init__(recipe)
        self._loss = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)

    def open(
        self, root: Path | None, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> Data:
        """Any of :func:`fixnorm.data.open_data`."""
        settings = self.recipe.data_settings(skip_broken=skip_broken)
        return open_data(
            self.recipe.data, root, settings=settings, seed=self.recipe.seed, progress=progress
        )

    def training_images(self, root: Path | None) -> int:
        """Counted by listing."""
        settings = self.recipe.data_settings()
        return count_training_images(self.recipe.data, root, settings=settings)

    def check(self, data: Data) -> None:
        """Two classes at least."""
        if len(data.classes) < 2:
            raise ValueError(
                f"{data.name} has one class, {data.classes[0]!r}: a classifier needs two or more"
            )

    def network(self, classes: int, channels: int) -> nn.Module:
        """One of :func:`fixnorm.models.create`."""
        return create(
            self.recipe.model,
            num_classes=classes,
            in_chans=channels,
            drop_path=self.recipe.drop_path,
            drop=self.recipe.drop,
        )

    @torch.no_grad()
    def prepare(self, model: nn.Module, data: Data) -> None:
        """Try an image of the set's size."""
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

    def expected(self) -> Expected:
        """The whole set, or the recipe's share of it; an image folder is taken for ImageNet."""
        recipe, (images, all_classes) = self.recipe, _SETS[self.recipe.data]
        classes = min(recipe.classes or all_classes, all_classes)
        if recipe.classes is not None or recipe.train_per_class is not None:
            per_class = images // all_classes
            images = classes * min(recipe.train_per_class or per_class, per_class)
        channels = 1 if recipe.data in ("digits", "fashion-mnist") else 3
        return Expected(images, classes, (channels, recipe.image_size, recipe.image_size))

    def example(self, images: int, device: torch.device) -> Part:
        """Noise, and the classes in turn."""
        _, classes, size = self.expected()
        noise = torch.randn(images, *size, device=device)
        return Part((noise,), torch.arange(images, device=device) % classes, images)

    def loss(self, outputs: Tensor, part: Part) -> Tensor:
        """With the recipe's label smoothing."""
        return cast(Tensor, self._loss(outputs, part.labels))

    def correct(self, outputs: Tensor, part: Part) -> tuple[Tensor, int]:
        """By the highest logit."""
        return (outputs.detach().argmax(1) == part.labels).sum(), part.images

    def risk(self, model: nn.Module, head: Head | None, device: torch.device) -> Risk:
        """By the features before the head."""
        return NoRisk(device) if head is None else ImageRisk(head, device)

    def scorer(self, data: Data, device: torch.device) -> Accuracy:
        """Top-1."""
        return Accuracy(device)

    def logits(self, model: nn.Module, images: Tensor) -> Tensor:
        """The model's own output."""
        return cast(Tensor, model(images))

    def preparation(self, channels: int) -> dict[str, Any]:
        """As for validation."""
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
