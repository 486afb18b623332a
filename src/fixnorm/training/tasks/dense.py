"""What segmenters and detectors have in common: a length in iterations, a pretrained backbone."""

from __future__ import annotations

import importlib.util
import math
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator
from torch import nn

from fixnorm.data import DataError, DenseFields, DenseSettings, Progress
from fixnorm.models.backbones import load_backbone
from fixnorm.system.extras import needs
from fixnorm.training.recipe import Recipe, Timetable
from fixnorm.training.tasks.task import D, Task

__all__ = ["DenseRecipe", "DenseTask"]


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
        """T_max in iterations."""
        return self.iterations

    def of_length(self, length: int) -> dict[str, Any]:
        """Warm-up is not scaled with the length, but leaves most of a short training to the lr."""
        return {
            "iterations": length,
            "warmup_iterations": min(self.warmup_iterations, length // 4),
        }

    def rows(self) -> int:
        """One an evaluation."""
        return math.ceil(self.iterations / self.eval_every)

    def timetable(self, steps_per_epoch: int) -> Timetable:
        """An iteration is a step."""
        return Timetable(
            steps=self.iterations,
            warmup=self.warmup_iterations,
            row=self.eval_every,
            evaluation=self.eval_every,
        )


X = TypeVar("X", bound=DenseRecipe)


class DenseTask(Task[X, D]):
    """How their data is opened and their backbone loaded."""

    package: ClassVar[str]
    """What the metric needs."""

    @abstractmethod
    def opened(
        self, root: Path, settings: DenseSettings, *, seed: int, progress: Progress | None = None
    ) -> D:
        """The data, with these settings."""

    def open(
        self, root: Path | None, *, skip_broken: bool = False, progress: Progress | None = None
    ) -> D:
        """A set in its official layout."""
        if importlib.util.find_spec(self.package) is None:  # or the first evaluation would fail
            raise ValueError(needs(self.recipe.task, self.package, "dense"))
        settings = self.recipe.data_settings(skip_broken=skip_broken)
        return self.opened(self._given(root), settings, seed=self.recipe.seed, progress=progress)

    def training_images(self, root: Path | None) -> int:
        """Counted without decoding."""
        settings = replace(self.recipe.data_settings(), in_memory=False, workers=0)
        data = self.opened(self._given(root), settings, seed=self.recipe.seed)
        data.close()
        return len(data.train)

    def _given(self, root: Path | None) -> Path:
        if root is None:
            name = self.recipe.data
            raise DataError(f"{name} needs a folder: give the one that holds its files")
        return root

    def check(self, data: D) -> None:
        """Nothing to refuse: one class is enough, it is told from the background."""

    def prepare(self, model: nn.Module, data: D) -> None:
        """Load the backbone's weights."""
        if self.recipe.backbone_weights is not None:
            load_backbone(model, self.recipe.model, self.recipe.backbone_weights)
