"""What a search did, as plain values: what every table and figure of it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["State", "StudyRecord", "TrialRecord"]

State = Literal["running", "trained", "free", "diverged", "failed"]


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial of a study."""

    key: str
    """Its name in the study and of its folder, such as ``lr1-2-seed0`` or ``point-017``."""
    number: int
    """Its place in the order in which trials began."""
    round: str
    """``"lr round 1"``, ``"lr round 2"``, …, ``"alpha round"``; ``"points"`` of a baseline."""
    index: int
    """Its slot's place in the round."""
    lr: float
    alpha: float | None
    weight_decay: float | None
    fraction: float
    """Its length in T_max."""
    seed: int
    state: State
    accuracy: float | None = None
    """The metric; none while running, and where the training diverged or failed."""
    source: str | None = None
    """Of a free trial: the key of the one that it equals, bit for bit."""
    largest_scale: float | None = None
    """The largest |g|/√C of the training."""
    reason: str | None = None
    """Why it failed."""
    seconds: float | None = None
    folder: Path | None = None
    """The run's folder, with ``metrics.csv`` and ``result.json``; none of a free trial."""
    ended: float | None = None
    """When, in seconds since 1970."""

    @property
    def cost(self) -> float:
        """In T_max; nothing for a free trial."""
        return 0.0 if self.state == "free" else self.fraction


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """One search: a method on a recipe."""

    name: str
    method: str
    """``"fixnorm"`` or ``"bo-weight-decay"``."""
    strategy: str
    """``"paper"`` or ``"unimodal"``; of a baseline ``"gp"``, ``"tpe"`` or ``"random"``."""
    metric: str
    """What is maximised, for people: ``"accuracy (%)"``."""
    settings: Mapping[str, Any]
    """All that the search depends on: space, seeds, budget, recipe."""
    folder: Path | None = None
    trials: tuple[TrialRecord, ...] = field(default=())
    over: bool | None = None
    """Whether the search has come to its end; none where nobody has said."""

    @property
    def cost(self) -> float:
        """What has been spent, in T_max."""
        return round(sum(trial.cost for trial in self.trials if trial.state != "running"), 9)
