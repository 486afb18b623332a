"""The watchdog: what a careful user of the hook would check, checked for everyone.

Three things go wrong without a word otherwise: steps that the hook does not see, weights that
should be fixed and are in no fixed group, and fixed weights that something else changes. Each is
warned of once, in one line. Looking brings values to the host, so it is done when numbers are asked
for, and every 1,000 steps; what is looked at was measured on the device, before a step.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fixnorm.norm import joint_norm
from fixnorm.spheres import Member, unknown_copies

__all__ = ["Watch", "Watched"]

_EVERY = 1000
# Relative; far above rounding and far below anything that matters.
_OFF = 1e-3
_OFF_IN_HALF = 2e-2


class Watched(Protocol):
    """Weights that keep one joint norm."""

    @property
    def weights(self) -> list[nn.Parameter]:
        """All of them."""

    @property
    def target(self) -> float:
        """The norm."""

    @property
    def members(self) -> list[Member]:
        """The groups that hold them."""


class Watch:
    """Watches the spheres of one handle."""

    def __init__(self, missing: Callable[[], Sequence[str]]) -> None:
        """``missing`` tells the weights that should be in a fixed group and are not."""
        self._missing = missing
        self._said: set[str] = set()
        self._steps = 0
        self._measure_until = 2  # before the first step, and after it
        self._off: dict[Any, Tensor] = {}
        self._backwards = 0
        self._counter: Any = None

    def count_backwards(self, weight: nn.Parameter) -> None:
        """Notice gradients that no step follows, by one weight that gets them."""
        own = weakref.ref(self)

        def arrived(_: Tensor) -> None:
            watch = own()
            if watch is not None:
                watch._arrived()

        if weight.is_leaf and weight.requires_grad:
            self._counter = weight.register_post_accumulate_grad_hook(arrived)

    def remove(self) -> None:
        """Stop counting backward passes."""
        if self._counter is not None:
            self._counter.remove()

    def before_step(self, spheres: Callable[[], Mapping[Any, Watched]]) -> None:
        """Measure, where it is due: the norm at the start of a step is the target."""
        self._steps += 1
        if self._steps % _EVERY == 0:
            self.look(spheres().values())
        if self._steps <= self._measure_until or self._steps % _EVERY == 0:
            self._measure(spheres())

    def after_step(self) -> None:
        """The hook has run."""
        self._backwards = 0

    def look_now(self, spheres: Mapping[Any, Watched]) -> None:
        """Look at what was measured, at the norms of now, and at the next step again."""
        self._measure(spheres)
        self.look(spheres.values())
        self._measure_until = self._steps + 1

    def look(self, spheres: Iterable[Watched]) -> None:
        """Bring to the host what was measured, and say what is wrong with it."""
        for off in self._off.values():
            # NaN and −1 are weights that have diverged, which the loss tells.
            ratio = float(off)
            if abs(ratio) > 0 and ratio > -1:
                self._say(
                    "norm",
                    f"fixed weights had {1 + ratio:.4g} times their norm before a step: something "
                    "besides optimizer.step() changes them. Load weights before fixnorm.attach, "
                    "attach the optimizer that steps, and leave their norm to it",
                )
        self._off.clear()
        if missing := self._missing():
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            self._say(
                "missing",
                f"{missing[0]}{more} should keep a norm but no attached optimizer holds it in a "
                "fixed group: optimizer.add_param_group(group) for each group of "
                "fixnorm.param_groups(model, beside=optimizer)",
            )
        for sphere in spheres:
            for optimizer, group in sphere.members:
                for name in unknown_copies(optimizer, group["params"]):
                    self._say(
                        "copy",
                        f"state {name!r} of {type(optimizer).__name__} is a copy of the weights "
                        "that the rescale does not reach, so its steps are not those of the "
                        "sphere: take another optimizer",
                    )

    def _measure(self, spheres: Mapping[Any, Watched]) -> None:
        """Keep the largest deviation of each sphere on the device, 0 where it is rounding."""
        for key, sphere in spheres.items():
            weights = sphere.weights
            exact = all(weight.dtype in (torch.float32, torch.float64) for weight in weights)
            off = joint_norm(weights) / sphere.target - 1
            off = torch.where(off.abs() > (_OFF if exact else _OFF_IN_HALF), off, 0 * off)
            earlier = self._off.get(key, off)
            self._off[key] = torch.where(off.abs() > earlier.abs(), off, earlier)

    def _arrived(self) -> None:
        self._backwards += 1
        if self._backwards == _EVERY:
            self._say(
                "step",
                f"{_EVERY} backward passes without a step of the attached optimizer: what moves "
                "the weights is not its step(), so no norm is kept. Attach what steps",
            )

    def _say(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(f"fixnorm: {message}", stacklevel=2)
