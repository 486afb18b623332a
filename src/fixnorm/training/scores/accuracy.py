"""Top-1 accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from fixnorm.training.distributed import World
from fixnorm.training.scores.scorer import Score, Scorer

__all__ = ["Accuracy"]


class Accuracy(Scorer):
    """The share of images whose highest logit is their class's."""

    def __init__(self, device: torch.device) -> None:
        self._counts = torch.zeros(2, dtype=torch.int64, device=device)

    def update(self, outputs: Tensor, labels: Tensor) -> None:
        """Logits (B, classes), labels (B,)."""
        self._counts[0] += (outputs.argmax(1) == labels).sum()
        self._counts[1] += len(labels)

    def compute(self, world: World) -> Score:
        """Over all processes."""
        correct, seen = world.sum(self._counts).tolist()
        return Score(100 * correct / seen)
