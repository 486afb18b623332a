"""timm: ``create_optimizer_v2`` with groups by role, attached."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from fixnorm.groups import param_groups
from fixnorm.hook import attach, check_auto
from fixnorm.methods import METHODS, Length, MethodName, Scope
from fixnorm.roles import Sample
from fixnorm.system.extras import missing

try:
    from timm import optim
except ModuleNotFoundError as error:
    raise missing("this integration", error, "train") from None

__all__ = ["create_optimizer_v2"]

_OTHER_GROUPS = ("layer_decay", "param_group_fn")
"""Arguments of timm that make groups by something else than roles."""


def create_optimizer_v2(
    model: nn.Module,
    opt: str = "sgd",
    lr: float | Literal["auto"] | None = None,
    weight_decay: float = 0.0,
    momentum: float = 0.9,
    *,
    steps: int | None = None,
    scope: Scope | None = None,
    length: Length | None = None,
    hidden_apart: bool = False,
    method: MethodName | None = None,
    sample: Sample | None = None,
    angle_every: int = 0,
    **options: Any,
) -> Optimizer:
    """timm's optimizer of that name for a converted model, attached.

    The first arguments are those of ``timm.optim.create_optimizer_v2``, and any of its options may
    follow. ``fixnorm.handle_of(optimizer)`` has the handle.

    Args:
        model: a converted model; a plain one for the methods ``algorithm1`` and ``weight-decay``.
        opt: a name of ``timm.optim.list_optimizers()``; ``lookahead_NAME`` wraps it.
        lr: learning rate; ``"auto"`` as in :func:`fixnorm.attach`, with lr 1.0 for timm's
            scheduler to multiply.
        weight_decay: λ of the methods that decay, 0 for others: ``--weight-decay 0`` in timm's
            training script.
        momentum: where the optimizer has one.
        steps: for ``lr="auto"``, epochs × updates per epoch.
        scope: as in :func:`fixnorm.param_groups`.
        length: as there.
        hidden_apart: as there, for ``opt="muon"`` and its kin.
        method: as there.
        sample: as there.
        angle_every: as in :func:`fixnorm.attach`.
        options: more of timm's.
    """
    for name in _OTHER_GROUPS:
        if options.pop(name, None) is not None:
            raise ValueError(
                f"{name} makes groups of its own but FixNorm needs those of "
                "fixnorm.param_groups(model): leave it out"
            )
    fixes = method is None or METHODS[method].fixes
    auto: Literal["auto"] | None = "auto" if lr == "auto" else None
    if auto and not fixes:
        raise ValueError(f"lr='auto' needs a norm that is fixed, and method {method!r} has none")
    check_auto(auto, steps)
    groups = param_groups(
        model,
        scope=scope,
        length=length,
        hidden_apart=hidden_apart,
        method=method,
        weight_decay=weight_decay,
        sample=sample,
    )
    optimizer: Optimizer = optim.create_optimizer_v2(
        groups,
        opt=opt,
        lr=1.0 if lr == "auto" else lr,
        weight_decay=0.0,
        momentum=momentum,
        **options,
    )
    if fixes:
        attach(optimizer, lr=auto, steps=steps, angle_every=angle_every)
    return optimizer
