"""Where trainings run: local processes or Ray. The driver knows no more of them than this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fixnorm.tuning.trial import Result, Trial

__all__ = ["Died", "Engine", "Refused", "Unfinished"]


@dataclass(frozen=True)
class Died:
    """The training was killed, or its machine was lost: no result, and worth another try."""

    reason: str
    killed: bool = False
    """By a signal or with its machine, rather than by an error of its own."""
    log: Path | None = None
    """Where its words are."""


class Refused(ValueError):
    """A training that no other try would mend, such as one without its data."""


class Unfinished(OSError):
    """A training that came to no result: its trial stays open, for the next driver."""


class Engine(Protocol):
    """Runs trials, several at a time."""

    @property
    def room(self) -> int:
        """How many trials run at a time."""

    def start(self, trial: Trial) -> None:
        """Start a trial; returns at once."""

    def wait(self, seconds: float) -> list[tuple[Trial, Result | Died]]:
        """The trials that have ended, as soon as there is one; none after some seconds."""

    def progress(self, trial: Trial) -> float:
        """How much of the trial is done, from 0 to 1, as far as it is known."""

    def stop(self) -> None:
        """End all trials, letting them write their checkpoints, and everything the engine holds."""
