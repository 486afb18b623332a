"""The hook that ends every optimizer step on the sphere."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fixnorm.angles import Snapshot, snapshot, turned
from fixnorm.groups import TARGET, Origin, origin_of
from fixnorm.norm import joint_norm, rescale_
from fixnorm.telemetry import (
    Figures,
    Step,
    WeightFigures,
    group_figures,
    head_figures,
    weight_figures,
)

__all__ = ["Handle", "attach", "handle_of"]


def attach(optimizer: Optimizer, *, angle_every: int = 0) -> Handle:
    """From now on each ``optimizer.step()`` ends with every fixed group at its target norm.

    A group's target is the norm its weights have now, unless the group already has a target, as
    it does after ``optimizer.load_state_dict``. Attach after ``fully_shard``.

    Args:
        optimizer: any optimizer built from :func:`fixnorm.param_groups`.
        angle_every: measure how far each weight turns on every n-th step; 0, the default, never.
            It needs the weights of before the step: one more copy of them during such a step.

    Returns:
        A handle: ``.figures()`` fetches the last step's figures, ``.remove()`` detaches.
    """
    optimizer = _unwrapped(optimizer)
    if optimizer in _attached:
        raise ValueError(
            "the optimizer is attached already; keep the first handle, or handle.remove() it"
        )
    if angle_every < 0:
        raise ValueError(f"angle_every cannot be negative but got {angle_every}")
    fixed = [i for i, group in enumerate(optimizer.param_groups) if TARGET in group]
    if not fixed:
        raise ValueError(
            "the optimizer has no fixed group: build it from fixnorm.param_groups(model), "
            "after fixnorm.convert(model)"
        )
    groups = [optimizer.param_groups[i] for i in fixed]
    origin = _origin(groups)
    if origin is not None:
        _check_complete(origin, groups)
    targets = [_checked_target(group) for group in groups]
    _make_step_call_hooks(optimizer)
    for group, target in zip(groups, targets, strict=True):
        group[TARGET] = target
    handle = Handle(optimizer, fixed, origin, angle_every)
    _attached[optimizer] = handle
    return handle


def handle_of(optimizer: Optimizer) -> Handle | None:
    """The handle of an attached optimizer; none if it is not attached."""
    return _attached.get(_unwrapped(optimizer))


class Handle:
    """An attached optimizer's hook."""

    def __init__(
        self, optimizer: Optimizer, fixed: list[int], origin: Origin | None, angle_every: int
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._fixed = fixed
        self._origin = origin
        self._steps: dict[int, Step] = {}
        self._angles = _Angles(angle_every)
        self._hooks = [optimizer.register_step_post_hook(self._after_step)]
        if angle_every:
            self._hooks.append(optimizer.register_step_pre_hook(self._before_step))

    def remove(self) -> None:
        """Detach: further steps leave the norms to the optimizer."""
        for hook in self._hooks:
            hook.remove()
        optimizer = self._optimizer()
        if optimizer is not None:
            _attached.pop(optimizer, None)

    def figures(self) -> Figures:
        """The last step's figures, fetched to the host.

        Where the layers are sharded this is a collective: every process must call it.
        """
        optimizer = self._optimizer()
        weights: dict[str, WeightFigures] = {}
        for i, step in self._steps.items():
            params = optimizer.param_groups[i]["params"] if optimizer is not None else []
            weights |= weight_figures(_names(params), step, self._angles.last.get(i))
        model = self._origin.model() if self._origin is not None else None
        return Figures(
            groups=tuple(group_figures(step) for step in self._steps.values()),
            weights=weights,
            heads=head_figures(model) if model is not None else {},
        )

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._angles.before({i: optimizer.param_groups[i]["params"] for i in self._fixed})

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for i in self._fixed:
            group = optimizer.param_groups[i]
            lr, target = group["lr"], group.get(TARGET)
            if target is None:
                raise ValueError(
                    f"fixed group {i} has lost its target norm: the loaded state was not saved by "
                    f"an attached optimizer. Set optimizer.param_groups[{i}]['{TARGET}'] to the "
                    "norm the weights should keep, or detach with handle.remove()"
                )
            if isinstance(lr, Tensor):
                lr = lr.detach().clone()
            elif lr == 0:
                continue  # nothing moved, and loading a checkpoint may take such a step
            self._steps[i] = Step(rescale_(group["params"], target), target, lr)
            self._angles.after(i, group["params"])


class _Angles:
    """The angles of the last step that was measured."""

    def __init__(self, every: int) -> None:
        self.last: dict[int, Tensor] = {}
        self._every = every
        self._taken = 0
        self._before: dict[int, Snapshot] = {}

    def before(self, groups: dict[int, Sequence[Tensor]]) -> None:
        self._taken += 1
        if self._taken % self._every == 0:
            self._before = {i: snapshot(weights) for i, weights in groups.items()}

    def after(self, group: int, weights: Sequence[Tensor]) -> None:
        if group in self._before:
            self.last[group] = turned(self._before.pop(group), weights)


_attached: weakref.WeakKeyDictionary[Optimizer, Handle] = weakref.WeakKeyDictionary()


def _unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer that steps: some trainers wrap it in a class without hooks."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"attach needs a torch optimizer but got {type(optimizer).__name__}")
    while not hasattr(optimizer, "_optimizer_step_post_hooks"):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            raise TypeError(
                f"{type(optimizer).__name__} takes no step hooks and wraps no optimizer"
            )
        optimizer = inner
    return optimizer


def _make_step_call_hooks(optimizer: Optimizer) -> None:
    """A wrapper that skips ``Optimizer.__init__`` has hooks that its ``step`` does not call yet.

    timm's Lookahead is one; torch would mend it at the first ``zero_grad``, if there is any.
    """
    if getattr(type(optimizer).step, "hooked", False):
        return
    if "step" in vars(optimizer):  # a scheduler has wrapped the step that calls no hooks
        raise ValueError(
            f"the step of {type(optimizer).__name__} was wrapped before it could call hooks: "
            "attach the optimizer first, then build its scheduler"
        )
    optimizer._patch_step_function()


def _origin(groups: Sequence[dict[str, Any]]) -> Origin | None:
    origins = (origin_of(p) for group in groups for p in group["params"])
    return next((origin for origin in origins if origin is not None), None)


def _names(params: Sequence[nn.Parameter]) -> list[str]:
    origins = [origin_of(p) for p in params]
    return [o.name if o is not None else f"weight {i}" for i, o in enumerate(origins)]


def _check_complete(origin: Origin, groups: Sequence[dict[str, Any]]) -> None:
    held = {id(p) for group in groups for p in group["params"]}
    missing = [name for name, p in origin.fixed_now().items() if id(p) not in held]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(
            f"the optimizer does not hold {missing[0]}{more} in a fixed group: build it from "
            "fixnorm.param_groups(model), after fixnorm.convert(model) and fully_shard"
        )


def _checked_target(group: dict[str, Any]) -> float:
    """The group's target norm: as saved, or as its weights have it now."""
    names = ", ".join(_names(group["params"])[:3])
    if group.get("weight_decay"):
        raise ValueError(
            f"weight decay {group['weight_decay']} on a fixed group ({names}, …): its norm is "
            "fixed, so set weight_decay=0 there"
        )
    saved = group[TARGET]
    target = float(joint_norm(group["params"])) if saved is None else float(saved)
    if not 0 < target < float("inf"):
        raise ValueError(
            f"the norm of a fixed group ({names}, …) is {target}: its weights need finite, "
            "non-zero values before attach"
        )
    return target
