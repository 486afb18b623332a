"""A weight that a step does not move is not rescaled; the others share what it leaves."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import fixnorm
from fixnorm.norm import rescale_
from helpers.small_nets import IMAGES, ResNet, learnable_batches, true_norm


def started(scope: Any = "global", **options: Any) -> tuple[ResNet, torch.optim.SGD]:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    groups = fixnorm.param_groups(model, scope=scope)
    optimizer = torch.optim.SGD(groups, lr=0.3, momentum=0.9, **options)
    fixnorm.attach(optimizer)
    return model, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, **zero: bool) -> None:
    for x, y in learnable_batches(steps):
        optimizer.zero_grad(**zero)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def fixed(optimizer: torch.optim.Optimizer) -> list[Any]:
    return list(optimizer.param_groups[0]["params"])


@pytest.mark.tried(
    "Features of torch",
    "weights frozen after `attach`",
    "works",
    "they stay bit for bit; the others share what they leave of the norm",
)
def test_frozen_features_do_not_drift() -> None:
    model, optimizer = started()
    target = true_norm(fixed(optimizer))
    train(model, optimizer, 5)
    features = nn.Sequential(model.stem, model.norm).requires_grad_(False).eval()
    x = torch.randn(IMAGES)
    optimizer.zero_grad()
    before, weight = features(x), model.stem.weight.detach().clone()
    for _ in range(4):
        train(model, optimizer, 5)
        features.eval()
        assert torch.equal(model.stem.weight, weight)
        assert torch.equal(features(x), before)
        assert true_norm(fixed(optimizer)) == pytest.approx(target, rel=1e-6)
    assert not torch.equal(model.conv1.weight, model.conv2.weight)


def test_unfrozen_it_moves_again_and_the_joint_norm_is_as_ever() -> None:
    model, optimizer = started()
    target = true_norm(fixed(optimizer))
    model.conv1.weight.requires_grad_(False)
    train(model, optimizer, 5)
    frozen = model.conv1.weight.detach().clone()
    model.conv1.weight.requires_grad_(True)
    train(model, optimizer, 5)
    assert not torch.equal(model.conv1.weight, frozen)
    assert true_norm(fixed(optimizer)) == pytest.approx(target, rel=1e-6)


@pytest.mark.tried(
    "Models",
    "stochastic layers, mixtures of experts",
    "works",
    "a weight without a gradient stays in that step",
)
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_a_weight_without_a_gradient_in_some_steps(scope: Any) -> None:
    """As under stochastic depth or a mixture of experts."""
    model, optimizer = started(scope)
    target = true_norm([p for g in optimizer.param_groups[:-1] for p in g["params"]])
    for i, (x, y) in enumerate(learnable_batches(6)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if i % 2:
            model.conv2.weight.grad = None
        before = model.conv2.weight.detach().clone()
        optimizer.step()
        assert torch.equal(model.conv2.weight, before) == bool(i % 2)
        norm = true_norm([p for g in optimizer.param_groups[:-1] for p in g["params"]])
        assert norm == pytest.approx(target, rel=1e-6)


def test_a_frozen_weight_with_gradients_of_zero_is_not_rescaled() -> None:
    model, optimizer = started()
    train(model, optimizer, 1)
    model.stem.weight.requires_grad_(False)
    optimizer.state[model.stem.weight].pop("momentum_buffer")
    before = model.stem.weight.detach().clone()
    train(model, optimizer, 3, set_to_none=False)
    assert torch.equal(model.stem.weight, before)


def test_gradients_that_the_step_itself_clears_count() -> None:
    """Closures may compute gradients inside the step, and loops may clear them there."""
    model, optimizer = started()
    target = true_norm(fixed(optimizer))
    optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())  # after ours
    clear = torch.optim.SGD.step

    def step_and_clear(closure: Any) -> None:
        clear(optimizer, closure)

    for x, y in learnable_batches(3):

        def closure(x: Any = x, y: Any = y) -> Any:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        before = model.stem.weight.detach().clone()
        step_and_clear(closure)
        assert not torch.equal(model.stem.weight, before)
        assert true_norm(fixed(optimizer)) == pytest.approx(target, rel=1e-6)


def test_all_of_a_group_frozen_is_a_step_that_does_nothing_to_it() -> None:
    model, optimizer = started()
    for weight in fixed(optimizer):
        weight.requires_grad_(False)
    before = [weight.detach().clone() for weight in fixed(optimizer)]
    train(model, optimizer, 3)
    assert all(torch.equal(a, b) for a, b in zip(before, fixed(optimizer), strict=True))


def test_rescale_beside_weights_that_stay_by_hand() -> None:
    still, moved = torch.tensor([3.0]), torch.tensor([2.0, 0.0])
    done = rescale_([still, moved], 5.0, moved=[False, True])
    assert still.tolist() == [3.0]
    assert moved.tolist() == [4.0, 0.0]  # 5² − 3² = 4²
    assert done.factor.item() == 2.0
    assert done.norm.item() == pytest.approx(math.sqrt(13))
    full = torch.tensor([7.0])  # more than the target: nothing is left to share
    assert rescale_([full, moved], 5.0, moved=[False, True]).factor.item() == 1.0
    assert moved.tolist() == [4.0, 0.0]
