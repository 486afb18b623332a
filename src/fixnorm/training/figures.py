"""A line of figures: sums over its steps, and where norms and scales stand at its end."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from fixnorm.norm import joint_norm, weight_norms
from fixnorm.telemetry import Snapshot, snapshot, turned
from fixnorm.training.distributed import World
from fixnorm.training.evaluate import Evaluation
from fixnorm.training.setup import Trainee
from fixnorm.training.tasks import Metric
from fixnorm.training.tasks.risk import Risk

__all__ = ["Running", "TurnOfLastStep", "columns", "metrics_row"]


class Running:
    """Sums since the last line of figures, on the device, never waited for inside a step."""

    def __init__(self, device: torch.device) -> None:
        # loss times images, images, classes that are right, classes there are
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)

    def update(self, loss: Tensor, images: int, correct: tuple[Tensor | int, Tensor | int]) -> None:
        """Count one forward pass; ``loss`` is its mean."""
        self.sums[0] += loss.detach() * images
        self.sums[1] += images
        self.sums[2] += correct[0]
        self.sums[3] += correct[1]

    def state(self, risk: Risk) -> Tensor:
        """All sums as one vector, MCBR's included."""
        metric = risk.metric
        return torch.cat([self.sums, torch.stack([metric.total.double(), metric.count.double()])])

    def load(self, state: Tensor, risk: Risk) -> None:
        """Go on from the sums of :meth:`state`."""
        state = state.to(self.sums.device)
        self.sums = state[:4].clone()
        risk.metric.total, risk.metric.count = state[4].clone(), state[5].long()

    def reset(self, risk: Risk) -> None:
        """Begin a line."""
        self.sums.zero_()
        risk.metric.reset()


class TurnOfLastStep:
    """How far W^Conv turns in the last step of a line; costs one copy of it during that step."""

    def __init__(self, trainee: Trainee) -> None:
        self._trainee = trainee
        self._before: Snapshot | None = None
        self.angle: float | None = None

    def before(self) -> None:
        """Just before the step."""
        if self._trainee.conv:
            self._before = snapshot(self._trainee.conv)

    def after(self) -> None:
        """Just after it."""
        if self._before is not None:
            angles = turned(self._before, self._trainee.conv)
            shares = weight_norms(self._trainee.conv).square()
            mean = (angles.square() * shares).sum() / shares.sum()
            self.angle, self._before = mean.sqrt().item(), None


def metrics_row(
    metric: Metric,
    epoch: float,
    step: int,
    lr: float,
    trainee: Trainee,
    running: Running,
    risk: Risk,
    turn: TurnOfLastStep,
    evaluation: Evaluation | None,
    world: World,
) -> dict[str, Any]:
    """One line of ``metrics.csv``. No clock is in it: a resumed run writes the same."""
    sums = world.sum(running.state(risk)).tolist()
    loss, images, correct, counted, mcbr_total, mcbr_count = sums
    norm = joint_norm(trainee.conv).item() if trainee.conv else None
    scale = trainee.head_scale()
    steps = trainee.handle.figures().groups if trainee.handle is not None else ()
    values = (
        epoch,
        step,
        lr,
        loss / images,
        100 * correct / counted if counted else None,
        evaluation.score.value if evaluation is not None else None,
        norm,
        scale.item() if scale is not None else None,
        trainee.cap(),
        mcbr_total / mcbr_count if mcbr_count else None,
        evaluation.mcbr if evaluation is not None else None,
        lr / norm**2 if norm else None,
        turn.angle,
        statistics.fmean(s.implied_decay for s in steps) if steps else None,
    )
    return dict(zip(columns(metric), values, strict=True))


def columns(metric: Metric) -> tuple[str, ...]:
    """Of ``metrics.csv``."""
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
