"""What every rule for the learning rate does: it sets the lr of a step, and takes it back after it.

The optimizer's own lr is 1.0, times what a scheduler makes of it; a rule multiplies it while a step
is made. What is saved in between has the own lr. Which number a rule multiplies by is its own
matter: :mod:`fixnorm.sphere_rule` for one joint norm, :mod:`fixnorm.angle_rule` for matrices.
"""

from __future__ import annotations

import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer

from fixnorm.own_lr import OwnLr
from fixnorm.spheres import Sphere
from fixnorm.telemetry import RuleFigures

__all__ = ["MEAN", "PART", "SEEN", "STEPS", "LrRule", "check_state", "forget", "tell_unused_state"]

STEPS, SEEN, MEAN = "fixnorm_steps", "fixnorm_seen", "fixnorm_mean_square"
"""Keys of a param group: T, the steps that were seen, and the mean of ‖ĝ‖² over them."""
PART = "fixnorm_part"
"""Of one among several optimizers: ‖ĝ‖² of its own weights at its last step."""


class LrRule(ABC):
    """Sets the learning rates of a step, and takes them back after it."""

    changed: ClassVar[tuple[str, ...]] = ("lr", SEEN)
    """Keys of a group that a step which does not come to its end has changed for nothing."""

    def __init__(self, optimizer: Optimizer, steps: int | None) -> None:
        self._steps = _check(optimizer, steps)
        self._own = OwnLr(optimizer.param_groups)
        self._begun: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._warned = False
        for group in optimizer.param_groups:
            group.setdefault(STEPS, steps)
            group.setdefault(SEEN, 0)
        self.undo = [*self._follow_saves(optimizer), self._take_back]

    @abstractmethod
    def factors(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> list[float]:
        """What multiplies the lr of each group at this step, which is counted."""

    @abstractmethod
    def figures(self, optimizer: Optimizer) -> RuleFigures:
        """Where the learning rate stands."""

    def before_clipping(  # noqa: B027 - a rule need not look at gradients
        self, optimizer: Optimizer, spheres: Collection[Sphere]
    ) -> None:
        """The gradients of the coming step are as the loss made them now."""

    @torch.no_grad()
    def before(self, optimizer: Optimizer, spheres: Collection[Sphere]) -> None:
        """Multiply the lr of every group, now that the gradients are there.

        Of several calls in one step, and after a step that raised an error, the last one counts.
        """
        self._take_back()
        self._arrive(optimizer)
        groups = optimizer.param_groups
        check_state(optimizer, self._steps)
        self._own.look(groups, seen=groups[0][SEEN], steps=self._steps)
        self._begun = [(g, {k: g[k] for k in self.changed if k in g}) for g in groups]
        found = self.factors(optimizer, spheres)
        if groups[0][SEEN] > groups[0][STEPS] and not self._warned:
            self._warned = True
            warnings.warn(
                f"fixnorm: the training goes on after the {groups[0][STEPS]} steps that its "
                "learning rate was made for: give attach(optimizer, lr='auto', steps=…) all of "
                "them, counted in optimizer steps",
                stacklevel=4,
            )
        for group, factor in zip(groups, found, strict=True):
            group["lr"] = group["lr"] * factor

    def after(self) -> None:
        """The step is done: give every group its own lr back."""
        for group, own in self._begun:
            group["lr"] = own["lr"]
        self._begun = []

    def _arrive(self, optimizer: Optimizer) -> None:  # noqa: B027 - nor leave anything behind
        """Take in what an earlier step has left on its way."""

    def _take_back(self) -> None:
        """As if a step that has not come to its end had not begun."""
        for group, own in self._begun:
            group |= own
        self._begun = []

    def _follow_saves(self, optimizer: Optimizer) -> Iterator[Callable[[], None]]:
        """What is saved has all that has arrived, and the own lr, also after a step that failed."""
        owner = weakref.ref(optimizer)

        def before(_: Optimizer) -> None:
            this = owner()
            if this is not None and not self._begun:
                self._arrive(this)

        def after(_: Optimizer, saved: dict[str, Any]) -> None:
            for group, begun in zip(saved["param_groups"], self._begun, strict=False):
                group["lr"] = begun[1]["lr"]

        # timm's Lookahead takes no hooks of this kind, and leaves its state to what it wraps
        inner = getattr(optimizer, "_base_optimizer", optimizer)
        yield inner.register_state_dict_pre_hook(before).remove
        yield inner.register_state_dict_post_hook(after).remove


def _check(optimizer: Optimizer, steps: int | None) -> int:
    """Refuse a training of no length, and a state of another one."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(
            "lr='auto' needs steps, the number of optimizer steps of the whole training (at least "
            f"1) but got {steps!r}: attach(optimizer, lr='auto', steps=epochs * len(loader))"
        )
    if any(STEPS in group for group in optimizer.param_groups):
        check_state(optimizer, steps)
    return steps


def check_state(optimizer: Optimizer, steps: int) -> None:
    """Refuse a state, loaded before or since, that is not of this training."""
    group = optimizer.param_groups[0]
    if STEPS not in group:
        raise ValueError(
            "lr='auto' but the loaded state is of a training with a learning rate of its own "
            f"({float(group['lr']):g}): load it before attach and set the lr of every group to 1.0"
        )
    if group[STEPS] != steps:
        raise ValueError(
            f"lr='auto' was given steps={steps} but the optimizer's state is of a training "
            f"of {group[STEPS]}: give the same number"
        )


def forget(optimizer: Optimizer) -> None:
    """Another training begins with the same optimizer."""
    for group in optimizer.param_groups:
        for key in (STEPS, SEEN, MEAN, PART):
            group.pop(key, None)


def tell_unused_state(optimizer: Optimizer) -> bool:
    """Warn of a state with ``lr="auto"`` where an optimizer is attached without it."""
    steps = optimizer.param_groups[0].get(STEPS)
    if steps is not None:
        warnings.warn(
            "fixnorm: the optimizer's state is of a training with lr='auto', and its lr of "
            f"{float(optimizer.param_groups[0]['lr']):g} only a factor: attach(optimizer, "
            f"lr='auto', steps={steps}), or give it an lr and take {STEPS!r} out of its groups",
            stacklevel=4,
        )
    return steps is not None
