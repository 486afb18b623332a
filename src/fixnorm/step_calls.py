"""Where the call of a step is hooked: under wrappers, with a closure, in a step of two halves."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from fixnorm.internals import call_step_hooks
from fixnorm.structure import need_optimizer

__all__ = ["after_closure", "hook_two_step", "is_two_step", "make_step_call_hooks", "stepping"]


def stepping(optimizer: Optimizer) -> Optimizer:
    """The optimizer that steps: some trainers wrap it in a class without hooks."""
    need_optimizer(optimizer, "attach", hint="; a wrapper that is none cannot be followed")
    while not _takes_hooks(optimizer):
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, Optimizer):
            raise TypeError(
                f"{type(optimizer).__name__} takes no step hooks and wraps no optimizer"
            )
        optimizer = inner
    return optimizer


def _takes_hooks(optimizer: Optimizer) -> bool:
    try:
        optimizer.register_step_post_hook(lambda *_: None).remove()
    except AttributeError:  # a wrapper that skips Optimizer.__init__
        return False
    return True


def make_step_call_hooks(optimizer: Optimizer) -> None:
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
    call_step_hooks(optimizer)


def after_closure(
    act: Callable[[], None], args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Act once the gradients of a step are there: now, or after the closure that makes them.

    Returns the arguments that the step is to be called with, if they are not those given.
    """
    if args[1:2] == (None,) or not (args[1:] or (kwargs or {}).get("closure")):
        act()
        return None
    kwargs = kwargs or {}
    closure = args[1] if args[1:] else kwargs["closure"]

    def called() -> Any:
        loss = closure()
        act()
        return loss

    if args[1:]:
        return (args[0], called, *args[2:]), kwargs
    return args, kwargs | {"closure": called}


def is_two_step(optimizer: Optimizer) -> bool:
    """Whether it is sharpness-aware: it climbs in one method and steps in another."""
    return hasattr(optimizer, "first_step") and hasattr(optimizer, "second_step")


def hook_two_step(
    optimizer: Any,
    *,
    before: Callable[[Optimizer], Any],
    between: Callable[[Optimizer], Any],
    after: Callable[[Optimizer], Any],
) -> Callable[[], None]:
    """Hook a sharpness-aware optimizer before the climb, before the step, and after it.

    Its ``step`` calls both methods; a loop that calls them by itself never comes to ``step``. So
    ``before`` and ``after`` may be called twice for one step.

    Returns what undoes it.
    """
    owner = weakref.ref(optimizer)
    last = "third_step" if hasattr(optimizer, "third_step") else "second_step"

    def hooked(
        name: str, first: Callable[[Optimizer], Any], then: Callable[[Optimizer], Any] | None
    ) -> Callable[..., Any]:
        method = getattr(type(optimizer), name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            this = owner()
            assert this is not None
            first(this)
            result = method(this, *args, **kwargs)
            if then is not None:
                then(this)
            return result

        return call

    optimizer.first_step = hooked("first_step", before, None)
    setattr(optimizer, last, hooked(last, between, after))

    def undo() -> None:
        this = owner()
        for name in ("first_step", last):
            vars(this).pop(name, None)

    return undo
