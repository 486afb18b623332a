"""The names of a run's files, which nothing else knows."""

from __future__ import annotations

from pathlib import Path

from fixnorm.system.lock import LOCK

__all__ = ["RunPaths"]


class RunPaths:
    """Where the files of one run are; they need not be there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe = path / "recipe.json"
        self.metrics = path / "metrics.csv"
        self.weights = path / "weights.safetensors"
        self.result = path / "result.json"
        self.classes = path / "classes.json"
        self.pictures = path / "pictures"
        self.checkpoints = path / "checkpoints"
        self.branches = path / "branches"
        """States from which runs of a smaller alpha begin."""
        self.tensorboard = path / "tensorboard"
        self.exported = path / "model.safetensors"
        """What ``fixnorm export`` writes."""
        self.lock = path / LOCK
