"""What experiments cost, before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from fixnorm.evidence.scales import Scale
from fixnorm.evidence.trainings import Training
from fixnorm.report.tables import TextTable
from fixnorm.training.recipe import Recipe
from fixnorm.training.tasks import estimates_of, task_of
from fixnorm.tuning.estimate import seconds_of_training, training_images

__all__ = ["TFLOPS", "Cost", "Counter", "cost_table"]

TFLOPS = 40.0
"""10¹² operations a second that one GPU sustains: about a third of a V100's peak in half precision,
an eighth of an A100's. Divide by what yours does."""
_SHARE = 0.2
"""Of the time that the speed of one training is measured for: there are a dozen networks."""
_BACKWARD = 3
"""Forward and backward passes cost three forward passes."""


@dataclass(frozen=True)
class Cost:
    """What several trainings cost."""

    trainings: int
    t_max: float
    """In trainings of full length."""
    images: float
    operations: float
    """Floating-point operations of all passes."""
    seconds: float | None
    """Here, one after another; none where it was not measured."""

    @property
    def gpu_hours(self) -> float:
        """Of one GPU that does :data:`TFLOPS`."""
        return self.operations / (TFLOPS * 1e12) / 3600


class Counter:
    """Counts; each network is run once."""

    def __init__(self, *, measure: bool) -> None:
        self._measure = measure
        self._operations: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def cost(self, trainings: Iterable[Training]) -> Cost:
        """Of all of them."""
        counted = [(training, training_images(training.recipe, None)) for training in trainings]
        return Cost(
            trainings=len(counted),
            t_max=round(sum(training.cost for training, _ in counted), 3),
            images=sum(images for _, images in counted),
            operations=sum(n * self.operations(training.recipe) for training, n in counted),
            seconds=sum(n * self.seconds(training.recipe) for training, n in counted)
            if self._measure
            else None,
        )

    def operations(self, recipe: Recipe) -> float:
        """Of one image's passes."""
        name = _network(recipe)
        if name not in self._operations:
            self._operations[name] = _BACKWARD * forward_operations(recipe)
        return self._operations[name]

    def seconds(self, recipe: Recipe) -> float:
        """Of one image's passes, on this machine."""
        name = _network(recipe)
        if name not in self._seconds:
            whole = seconds_of_training(recipe, None, share=_SHARE)
            self._seconds[name] = whole / training_images(recipe, None)
        return self._seconds[name]


def _network(recipe: Recipe) -> str:
    """What the operations of an image depend on."""
    size = estimates_of(recipe).expected().size
    return f"{recipe.task} {recipe.model} {size}"


@torch.no_grad()
def forward_operations(recipe: Recipe) -> float:
    """Of one image, counted by running the network on it: without arithmetic where that works."""
    task, estimates = task_of(recipe), estimates_of(recipe)
    expected = estimates.expected()
    # A detector decides by values which boxes to keep: it needs some.
    device = torch.device("cpu" if recipe.task == "detection" else "meta")
    with device:
        model = task.network(expected.classes, expected.size[0]).eval()
    part = estimates.example(1, device)
    with FlopCounterMode(display=False) as counter:
        model(*part.inputs)
    return float(counter.get_total_flops()) / part.images


def cost_table(costs: dict[str, Cost], scale: Scale) -> TextTable:
    """What experiments would take, one row for each."""
    here = scale.name == "small"
    rows = [
        (
            name,
            str(cost.trainings),
            f"{cost.t_max:g}",
            f"{cost.images / 1e6:,.1f}",
            f"{cost.operations / (1e15 if here else 1e18):.3g}",
            f"{(cost.seconds or 0) / 3600:.1f}" if here else f"{cost.gpu_hours:,.0f}",
        )
        for name, cost in costs.items()
    ]
    last = "core-hours here" if here else f"GPU-hours at {TFLOPS:g} TFLOP/s"
    notes = ["At most: searches end earlier where a cap is never met."]
    if len(costs) > 1:
        notes.append("together: trainings that are the same are run once.")
    if not here:
        notes.append("Forward and backward passes alone, as each network counts on one image.")
    columns = (
        "experiment",
        "trainings",
        "T_max",
        "million images",
        "PFLOP" if here else "EFLOP",
        last,
    )
    return TextTable(f"At {scale.name} scale", columns, tuple(rows), tuple(notes), words=1)
