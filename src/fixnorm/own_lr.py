"""The optimizer's own lr beside ``lr="auto"``: a factor, 1.0 times what a scheduler makes of it.

A learning rate as one gives it without the rule (0.1 in the optimizer, ``max_lr=0.05`` in its
scheduler) would make every step too short, and nothing else would tell. So it is looked at: when
the optimizer is attached, when a scheduler has written its peak into the groups, and once a fifth
of the training is over, by when any warm-up is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from fixnorm.groups import is_fixed

__all__ = ["OwnLr", "check_own_lr", "check_sgd", "is_sgd"]

_LOW, _HIGH = 0.1, 10.0
"""A factor lies between them; the lr of an optimizer without the rule seldom does."""
_PEAK = "max_lr"
"""Key of a param group: what OneCycleLR will raise its lr to."""
_SGD = {"SGD", "SGDW", "SGDP", "FusedSGD"}
_WRAPPED = ("_base_optimizer", "base_optimizer", "optimizer", "optim")
"""Attributes in which wrappers (Lookahead, SAM) keep the optimizer that steps."""


def check_sgd(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose steps have a length of their own."""
    if not is_sgd(optimizer):
        raise ValueError(
            "lr='auto' is for SGD, whose steps are as long as the gradient says; those of "
            f"{type(optimizer).__name__} are not: give it a learning rate, or convert the model "
            "with scope='matrix'"
        )


def is_sgd(optimizer: Optimizer) -> bool:
    """Whether the optimizer's step is as long as its gradient says."""
    inner = (getattr(optimizer, name, None) for name in _WRAPPED)
    wrapped = next((o for o in inner if isinstance(o, Optimizer)), None)
    if wrapped is not None:
        return is_sgd(wrapped)
    return any(kind.__name__ in _SGD for kind in type(optimizer).__mro__)


def check_own_lr(groups: Iterable[dict[str, Any]]) -> None:
    """Refuse what is no factor, and say so where it is another one than 1.0.

    The largest of the fixed groups counts: lower layers may well have smaller ones.
    """
    fixed = _fixed(groups)
    lr = max(float(g.get(_PEAK, g.get("initial_lr", g["lr"]))) for g in fixed)
    if not _LOW < lr < _HIGH:
        raise ValueError(
            f"lr='auto' multiplies the optimizer's own lr, which is {lr:g} for the fixed weights: "
            "build it with lr=1.0, and its scheduler for a peak of 1.0 (after attach, if it starts "
            "lower)"
        )
    if lr != 1.0:
        warnings.warn(
            f"fixnorm: lr='auto' multiplies the optimizer's own lr: with {lr:g} every step is "
            f"{lr:g} times the rule's. Build it with lr=1.0, and its scheduler for a peak of 1.0",
            stacklevel=4,
        )


class OwnLr:
    """Watches the own lr of one optimizer while it trains."""

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        check_own_lr(groups)
        self._peak = _peak(groups)
        self._largest = 0.0
        self._seen = 0
        self._whole = True

    def look(self, groups: list[dict[str, Any]], *, seen: int, steps: int) -> None:
        """At a step, ``seen`` of ``steps`` are before it."""
        if (peak := _peak(groups)) != self._peak:
            self._peak = peak
            check_own_lr(groups)
        if not self._whole or seen > steps // 5:
            return
        own = [g["lr"] for g in _fixed(groups)]
        if any(isinstance(lr, Tensor) for lr in own) or seen > self._seen + 1:
            self._whole = False  # on a device, or resumed: the largest is not known
            return
        self._seen = seen
        self._largest = max(self._largest, *own)
        if seen == steps // 5 and self._largest <= _LOW:
            self._whole = False
            warnings.warn(
                f"fixnorm: the optimizer's own lr was {self._largest:g} at most in the first "
                f"{seen + 1} of {steps} steps, and lr='auto' multiplies it: a schedule for it goes "
                "up to 1.0",
                stacklevel=5,
            )


def _peak(groups: Iterable[dict[str, Any]]) -> Any:
    return [group.get(_PEAK) for group in groups]


def _fixed(groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those on the sphere, or all of an optimizer that has none."""
    every = list(groups)
    return [group for group in every if is_fixed(group)] or every
