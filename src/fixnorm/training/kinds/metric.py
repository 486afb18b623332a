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
    counts: bool = False
    """Whether it is the share of images that are right."""

    @property
    def label(self) -> str:
        return f"{self.title} (%)"
