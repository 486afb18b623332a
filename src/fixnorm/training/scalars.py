"""Curves for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Scalars:
    """Writes scalars; what an interrupted run wrote past its checkpoint is purged."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step or None)

    def row(self, row: Mapping[str, Any]) -> None:
        """All figures of an epoch."""
        for name, value in row.items():
            if name not in ("epoch", "step") and value is not None:
                self._writer.add_scalar(f"epoch/{name}", value, row["step"])
        self._writer.flush()

    def step(self, step: int, figures: Mapping[str, float]) -> None:
        """Figures of a step."""
        for name, value in figures.items():
            self._writer.add_scalar(f"step/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()
