"""Batches through a model, and what a pass over a whole set finds."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from fixnorm.training.distributed import World
from fixnorm.training.tasks import Part, Score, Scorer, Task
from fixnorm.training.tasks.task import Head

__all__ = ["Evaluation", "Passes", "evaluate"]

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Passes:
    """How batches go through a model: on which device, in which layout and precision."""

    task: Task[Any, Any]
    world: World

    def part(self, batch: Any) -> Part:
        """A batch, where the model is."""
        last = self.task.recipe.channels_last
        layout = torch.channels_last if last else torch.contiguous_format
        return self.task.part(batch, self.world.device, layout)

    def autocast(self) -> AbstractContextManager[object]:
        half = _HALVES.get(self.task.recipe.precision)
        return torch.autocast(self.world.device.type, dtype=half, enabled=half is not None)

    def outputs(self, model: nn.Module, batch: Any) -> Any:
        part = self.part(batch)
        with self.autocast():
            return model(*part.inputs)


class Evaluation(NamedTuple):
    """What one pass over a set found."""

    score: Score
    mcbr: float | None
    """None where the model has no head whose features are told."""


@torch.no_grad()
def evaluate(
    passes: Passes,
    model: nn.Module,
    batches: Iterable[Any],
    scorer: Scorer,
    *,
    head: Head | None = None,
) -> Evaluation:
    """Run the model over the batches of this process; the numbers are those of all processes."""
    training = model.training
    model.eval()
    risk = passes.task.risk(model, head, passes.world.device)
    try:
        for batch in batches:
            part = passes.part(batch)
            with passes.autocast():
                outputs = model(*part.inputs)
            risk.update(part.labels)
            scorer.update(outputs, part.labels)
    finally:
        risk.remove()
        model.train(training)
    mcbr = risk.metric.compute().item()
    return Evaluation(scorer.compute(passes.world), None if mcbr != mcbr else mcbr)
