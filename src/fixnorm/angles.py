"""How far weights turn: the angle between before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fixnorm.norm import local, weight_norms


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
