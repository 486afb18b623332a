"""Groups that join an attached optimizer, and weights that several optimizers share."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

import fixnorm
from fixnorm.groups import FIXED, SPHERE, TARGET
from helpers.small_nets import ResNet, learnable_batches, true_norm


def backbone(model: ResNet) -> list[nn.Module]:
    return [model.stem, model.norm, model.conv1, model.bn1, model.conv2, model.bn2]


def head_first(scope: Any = "global", **options: Any) -> tuple[ResNet, torch.optim.SGD]:
    """A model of which only the head is trained, for now."""
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    for module in backbone(model):
        module.requires_grad_(False)
    groups = fixnorm.param_groups(model, scope=scope)
    optimizer = torch.optim.SGD(groups, **{"lr": 0.3, "momentum": 0.9} | options)
    fixnorm.attach(optimizer)
    return model, optimizer


def train(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 4) -> None:
    for x, y in learnable_batches(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()


def weights(model: ResNet) -> list[nn.Parameter]:
    return [model.stem.weight, model.conv1.weight, model.conv2.weight, model.fc.weight]


@pytest.mark.tried(
    "Features of torch",
    "gradual unfreezing",
    "how to",
    "`for g in fixnorm.param_groups(model, beside=optimizer): optimizer.add_param_group(g)`",
)
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_groups_of_param_groups_join(scope: Any) -> None:
    model, optimizer = head_first(scope)
    train(model, optimizer)
    for module in backbone(model):
        module.requires_grad_(True)
    joining = fixnorm.param_groups(model, scope=scope, beside=optimizer)
    held = [p for group in joining for p in group["params"]]
    assert len(held) == 3 + 6  # three convolutions, three norms
    for group in joining:
        optimizer.add_param_group(group | {"lr": 0.1})
    norms = [true_norm([w]) for w in weights(model)]
    train(model, optimizer)
    if scope == "layer":
        assert [true_norm([w]) for w in weights(model)] == pytest.approx(norms, rel=1e-6)
    else:
        assert true_norm(weights(model)) == pytest.approx(math.hypot(*norms), rel=1e-6)
        assert true_norm([model.fc.weight]) != pytest.approx(norms[-1], rel=1e-6)  # one joint norm
    assert fixnorm.param_groups(model, scope=scope, beside=optimizer) == []


@pytest.mark.tried(
    "Features of torch",
    "plain groups that join (`add_param_group`)",
    "works",
    "weights that should be fixed join the joint norm",
)
def test_a_plain_group_that_holds_weights_to_be_fixed_is_adopted() -> None:
    """What Lightning's BaseFinetuning does, and most loops that unfreeze."""
    model, optimizer = head_first()
    train(model, optimizer)
    parts = nn.ModuleList(backbone(model)).requires_grad_(True)
    optimizer.add_param_group({"params": list(parts.parameters()), "lr": 0.1})
    target, gamma = true_norm(weights(model)), model.norm.weight.detach().clone()
    train(model, optimizer)
    group = optimizer.param_groups[-1]
    assert group[FIXED] == [0, 3, 6]
    assert group[TARGET] == optimizer.param_groups[0][TARGET] == pytest.approx(target, rel=1e-6)
    assert true_norm(weights(model)) == pytest.approx(target, rel=1e-6)
    assert not torch.equal(model.norm.weight, gamma)
    handle = fixnorm.handle_of(optimizer)
    assert handle is not None
    figures = handle.figures()
    assert [round(group.lr, 3) for group in figures.groups] == [0.3, 0.1]
    assert set(figures.weights) == {"fc.weight", "stem.weight", "conv1.weight", "conv2.weight"}


def test_an_adopted_group_is_saved_and_resumed() -> None:
    def unfrozen() -> tuple[ResNet, torch.optim.SGD]:
        torch.manual_seed(0)
        model, optimizer = head_first()
        parts = nn.ModuleList(backbone(model)).requires_grad_(True)
        optimizer.add_param_group({"params": list(parts.parameters())})
        return model, optimizer

    whole, optimizer = unfrozen()
    train(whole, optimizer)
    saved = copy.deepcopy((whole.state_dict(), optimizer.state_dict()))
    train(whole, optimizer)
    resumed, optimizer = unfrozen()
    resumed.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    train(resumed, optimizer)
    for p, q in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q)


def test_an_adopted_group_loses_its_weight_decay_and_says_so() -> None:
    model, optimizer = head_first(weight_decay=0.01)
    model.stem.requires_grad_(True)
    optimizer.add_param_group({"params": [model.stem.weight]})
    with pytest.warns(UserWarning, match=r"with stem\.weight joined with weight decay 0\.01: set"):
        train(model, optimizer)
    assert optimizer.param_groups[-1]["weight_decay"] == 0.0


def test_a_plain_group_beside_norms_of_single_layers_is_refused() -> None:
    model, optimizer = head_first("layer")
    model.stem.requires_grad_(True)
    optimizer.add_param_group({"params": [model.stem.weight]})
    with pytest.raises(ValueError, match=r"holds stem\.weight, whose norm is to be kept by itself"):
        train(model, optimizer)


