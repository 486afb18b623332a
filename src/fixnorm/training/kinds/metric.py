"""What trainings are scored by."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Metric"]


class Metric(NamedTuple):
    """What is maximised, in percent."""

    name: str
    """In files: ``miou``."""
    title: str
    """For people: ``mIoU``."""

    @property
    def label(self) -> str:
        return f"{self.title} (%)"
