"""Where trainings run. The driver starts jobs and is told how they ended; it knows no more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fixnorm.tuning.job import Ended, Job

__all__ = ["Died", "Engine", "Refused", "Unfinished"]


@dataclass(frozen=True)
class Died:
    """The training was killed, or its machine was lost: no outcome, and worth another try."""

    reason: str
    killed: bool = False
    """By a signal or with its machine, rather than by an error of its own."""
    log: Path | None = None
    """Where its words are."""


class Refused(ValueError):
    """A training that no other try would mend, such as one without its data."""


class Unfinished(OSError):
    """A training that came to no outcome: its trial stays open, for the next driver."""


class Engine(Protocol):
    """Runs jobs, several at a time."""

    @property
    def room(self) -> int:
        """How many jobs run at a time."""

    def start(self, job: Job) -> None:
        """Start a job; returns at once."""

    def wait(self, seconds: float) -> list[tuple[Job, Ended | Died]]:
        """The jobs that have ended, as soon as there is one; none after some seconds."""

    def progress(self, job: Job) -> float:
        """How much of the job is done, from 0 to 1, as far as it is known."""

    def stop(self) -> None:
        """End all jobs, letting them write their checkpoints, and everything the engine holds."""
