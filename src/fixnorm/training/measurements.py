"""What is measured: a pass over a whole set, and the lines of ``metrics.csv``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fixnorm.norm import joint_norm, weight_norms
from fixnorm.telemetry import Snapshot, snapshot, turned
from fixnorm.training.setup import Passes, Trainee
from fixnorm.training.tasks import Metric, Part, Score, Scorer
from fixnorm.training.tasks.task import Head

__all__ = ["SUMS", "Evaluation", "Line", "columns", "evaluate"]

SUMS = 6
"""Loss times images, images, classes that are right, classes there are; MCBR's total and count."""


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


class Line:
    """Sums over the steps of a line; on the device, never waited for in a step."""

    def __init__(self, trainee: Trainee) -> None:
        self._trainee = trainee
        self._task, self._world = trainee.passes.task, trainee.passes.world
        self._risk = self._task.risk(trainee.model, trainee.head, self._world.device)
        self._sums = torch.zeros(SUMS - 2, dtype=torch.float64, device=self._world.device)
        self._before: Snapshot | None = None
        self.angle: float | None = None
        """How far W^Conv turned in the last step of the line."""

    def add(self, part: Part, outputs: Any, loss: Tensor, *, risk: bool) -> None:
        """Count one forward pass and its mean loss; ``risk``: its MCBR, too."""
        right, counted = self._task.correct(outputs, part)
        self._sums[0] += loss.detach() * part.images
        self._sums[1] += part.images
        self._sums[2] += right
        self._sums[3] += counted
        if risk:
            self._risk.update(part.labels)

    def before_last_step(self) -> None:
        """Keep W^Conv: one copy of it, during one step."""
        if self._trainee.conv:
            self._before = snapshot(self._trainee.conv)

    def after_last_step(self) -> None:
        if self._before is not None:
            angles = turned(self._before, self._trainee.conv)
            shares = weight_norms(self._trainee.conv).square()
            mean = (angles.square() * shares).sum() / shares.sum()
            self.angle, self._before = mean.sqrt().item(), None

    def row(self, *, epoch: float, step: int, evaluation: Evaluation | None) -> dict[str, Any]:
        """The line, over all processes. No clock is in it: a resumed run writes the same."""
        trainee = self._trainee
        loss, images, right, counted, risk, risks = self._world.sum(self.state()).tolist()
        lr = trainee.lr
        norm = joint_norm(trainee.conv).item() if trainee.conv else None
        scale = trainee.head_scale()
        steps = trainee.handle.figures().groups if trainee.handle is not None else ()
        values = (
            epoch,
            step,
            lr,
            loss / images,
            100 * right / counted if counted else None,
            evaluation.score.value if evaluation is not None else None,
            norm,
            scale.item() if scale is not None else None,
            trainee.cap(),
            risk / risks if risks else None,
            evaluation.mcbr if evaluation is not None else None,
            lr / norm**2 if norm and trainee.recipe.scope != "matrix" else None,
            self.angle,
            statistics.fmean(s.implied_decay for s in steps) if steps else None,
        )
        return dict(zip(columns(self._task.metric), values, strict=True))

    def state(self) -> Tensor:
        """All sums as one vector."""
        metric = self._risk.metric
        return torch.cat([self._sums, torch.stack([metric.total.double(), metric.count.double()])])

    def load(self, state: Tensor) -> None:
        """Go on from the sums of :meth:`state`."""
        state = state.to(self._sums.device)
        self._sums, metric = state[:-2].clone(), self._risk.metric
        metric.total, metric.count = state[-2].clone(), state[-1].long()

    def reset(self) -> None:
        """Begin the next line."""
        self._sums.zero_()
        self._risk.metric.reset()

    def close(self) -> None:
        """Take the hooks off the model."""
        self._risk.remove()


def columns(metric: Metric) -> tuple[str, ...]:
    """The names of a line's numbers."""
    return (
        "epoch",
        "step",
        "lr",
        "train_loss",
        "train_accuracy",
        f"val_{metric.name}",
        "conv_norm",
        "head_scale",
        "cap",
        "mcbr_train",
        "mcbr_val",
        "effective_lr",
        "angular_update",
        "implied_decay",
    )
