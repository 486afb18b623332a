"""What trainings of segmenters and detectors depend on: a length in iterations, a backbone."""

from __future__ import annotations

import math
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fixnorm.data.errors import check_root
from fixnorm.data.settings import DenseFields, DenseSettings
from fixnorm.training.recipe import Recipe
from fixnorm.training.schedule import Timetable

__all__ = ["DenseRecipe"]


class DenseRecipe(DenseFields, Recipe, frozen=True):
    """A training whose length is counted in iterations."""

    lr_range: ClassVar[tuple[float, float]] = (0.005, 0.1)
    """The appendix's, lower than for classifiers as backbones are pretrained."""
    unit: ClassVar[Literal["epochs", "iterations"]] = "iterations"
    against_auto_lr: ClassVar[str | None] = (
        "it was judged on classifiers; on two small dense tasks a search did better"
    )

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

    def check_data(self, root: Path | None) -> None:
        check_root(root, self.data)

    @abstractmethod
    def data_settings(self, *, skip_broken: bool = False) -> DenseSettings:
        """What the data package needs to know."""

    @property
    def length(self) -> int:
        return self.iterations

    def of_length(self, length: int) -> dict[str, Any]:
        """Warm-up is not scaled with the length, but leaves most of a short training to the lr."""
        return {
            "iterations": length,
            "warmup_iterations": min(self.warmup_iterations, length // 4),
        }

    def rows(self) -> int:
        return math.ceil(self.iterations / self.eval_every)

    def timetable(self, steps_per_epoch: int) -> Timetable:
        return Timetable(
            steps=self.iterations,
            warmup=self.warmup_iterations,
            row=self.eval_every,
            evaluation=self.eval_every,
        )
