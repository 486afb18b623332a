"""``result.json`` of a run: what is written in the end, as everything that reads it knows it."""

from __future__ import annotations

import math
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from fixnorm.system import brief
from fixnorm.system.versions import commit, versions
from fixnorm.training.bounded import Count, Name, Positive, Real
from fixnorm.training.checked import Part, read_checked
from fixnorm.training.kinds import METRICS

if TYPE_CHECKING:
    from fixnorm.training.resume import RunState

__all__ = ["RunEnd", "RunResult", "read_result", "result"]


class RunEnd(Part):
    """How a run ended: what a search needs to know. The score stands under its metric's name."""

    model_config = ConfigDict(extra="allow")

    metric: str
    diverged: bool
    largest_scale: Real | None
    epochs: Annotated[Real, Field(ge=0)]
    seconds: Annotated[Real, Field(ge=0)]
    share: Annotated[Real, Field(ge=0, le=1)] = 1.0
    """Of all steps of the training, those that this run took itself: a branch begins later."""
    images: Count | None = None
    """Validation images, where the score is the share of them that is right."""

    @model_validator(mode="after")
    def _has_its_score(self) -> Self:
        if self.metric not in METRICS:
            raise ValueError(f"metric should be one of {', '.join(METRICS)}")
        self._check_score(self.metric)
        return self

    def _check_score(self, name: str) -> None:
        if name not in self._more:
            raise ValueError(f"{name} is missing")
        value = self._more[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= 100):
            raise ValueError(
                f"{name} should be a percentage or null but it is {brief(value, plain=True)}"
            )

    @property
    def score(self) -> float | None:
        """Of the last evaluation, in percent."""
        score: float | None = self._more[self.metric]
        return score

    @property
    def _more(self) -> dict[str, Any]:
        return self.model_extra or {}


class _Named(Part):
    model_config = ConfigDict(extra="allow")
    name: Name


class RunResult(RunEnd):
    """What a finished run says of itself."""

    method: Name
    lr: Positive | Literal["auto"]
    alpha: Positive | None
    weight_decay: Real
    steps: Count
    mcbr_train: Real | None
    mcbr_val: Real | None
    images_per_second: Real | None
    device: Name
    commit: Name | None = None
    recipe: _Named

    @model_validator(mode="after")
    def _has_its_best(self) -> Self:
        self._check_score(f"best_{self.metric}")
        missing = self._more[f"best_{self.metric}"] is None
        if missing != (self.score is None):
            raise ValueError(f"best_{self.metric} should be there where {self.metric} is")
        return self


E = TypeVar("E", bound=RunEnd)


def read_result(path: Path, kind: type[E], *, advice: str) -> E:
    """The file of a run that has ended; ``advice`` is the next move where it is damaged."""
    return read_checked(path, kind, what="the result of a training", advice=advice)


def result(state: RunState, *, diverged: bool, val_images: int) -> dict[str, Any]:
    """The content of the file."""
    recipe, rows, seconds = state.trainee.recipe, state.rows, state.seconds
    passes, scale = state.trainee.passes, state.scale
    metric = passes.task.metric
    column = f"val_{metric.name}"
    scores = [row[column] for row in rows if row[column] is not None]
    images = (state.step - state.began) * recipe.batch_size
    return {
        "metric": metric.name,
        metric.name: scores[-1] if scores else None,
        f"best_{metric.name}": max(scores, default=None),
        "images": val_images if metric.counts else None,
        "detail": dict(state.detail),
        "diverged": diverged,
        "method": recipe.method,
        "lr": recipe.lr,
        "alpha": recipe.alpha,
        "weight_decay": recipe.weight_decay,
        "largest_scale": _finite(scale),
        "epochs": rows[-1]["epoch"],
        "steps": rows[-1]["step"],
        "share": state.share,
        "seed": recipe.seed,
        "mcbr_train": _finite(rows[-1]["mcbr_train"]),
        "mcbr_val": _finite(rows[-1]["mcbr_val"]),
        "seconds": round(seconds, 3),
        "images_per_second": round(images / seconds, 1) if seconds else None,
        "processes": passes.world.size,
        "device": _device(),
        "versions": versions(),
        "commit": commit(),
        "recipe": recipe.to_dict(),
    }


def _finite(number: float | None) -> float | None:
    """JSON has no number for what a diverged run may end with."""
    return number if number is not None and math.isfinite(number) else None


def _device() -> str:
    import torch  # here, as those who read results need none

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} thread(s)"
