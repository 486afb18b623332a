"""The numbers of the last step, for logs: what the rescale did, and where the scales stand.

How far a weight turned is measured on the steps that are asked for: the angle between before and
after needs a copy of the weights during the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fixnorm.layers import is_capped, is_scaled, whole
from fixnorm.norm import Rescaled, local, weight_norms

__all__ = [
    "Figures",
    "GroupFigures",
    "HeadFigures",
    "MatrixFigures",
    "RuleFigures",
    "WeightFigures",
]


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """One fixed group at its last step; groups of one sphere have its norm, target and factor."""

    norm: float
    """‖W‖ after the optimizer's step and before the rescale."""
    target: float
    factor: float
    """c_t, by which the weights that moved were multiplied: target / norm if all did."""
    lr: float
    effective_lr: float
    """lr / target²: how far a unit gradient turns the weights (eq. 4)."""
    implied_decay: float
    """λ_t = (1/c_t − 1) / lr: the decoupled weight decay that the rescale stands in for."""


@dataclass(frozen=True, slots=True)
class WeightFigures:
    """One fixed weight at its last step."""

    share: float
    """Its part of the group's squared norm; the parts add up to 1."""
    angle: float | None
    """Radians its direction turned in the last measured step; none unless asked for."""


@dataclass(frozen=True, slots=True)
class MatrixFigures:
    """One weight of scope ``matrix`` at its last step."""

    radius: float
    """The norm that it keeps."""
    step: float
    """‖d‖ / radius: how far the optimizer would have moved it by itself."""
    angle: float
    """Radians its direction turned: about the group's lr, 0 where it was not to move."""


@dataclass(frozen=True, slots=True)
class HeadFigures:
    """The scale of a FixNorm or weight-normalised layer, now."""

    g: float
    cap: float | None
    saturated: bool
    """Whether |g| has met its cap, so that the cap decides."""


@dataclass(frozen=True, slots=True)
class RuleFigures:
    """Where the learning rate of ``lr="auto"`` comes from; that of a step is its group's ``lr``."""

    steps: int
    """T, of the whole training."""
    seen: int
    """Steps so far."""
    gradient: float | None
    """√(mean ‖ĝ‖²) of their gradients on the unit sphere; none where it does not matter."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What ``handle.figures()`` gives: the last step's numbers by group, by weight and by head."""

    groups: tuple[GroupFigures, ...]
    weights: dict[str, WeightFigures]
    heads: dict[str, HeadFigures]
    rule: RuleFigures | None = None
    """Of ``lr="auto"``."""
    matrices: dict[str, MatrixFigures] = field(default_factory=dict)
    """Of scope ``matrix``, by weight."""

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, ready for JSON."""
        return asdict(self)


class Step(NamedTuple):
    """What the hook keeps of one sphere's last step, all still on the device."""

    rescaled: Rescaled
    target: float
    lrs: list[float | Tensor]
    """One for each group of the sphere."""


def group_figures(step: Step) -> Iterator[GroupFigures]:
    """Bring the numbers of a sphere's groups to the host."""
    norm, factor = torch.stack([step.rescaled.norm, step.rescaled.factor]).tolist()
    for given in step.lrs:
        lr = given.item() if isinstance(given, Tensor) else given
        yield GroupFigures(
            norm=norm,
            target=step.target,
            factor=factor,
            lr=lr,
            effective_lr=lr / step.target**2,
            implied_decay=(1 / factor - 1) / lr if lr and factor else math.nan,
        )


def weight_figures(
    names: Iterable[str], step: Step, angles: Tensor | None
) -> dict[str, WeightFigures]:
    """Bring the numbers of a sphere's weights to the host."""
    shares = (step.rescaled.norms / step.rescaled.norm).square().tolist()
    turned = [None] * len(shares) if angles is None else angles.tolist()
    return {
        name: WeightFigures(share, angle)
        for name, share, angle in zip(names, shares, turned, strict=True)
    }


@torch.no_grad()
def head_figures(model: nn.Module) -> dict[str, HeadFigures]:
    """The scales of all layers that have one. A collective where they are sharded."""
    found = {}
    for name, layer in model.named_modules():
        if is_scaled(layer):
            value = whole(layer.g).item()
            cap = layer.cap if is_capped(layer) else None
            found[name] = HeadFigures(value, cap, cap is not None and abs(value) >= cap)
    return found


class Snapshot(NamedTuple):
    """A copy of some weights, as they were, and their norms."""

    parts: list[Tensor]
    norms: Tensor


@torch.no_grad()
def snapshot(weights: Sequence[Tensor]) -> Snapshot:
    """Copy the weights; costs their memory until :func:`turned` has used it."""
    return Snapshot([local(weight).clone() for weight in weights], weight_norms(weights))


@torch.no_grad()
def turned(before: Snapshot, weights: Sequence[Tensor]) -> Tensor:
    """Radians that each weight has turned since the snapshot, shape (n,); uses the snapshot up.

    2·asin(‖a − b‖ / 2) for the unit vectors a and b: exact also where cos(a, b) rounds to 1.
    """
    norms = weight_norms(weights)
    ratios = (norms / before.norms).unbind()
    for old, ratio, weight in zip(before.parts, ratios, weights, strict=True):
        old.mul_(ratio).sub_(local(weight))
    chords = weight_norms(weights, parts=before.parts) / norms
    return 2 * torch.asin((chords / 2).clamp(max=1))


class Angles:
    """The angles of the last step that was measured."""

    def __init__(self, every: int) -> None:
        self.last: dict[Any, Tensor] = {}
        self._every = every
        self._taken = 0
        self._before: dict[Any, Snapshot] = {}

    def before(self, weights: dict[Any, list[nn.Parameter]]) -> None:
        if not self._every:
            return
        self._taken += 1
        if self._taken % self._every == 0:
            self._before = {key: snapshot(own) for key, own in weights.items()}

    def after(self, key: Any, weights: Sequence[Tensor]) -> None:
        if key in self._before:
            self.last[key] = turned(self._before.pop(key), weights)
