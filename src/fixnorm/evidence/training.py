"""One training of an experiment, and what it found."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os.path import lexists
from pathlib import Path
from typing import Any

from fixnorm import recipes
from fixnorm.methods import MethodName
from fixnorm.training.outcome import RunResult, read_result
from fixnorm.training.recipe import Recipe, changed
from fixnorm.training.table import read_table
from fixnorm.tuning.job import Job

__all__ = ["Found", "Training", "read_found"]

_DIGITS = 5
"""Significant digits of what is kept of a curve."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe with some fields changed. Equal trainings of different experiments are run once."""

    base: str
    """The recipe's name."""
    method: MethodName
    changes: tuple[tuple[str, Any], ...]
    data: str | None
    """The name of the data's folder."""
    cost: float = 1.0
    """In T_max of its recipe."""

    @cached_property
    def recipe(self) -> Recipe:
        """All of it."""
        return changed(recipes.get(self.base, self.method), **dict(self.changes))

    @cached_property
    def key(self) -> str:
        """Of its folder: words for people, and a digest of everything that it depends on."""
        recipe = self.recipe
        text = json.dumps([recipe.to_dict(), self.data], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{recipe.name}-{recipe.method}-lr{recipe.lr:.3g}-seed{recipe.seed}-{digest}"

    def settings(self) -> list[str]:
        """Its ``--set`` pairs."""
        return [f"{name}={value}" for name, value in self.changes]

    def job(self) -> Job:
        """As engines know it."""
        recipe = self.recipe
        tuned = {"alpha": recipe.alpha} if recipe.alpha is not None else {}
        decay = {"weight_decay": recipe.weight_decay} if recipe.alpha is None else {}
        return Job(
            key=self.key,
            round=recipe.name,
            index=0,
            lr=recipe.lr,
            fraction=self.cost,
            seed=recipe.seed,
            **tuned,
            **decay,
        )


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a training found."""

    score: float | None
    """In percent; none where it diverged."""
    largest_scale: float | None
    mcbr_train: float | None
    mcbr_val: float | None
    seconds: float
    steps: int
    device: str
    commit: str | None
    curve: Mapping[str, tuple[float | None, ...]]
    """Columns of ``metrics.csv``."""

    @property
    def value(self) -> float:
        """For a search: −∞ where it diverged."""
        return -math.inf if self.score is None else self.score

    @property
    def counted(self) -> float:
        """For a mean: 0 where it diverged."""
        return 0.0 if self.score is None else self.score


def read_found(folder: Path) -> Found | None:
    """What the run in a folder found; none while it is not over.

    A run that is over and whose files are damaged is refused: training it again would find it over.
    """
    if not lexists(folder / "result.json"):
        return None
    advice = f"remove {folder} to train it again"
    result = read_result(folder / "result.json", RunResult, advice=advice)
    table = read_table(folder / "metrics.csv", advice=advice)
    return Found(
        score=None if result.diverged else result.score,
        largest_scale=result.largest_scale,
        mcbr_train=result.mcbr_train,
        mcbr_val=result.mcbr_val,
        seconds=result.seconds,
        steps=result.steps,
        device=result.device,
        commit=result.commit,
        curve={
            name.replace(f"val_{result.metric}", "score"): tuple(map(_rounded, values))
            for name, values in table.items()
        },
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
