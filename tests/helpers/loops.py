"""What every test of foreign code checks: norms each step, a falling loss, resume, fold."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.groups import TARGET, fixed_weights
from helpers.small_nets import true_norm

Loss = Callable[[nn.Module], Tensor]
"""Runs the model on its batch, backward not yet."""
Stepper = Callable[[nn.Module, Any, Loss], float]
"""One step of the foreign loop; returns the loss."""


def plain_step(model: nn.Module, optimizer: Any, loss_of: Loss) -> float:
    optimizer.zero_grad()
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def norms(optimizer: Any) -> list[float]:
    """The joint norm of each fixed group, by an independent sum in float64."""
    return [true_norm(fixed_weights(g)) for g in optimizer.param_groups if TARGET in g]


def check_training(
    start: Callable[[], tuple[nn.Module, Any]],
    loss_of: Loss,
    *,
    step: Stepper = plain_step,
    steps: int = 8,
    outputs: Callable[[nn.Module], Tensor] | None = None,
    average: Callable[[Any, bool], None] = lambda optimizer, training: None,
    falls_to: float = 0.9,
) -> nn.Module:
    """Train, save half way, resume into a fresh start, fold. ``start`` attaches the optimizer.

    ``average``: switches an optimizer between training and evaluation, where it has the two.
    """
    torch.manual_seed(0)
    model, optimizer = start()
    average(optimizer, True)
    targets = norms(optimizer)
    assert targets
    losses = []
    for i in range(steps):
        if i == steps // 2:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        losses.append(step(model, optimizer, loss_of))
        assert norms(optimizer) == pytest.approx(targets, rel=2e-6)
    assert losses[-1] < falls_to * losses[0], losses
    handle = fixnorm.handle_of(optimizer)
    assert handle is not None
    handle.figures()  # the watchdog would warn, and warnings are errors

    torch.manual_seed(1)
    resumed, again = start()
    resumed.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    for _ in range(steps // 2, steps):
        step(resumed, again, loss_of)
    for (name, p), q in zip(model.named_parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=0, msg=name)
    average(optimizer, False)
    if outputs is not None:
        model.eval()
        with torch.no_grad():
            before = outputs(model)
            fixnorm.fold(model)
            torch.testing.assert_close(outputs(model), before, rtol=1e-4, atol=1e-5)
    return model