def test_a_plain_group_of_other_parameters_is_left_alone() -> None:
    model, optimizer = head_first()
    model.norm.requires_grad_(True)
    optimizer.add_param_group({"params": list(model.norm.parameters())})
    train(model, optimizer)
    assert TARGET not in optimizer.param_groups[-1]


def split(scope: Any = "global") -> tuple[ResNet, torch.optim.Optimizer, torch.optim.Optimizer]:
    """Muon's way: one optimizer for the convolutions, another for the rest."""
    torch.manual_seed(0)
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    if scope == "layer":
        *convs, head, rest = fixnorm.param_groups(model, scope="layer")
        return model, torch.optim.SGD(convs, lr=0.3), torch.optim.AdamW([head, rest], lr=0.01)
    fixed, rest = fixnorm.param_groups(model)
    *convs, head = fixed["params"]
    first = torch.optim.SGD([{**fixed, "params": convs}], lr=0.3, momentum=0.9)
    return model, first, torch.optim.AdamW([{**fixed, "params": [head]}, rest], lr=0.01)


@pytest.mark.tried(
    "Optimizers",
    "several optimizers for one model (Muon + AdamW)",
    "how to",
    "`fixnorm.attach(first, second)`",
)
@pytest.mark.parametrize("first", [0, 1])
def test_two_optimizers_share_one_joint_norm_whoever_steps_first(first: int) -> None:
    model, *optimizers = split()
    norms = [true_norm([w]) for w in weights(model)]
    handle = fixnorm.attach(*optimizers)
    assert fixnorm.handle_of(optimizers[0]) is fixnorm.handle_of(optimizers[1]) is handle
    order = optimizers[first:] + optimizers[:first]
    for x, y in learnable_batches(6):
        for optimizer in order:
            optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for optimizer in order:
            optimizer.step()
            assert true_norm(weights(model)) == pytest.approx(math.hypot(*norms), rel=1e-6)
    assert true_norm([model.fc.weight]) != pytest.approx(norms[-1], rel=1e-4)
    assert len(handle.figures().groups) == 2
    handle.remove()
    assert fixnorm.handle_of(optimizers[1]) is None


def test_two_halves_of_one_sgd_are_that_sgd() -> None:
    """To first order: the second half's gradient is taken before the first half's rescale."""
    torch.manual_seed(0)
    whole = ResNet()
    fixnorm.convert(whole, alpha=1.0)
    one = torch.optim.SGD(fixnorm.param_groups(whole), lr=0.05)
    fixnorm.attach(one)
    torch.manual_seed(0)
    halves = ResNet()
    fixnorm.convert(halves, alpha=1.0)
    fixed, rest = fixnorm.param_groups(halves)
    a = torch.optim.SGD([{**fixed, "params": fixed["params"][:2]}], lr=0.05)
    b = torch.optim.SGD([{**fixed, "params": fixed["params"][2:]}, rest], lr=0.05)
    fixnorm.attach(a, b)
    train(whole, one)
    train(halves, a, b)
    for p, q in zip(whole.parameters(), halves.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)


def test_optimizers_of_single_layers_may_share_a_handle() -> None:
    model, *optimizers = split("layer")
    norms = [true_norm([w]) for w in weights(model)]
    fixnorm.attach(*optimizers)
    train(model, *optimizers)
    assert [true_norm([w]) for w in weights(model)] == pytest.approx(norms, rel=1e-6)


def test_one_of_two_optimizers_alone_is_refused_with_the_way_out() -> None:
    model, first, _ = split()
    with pytest.raises(ValueError, match=r"attach both: fixnorm\.attach\(optimizer, other\)"):
        fixnorm.attach(first)
    assert model is not None  # the optimizer alone does not keep it


def test_one_norm_each_by_another_number() -> None:
    model, *optimizers = split()
    optimizers[1].param_groups[0][SPHERE] = 1
    norms = [true_norm([w]) for w in weights(model)]
    fixnorm.attach(*optimizers)
    train(model, *optimizers)
    assert true_norm([model.fc.weight]) == pytest.approx(norms[-1], rel=1e-6)
    assert true_norm(weights(model)[:3]) == pytest.approx(math.hypot(*norms[:3]), rel=1e-6)


def test_different_targets_in_one_sphere_are_refused() -> None:
    _, *optimizers = split()
    optimizers[0].param_groups[0][TARGET] = 3.0
    optimizers[1].param_groups[0][TARGET] = 4.0
    with pytest.raises(ValueError, match=r"have different targets \(3, 4\): load the states"):
        fixnorm.attach(*optimizers)


def test_two_models_in_one_optimizer_keep_a_norm_each() -> None:
    models = [ResNet(), ResNet()]
    for model in models:
        fixnorm.convert(model, alpha=1.0)
    groups = [group for model in models for group in fixnorm.param_groups(model)]
    optimizer = torch.optim.SGD(groups, lr=0.3)
    norms = [true_norm(weights(model)) for model in models]
    fixnorm.attach(optimizer)
    for x, y in learnable_batches(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(models[0](x) + models[1](x), y).backward()
        optimizer.step()
    assert [true_norm(weights(model)) for model in models] == pytest.approx(norms, rel=1e-6)
