"""Where the matrices of scope ``matrix`` start: the radius of their spheres, for good.

Nothing changes a radius later, so the start decides it. ``None`` keeps what the net's own
initialisation gave. A number multiplies it. ``"fan_in"`` is a rule: a weight of n entries, of which
``fan_in`` go into one output, gets the norm that entries of variance 1/fan_in would have::

    ‖W‖  =  √(n / fan_in)  =  √outputs

which is what keeps a layer's output as large as its input is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

from fixnorm.layers import PLAIN, outputs_of
from fixnorm.norm import frobenius
from fixnorm.structure import owner_name

__all__ = ["Radius", "checked_radius", "set_radii_"]

Radius = float | Literal["fan_in"]


def checked_radius(radius: Any, scope: Any) -> Radius | None:
    """The value; what is no radius, and one without spheres to give it to, is refused."""
    if radius is None:
        return None
    if scope != "matrix":
        raise ValueError(f"radius={radius!r} is for scope='matrix' but got scope={scope!r}")
    number = isinstance(radius, int | float) and not isinstance(radius, bool)
    if radius == "fan_in" or (number and 0 < radius < math.inf):
        return radius  # type: ignore[no-any-return]
    raise ValueError(
        "radius must be a positive number, which multiplies the norms that the weights have, or "
        f"'fan_in' but got {radius!r}"
    )


@torch.no_grad()
def set_radii_(model: nn.Module, names: Iterable[str], radius: Radius) -> None:
    """Bring the weights of these names to their radius, in place."""
    for name in names:
        weight = model.get_parameter(name)
        if radius == "fan_in":
            norm = math.sqrt(_outputs(model.get_submodule(owner_name(name)), weight))
            weight.mul_(norm / frobenius(weight))
        else:
            weight.mul_(radius)


def _outputs(layer: nn.Module, weight: nn.Parameter) -> int:
    if isinstance(layer, PLAIN):
        return outputs_of(layer)
    return int(getattr(layer, "nf", weight.shape[0]))  # transformers' Conv1D is (in, out)
