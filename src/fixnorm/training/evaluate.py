"""Score and MCBR over a whole set, every image exactly once over all processes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn

from fixnorm.training.distributed import World
from fixnorm.training.scores import Score, Scorer
from fixnorm.training.tasks import Task
from fixnorm.training.tasks.risk import Head

__all__ = ["Evaluation", "evaluate"]


class Evaluation(NamedTuple):
    """What one pass over a set found."""

    score: Score
    mcbr: float | None
    """None where the model has no head whose features are told."""


@torch.no_grad()
def evaluate(
    task: Task[Any, Any],
    model: nn.Module,
    head: Head | None,
    batches: Iterable[Any],
    scorer: Scorer,
    world: World,
    autocast: AbstractContextManager[object],
    memory_format: torch.memory_format,
) -> Evaluation:
    """Run the model over the batches of this process; the figures are those of all processes."""
    training = model.training
    model.eval()
    risk = task.risk(model, head, world.device)
    try:
        for batch in batches:
            part = task.part(batch, world.device, memory_format)
            with autocast:
                outputs = model(*part.inputs)
            risk.update(part.labels)
            scorer.update(outputs, part.labels)
    finally:
        risk.remove()
        model.train(training)
    mcbr = risk.metric.compute().item()
    return Evaluation(scorer.compute(world), None if mcbr != mcbr else mcbr)
