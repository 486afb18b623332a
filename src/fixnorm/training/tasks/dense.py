"""What segmenters and detectors have in common: a length in iterations, a pretrained backbone."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fixnorm.data import DataError
from fixnorm.training.recipe import Recipe, Timetable

__all__ = ["DenseRecipe", "needs_folder", "needs_package"]


class DenseRecipe(Recipe):
    """A training whose length is counted in iterations."""

    lr_range: ClassVar[tuple[float, float]] = (0.005, 0.1)
    """The appendix's, lower than for classifiers as backbones are pretrained."""
    unit: ClassVar[Literal["epochs", "iterations"]] = "iterations"

    backbone_weights: str | None = None
    """What the backbone starts from: a file of a classifier's weights (safetensors, or a state dict
    of torch), ``pretrained`` for the model library's own, none for random ones."""
    sync_norms: bool = False
    """Batch statistics over all GPUs, for batches of one or two images a GPU."""
    train_images: int | None = Field(default=None, ge=1)
    """Train on the first n images only; none: on all."""
    val_images: int | None = Field(default=None, ge=1)

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


def needs_package(name: str, *, what: str) -> None:
    """Refuse at once what would fail at the first evaluation."""
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"{what} needs {name}: pip install 'fixnorm[dense]'")


def needs_folder(root: Path | None, data: str) -> Path:
    """The set's folder, which must be given."""
    if root is None:
        raise DataError(f"{data} needs a folder: give the one that holds its files")
    return root
