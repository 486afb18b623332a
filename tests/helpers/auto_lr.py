"""A small net under ``lr="auto"``, and trainings of it to compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import fixnorm
from helpers.small_nets import ResNet

STEPS = 20


def start(*, scope: Any = "global", **options: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = ResNet()
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 8, 8))
    groups = fixnorm.param_groups(model, scope=scope)
    return model, torch.optim.SGD(groups, **({"lr": 1.0, "momentum": 0.9} | options))


def batch(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(8, 3, 8, 8, generator=generator), torch.arange(8) % 5 % 5


def backward(model: nn.Module, n: int, scale: float = 1.0) -> Tensor:
    x, y = batch(n)
    loss = nn.functional.cross_entropy(model(x), y)
    (loss * scale).backward()
    return loss


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def assert_same(ours: list[Tensor], theirs: list[Tensor], *, rtol: float = 0.0) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


def plain(steps: int = 5, **options: Any) -> list[Tensor]:
    """The weights after a plain loop."""
    model, optimizer = start(**options)
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    for n in range(steps):
        optimizer.zero_grad()
        backward(model, n)
        optimizer.step()
    return weights(model)


def train(model: nn.Module, optimizer: Any, step: Any = None, scheduler: Any = None) -> Any:
    """Five steps; the learning rates that they had."""
    handle, lrs = fixnorm.handle_of(optimizer), []
    for n in range(5):
        optimizer.zero_grad()
        backward(model, n)
        (step or optimizer.step)()
        if scheduler is not None:
            scheduler.step()
        lrs.append(handle.figures().groups[0].lr)
    return lrs
