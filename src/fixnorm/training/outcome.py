"""``result.json`` of a run, as everything that reads it knows it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from fixnorm.system import brief
from fixnorm.training.bounded import Count, Name, Positive, Real
from fixnorm.training.checked import Part, read_checked
from fixnorm.training.tasks import METRICS

__all__ = ["RunEnd", "RunResult", "read_result"]


class RunEnd(Part):
    """How a run ended: what a search needs to know. The score stands under its metric's name."""

    model_config = ConfigDict(extra="allow")

    metric: str
    diverged: bool
    largest_scale: Real | None
    epochs: Annotated[Real, Field(ge=0)]
    seconds: Annotated[Real, Field(ge=0)]

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
    """All of it."""

    method: Name
    lr: Positive
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
