"""What all scores have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from fixnorm.training.distributed import World

__all__ = ["Score", "Scorer"]


class Score(NamedTuple):
    """Of a whole set."""

    value: float
    """Percent, more is better."""
    detail: Mapping[str, float | None] = {}
    """What it is made of: by class, or by size of objects."""


class Scorer(ABC):
    """Counts batches, then scores what it has seen on all processes."""

    @abstractmethod
    def update(self, outputs: Any, labels: Any) -> None:
        """Count what the model said about a batch."""

    @abstractmethod
    def compute(self, world: World) -> Score:
        """The score over all processes; each of them has to call it."""
