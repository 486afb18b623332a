"""Accuracy and MCBR over a whole set, every image exactly once over all processes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import nn

from fixnorm.data import Batch
from fixnorm.mcbr import MeanCrossBoundaryRisk
from fixnorm.models import HeadInput
from fixnorm.training.distributed import World
from fixnorm.training.setup import Head


class Evaluation(NamedTuple):
    """What one pass over a set found."""

    accuracy: float
    """Percent."""
    mcbr: float | None
    """None where the model has no single head with flat features."""


class CrossBoundary:
    """MCBR of the batches a model sees, by the input of its head."""

    def __init__(self, head: Head | None, device: torch.device) -> None:
        self.metric = MeanCrossBoundaryRisk(device=device)
        self.head = head
        self._input = HeadInput(head, head=head) if head is not None else None

    def update(self, labels: torch.Tensor) -> None:
        """Count the batch that has just gone through the model."""
        if self.head is None or self._input is None:
            return
        features = self._input.features
        if features.ndim == 2 and len(features) == len(labels):
            self.metric.update(features.float(), labels, self.head.weight.detach().flatten(1))

    def remove(self) -> None:
        """Take the hook off the head."""
        if self._input is not None:
            self._input.remove()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    head: Head | None,
    batches: Iterable[Batch],
    world: World,
    autocast: AbstractContextManager[object],
    memory_format: torch.memory_format,
) -> Evaluation:
    """Run the model over the batches of this process; the figures are those of all processes."""
    training = model.training
    model.eval()
    risk = CrossBoundary(head, world.device)
    counts = torch.zeros(2, dtype=torch.int64, device=world.device)
    try:
        for images, labels in batches:
            images = images.to(world.device, memory_format=memory_format, non_blocking=True)
            labels = labels.to(world.device, non_blocking=True)
            with autocast:
                logits = model(images)
            risk.update(labels)
            counts[0] += (logits.argmax(1) == labels).sum()
            counts[1] += len(labels)
    finally:
        risk.remove()
        model.train(training)
    correct, seen = world.sum(counts).tolist()
    mcbr = risk.metric.compute().item()
    return Evaluation(100 * correct / seen, None if mcbr != mcbr else mcbr)
