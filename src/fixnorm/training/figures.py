"""The figures of an epoch: sums over its steps, and where norms and scales stand at its end."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from fixnorm.angles import Snapshot, snapshot, turned
from fixnorm.norm import joint_norm, weight_norms
from fixnorm.training.distributed import World
from fixnorm.training.evaluate import CrossBoundary, Evaluation
from fixnorm.training.setup import Trainee

__all__ = ["Running", "TurnOfLastStep", "epoch_row"]


class Running:
    """Sums over the steps of an epoch, on the device, never waited for inside a step."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.correct = torch.zeros((), dtype=torch.float64, device=device)
        self.images = 0

    def update(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count one forward pass; ``loss`` is its mean."""
        self.loss += loss.detach() * len(labels)
        self.correct += (logits.detach().argmax(1) == labels).sum()
        self.images += len(labels)

    def state(self, risk: CrossBoundary) -> Tensor:
        """All sums as one vector, MCBR's included."""
        images = torch.tensor(float(self.images), dtype=torch.float64, device=self.loss.device)
        metric = risk.metric
        return torch.stack(
            [self.loss, self.correct, images, metric.total.double(), metric.count.double()]
        )

    def load(self, state: Tensor, risk: CrossBoundary) -> None:
        """Go on from the sums of :meth:`state`."""
        state = state.to(self.loss.device)
        self.loss, self.correct = state[0].clone(), state[1].clone()
        self.images = int(state[2].item())
        risk.metric.total, risk.metric.count = state[3].clone(), state[4].long()

    def reset(self, risk: CrossBoundary) -> None:
        """Begin an epoch."""
        self.loss.zero_()
        self.correct.zero_()
        self.images = 0
        risk.metric.reset()


class TurnOfLastStep:
    """How far W^Conv turns in the last step of an epoch; costs one copy of it during that step."""

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


def epoch_row(
    epoch: int,
    step: int,
    lr: float,
    trainee: Trainee,
    running: Running,
    risk: CrossBoundary,
    turn: TurnOfLastStep,
    evaluation: Evaluation | None,
    world: World,
) -> dict[str, Any]:
    """One line of ``metrics.csv``. No clock is in it: a resumed run writes the same."""
    loss, correct, images, mcbr_total, mcbr_count = world.sum(running.state(risk)).tolist()
    norm = joint_norm(trainee.conv).item() if trainee.conv else None
    scale = trainee.head_scale()
    steps = trainee.handle.figures().groups if trainee.handle is not None else ()
    return {
        "epoch": epoch,
        "step": step,
        "lr": lr,
        "train_loss": loss / images,
        "train_accuracy": 100 * correct / images,
        "val_accuracy": evaluation.accuracy if evaluation is not None else None,
        "conv_norm": norm,
        "head_scale": scale.item() if scale is not None else None,
        "cap": trainee.cap(),
        "mcbr_train": mcbr_total / mcbr_count if mcbr_count else None,
        "mcbr_val": evaluation.mcbr if evaluation is not None else None,
        "effective_lr": lr / norm**2 if norm else None,
        "angular_update": turn.angle,
        "implied_decay": statistics.fmean(s.implied_decay for s in steps) if steps else None,
    }
