"""What a search announced before it began, as far as its settings tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fixnorm.tuning.plan import SearchSpace
from fixnorm.tuning.record import StudyRecord

__all__ = ["Announced", "announced"]

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Announced:
    """The bounds of a search; none where its settings do not say."""

    cost: float | None = None
    """The most that it costs, in T_max."""
    trainings: int | None = None
    """The most trainings that it takes, free ones included."""
    lr: Range | None = None
    weight_decay: Range | None = None
    alphas: tuple[float, ...] = ()
    seeds: int | None = None
    longest: float | None = None
    """The length of its longest trainings, in T_max."""


def announced(study: StudyRecord) -> Announced:
    """Read from the settings, or from their part ``space``: the fields of ``SearchSpace``.

    A baseline has ``budget`` (trainings), ``lr_min``, ``lr_max``, ``weight_decay_min`` and
    ``weight_decay_max``.
    """
    inner = study.settings.get("space")
    said = {**study.settings, **(inner if isinstance(inner, Mapping) else {})}
    lr = _range(said, "lr")
    seeds = _count(said.get("seeds"))
    if study.method != "fixnorm":
        budget = _count(said.get("budget"))
        trainings = None if budget is None else budget * (seeds or 1)
        return Announced(
            cost=trainings,
            trainings=trainings,
            lr=lr,
            weight_decay=_range(said, "weight_decay"),
            seeds=seeds,
            longest=1.0,
        )
    try:
        space = SearchSpace(
            lr_min=said["lr_min"],
            lr_max=said["lr_max"],
            splits=said["splits"],
            fractions=tuple(said["fractions"]),
            alphas=tuple(said["alphas"]),
            seeds=seeds or 1,
        )
    except (KeyError, TypeError, ValueError):
        return Announced(lr=lr, seeds=seeds)
    return Announced(
        cost=space.cost,
        trainings=space.trainings,
        lr=(space.lr_min, space.lr_max),
        alphas=space.alphas,
        seeds=space.seeds,
        longest=max(space.fractions),
    )


def _range(said: Mapping[str, Any], name: str) -> Range | None:
    low, high = said.get(f"{name}_min"), said.get(f"{name}_max")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
