"""Groups and the hook: what they hold, what they refuse, and what they report."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

import fixnorm
from fixnorm.groups import TARGET
from helpers.small_nets import MobileNet, ResNet, learnable_batches, true_norm


def converted(alpha: float = 1.0) -> ResNet:
    model = ResNet()
    fixnorm.convert(model, alpha=alpha)
    return model


def sgd(groups: list[dict[str, Any]], **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(groups, **{"lr": 0.1, "momentum": 0.9} | options)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for x, y in learnable_batches(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_groups_hold_every_trainable_parameter_once() -> None:
    model = MobileNet(tricks=True)
    fixnorm.convert(model, alpha=1.0)
    model.stem[1].bias.requires_grad_(False)
    groups = fixnorm.param_groups(model)
    assert [len(group["params"]) for group in groups] == [7, 13]
    assert groups[0][TARGET] is None
    assert TARGET not in groups[1]
    assert [group["weight_decay"] for group in groups] == [0.0, 0.0]
    held = [id(p) for group in groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters() if p.requires_grad)


def test_layer_scope_is_one_group_a_weight() -> None:
    model = converted()
    groups = fixnorm.param_groups(model, scope="layer")
    assert [len(group["params"]) for group in groups] == [1, 1, 1, 1, 8]
    optimizer = sgd(groups)
    fixnorm.attach(optimizer)
    norms = [true_norm(group["params"]) for group in groups[:4]]
    train(model, optimizer, 5)
    after = [true_norm(group["params"]) for group in groups[:4]]
    assert after == pytest.approx(norms, rel=1e-6)


def test_global_scope_keeps_the_joint_norm_and_lets_shares_move() -> None:
    model = converted()
    optimizer = sgd(fixnorm.param_groups(model))
    fixed = optimizer.param_groups[0]["params"]
    norms = [true_norm([p]) for p in fixed]
    fixnorm.attach(optimizer)
    train(model, optimizer, 5)
    assert true_norm(fixed) == pytest.approx(math.hypot(*norms), rel=1e-6)
    assert any(abs(true_norm([p]) / n - 1) > 1e-3 for p, n in zip(fixed, norms, strict=True))


def test_algorithm1_decays_the_head_and_weight_decay_decays_all_weights() -> None:
    model = MobileNet(tricks=True)
    names = {id(p): n for n, p in model.named_parameters()}
    fixed, decayed, rest = fixnorm.param_groups(model, method="algorithm1", weight_decay=0.01)
    assert [names[id(p)] for p in decayed["params"]] == [
        "block.6.reduce.weight",
        "block.6.expand.weight",
        "classifier.weight",
    ]
    assert (fixed["weight_decay"], decayed["weight_decay"], rest["weight_decay"]) == (0, 0.01, 0)
    assert all(p.ndim == 1 for p in rest["params"])
    decayed, rest = fixnorm.param_groups(model, method="weight-decay", weight_decay=0.01)
    assert len(decayed["params"]) == 7
    assert all(p.ndim == 1 for p in rest["params"])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"scope": "channel"}, "scope must be 'global', 'layer' or 'matrix' but got 'channel'"),
        ({"method": "sgd"}, "method must be one of fixnorm, wn-fc, algorithm1, weight-decay"),
        (
            {"weight_decay": 1e-4},
            "method 'fixnorm' has no weight decay but got weight_decay=0.0001",
        ),
        ({"weight_decay": -1}, "weight_decay must be a number of 0 or more but got -1"),
        ({"method": "wn-fc"}, "converted for method 'fixnorm' but param_groups got 'wn-fc'"),
    ],
)
def test_param_groups_refuses(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        fixnorm.param_groups(converted(), **arguments)


def test_param_groups_of_an_unconverted_or_frozen_model() -> None:
    with pytest.raises(ValueError, match=r"not converted: call fixnorm\.convert"):
        fixnorm.param_groups(ResNet())
    with pytest.raises(ValueError, match=r"needs a converted model: call .*alpha=\.\.\."):
        fixnorm.param_groups(ResNet(), method="fixnorm")
    model = converted().requires_grad_(False)
    model.fc.bias.requires_grad_(True)
    with pytest.raises(ValueError, match="no trainable weight of the model is fixed"):
        fixnorm.param_groups(model)


class Whole(nn.Module):
    """What holds a converted model, and more: a Lightning module, say."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.model, self.more, self.frozen = ResNet(), nn.Linear(3, 2), nn.Linear(2, 2)
        fixnorm.convert(self.model, **({"alpha": 1.0} | options))
        self.frozen.requires_grad_(False)
        self.average = copy.deepcopy(self.model).requires_grad_(False)


def test_groups_of_what_holds_a_converted_model() -> None:
    whole = Whole()
    fixed, rest, others = fixnorm.param_groups(whole)
    alone = fixnorm.param_groups(whole.model)
    assert [list(map(id, g["params"])) for g in (fixed, rest)] == [
        list(map(id, g["params"])) for g in alone
    ]
    assert others["params"] == [whole.more.weight, whole.more.bias]
    optimizer = torch.optim.SGD([fixed, rest, others], lr=0.1)
    assert fixnorm.attach(optimizer).figures().heads["fc"]
    assert fixnorm.param_groups(whole, beside=optimizer) == []
    decaying = Whole(method="algorithm1", alpha=None)
    groups = fixnorm.param_groups(decaying, weight_decay=0.1)
    assert [group["weight_decay"] for group in groups] == [0.0, 0.1, 0.0, 0.1, 0.0]
    assert groups[3]["params"] == [decaying.more.weight]
    whole.average.requires_grad_(True)
    with pytest.raises(ValueError, match=r"2 converted parts \(model, average\), each with a norm"):
        fixnorm.param_groups(whole)


def test_attach_refuses_an_optimizer_built_before_convert() -> None:
    model = ResNet()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    early = sgd(fixnorm.param_groups(model, method="algorithm1"))
    fixnorm.convert(model, alpha=1.0)
    with pytest.raises(ValueError, match=r"no fixed group: build it from fixnorm\.param_groups"):
        fixnorm.attach(plain)
    with pytest.raises(ValueError, match=r"does not hold fc\.weight in a fixed group"):
        fixnorm.attach(early)


def test_attach_refuses_twice_until_removed() -> None:
    optimizer = sgd(fixnorm.param_groups(converted()))
    handle = fixnorm.attach(optimizer)
    with pytest.raises(ValueError, match="attached already; keep the first handle"):
        fixnorm.attach(optimizer)
    handle.remove()
    fixnorm.attach(optimizer)


def test_attach_refuses_weight_decay_on_a_fixed_group() -> None:
    groups = fixnorm.param_groups(converted())
    groups[0]["weight_decay"] = 1e-4
    with pytest.raises(ValueError, match=r"weight decay 0\.0001 on a fixed group \(stem\.weight"):
        fixnorm.attach(sgd(groups))


def test_attach_refuses_a_zero_or_broken_norm() -> None:
    for value, shown in ((0.0, "0.0"), (math.nan, "nan")):
        model = converted()
        nn.init.constant_(model.conv1.weight, value)
        groups = fixnorm.param_groups(model, scope="layer")
        with pytest.raises(ValueError, match=rf"fixed group \(conv1\.weight\) is {shown}"):
            fixnorm.attach(sgd(groups))
        assert all(group[TARGET] is None for group in groups if TARGET in group)


def test_attach_refuses_a_missing_fixed_parameter() -> None:
    model = converted()
    groups = fixnorm.param_groups(model)
    groups[0]["params"].pop(1)
    with pytest.raises(ValueError, match=r"does not hold conv1\.weight in a fixed group"):
        fixnorm.attach(sgd(groups))


def test_attach_refuses_what_is_no_optimizer() -> None:
    with pytest.raises(TypeError, match="attach needs a torch optimizer but got ResNet"):
        fixnorm.attach(ResNet())
    with pytest.raises(ValueError, match="angle_every must be a whole number ≥ 0 but got -1"):
        fixnorm.attach(sgd(fixnorm.param_groups(converted())), angle_every=-1)


def test_a_wrapper_without_hooks_is_looked_through() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

    inner = sgd(fixnorm.param_groups(converted()))
    fixnorm.attach(Wrapper(inner))
    with pytest.raises(ValueError, match="attached already"):
        fixnorm.attach(inner)


def test_removed_hook_rescales_no_more() -> None:
    model = converted()
    optimizer = sgd(fixnorm.param_groups(model))
    fixed = optimizer.param_groups[0]["params"]
    before = true_norm(fixed)
    fixnorm.attach(optimizer).remove()
    train(model, optimizer, 3)
    assert abs(true_norm(fixed) / before - 1) > 1e-4


@pytest.mark.parametrize("lr", [0.0, torch.tensor(0.0)])
def test_lr_zero_leaves_every_parameter_bit_for_bit(lr: Any) -> None:
    model = converted()
    optimizer = sgd(fixnorm.param_groups(model), lr=lr, foreach=False)
    fixnorm.attach(optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    train(model, optimizer, 2)
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_figures_by_hand() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 4, bias=False))
    fixnorm.convert(model, alpha=1.0, head="1")
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 0.0]]))
        model[1].weight.copy_(torch.tensor([[0.0, 4.0]] + [[0.0, 0.0]] * 3))
        model[1].g.fill_(2.5)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.5)
    handle = fixnorm.attach(optimizer, angle_every=1)
    model[0].weight.grad = torch.tensor([[0.0, -6.0], [0.0, 0.0]])  # 0: (3, 0) → (3, 3)
    model[1].weight.grad = torch.tensor([[0.0, -2.0]] + [[0.0, 0.0]] * 3)  # 1: (0, 4) → (0, 5)
    optimizer.step()
    figures = handle.figures()
    (group,) = figures.groups
    norm = math.sqrt(9 + 9 + 25)
    assert group.target == 5.0
    assert group.norm == pytest.approx(norm)
    assert group.factor == pytest.approx(5 / norm)
    assert group.lr == 0.5
    assert group.effective_lr == pytest.approx(0.5 / 25)
    assert group.implied_decay == pytest.approx((norm / 5 - 1) / 0.5)
    assert figures.weights["0.weight"].share == pytest.approx(18 / 43)
    assert figures.weights["1.weight"].share == pytest.approx(25 / 43)
    assert figures.weights["0.weight"].angle == pytest.approx(math.pi / 4, rel=1e-6)
    assert figures.weights["1.weight"].angle == pytest.approx(0.0, abs=1e-6)
    assert figures.heads["1"].cap == 2.0
    assert figures.heads["1"].g == 2.5
    assert figures.heads["1"].saturated
    assert not figures.heads["0"].saturated
    assert figures.heads["0"].cap is None
    assert figures.to_dict()["heads"]["1"]["saturated"] is True


def test_implied_decay_is_the_decoupled_decay_that_gives_the_same_weights() -> None:
    model = converted()
    optimizer = sgd(fixnorm.param_groups(model))
    handle = fixnorm.attach(optimizer)
    train(model, optimizer, 3)
    before = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
    train(model, optimizer, 1)
    group = handle.figures().groups[0]
    for old, p in zip(before, optimizer.param_groups[0]["params"], strict=True):
        velocity = optimizer.state[p]["momentum_buffer"]
        moved = (old - group.lr * velocity) / (1 + group.lr * group.implied_decay)
        torch.testing.assert_close(p.detach(), moved, rtol=1e-5, atol=1e-7)


def test_angles_are_measured_on_every_nth_step_only() -> None:
    model = converted()
    optimizer = sgd(fixnorm.param_groups(model))
    handle = fixnorm.attach(optimizer, angle_every=2)
    train(model, optimizer, 1)
    assert handle.figures().weights["stem.weight"].angle is None
    before = model.stem.weight.detach().clone()
    train(model, optimizer, 1)
    angle = handle.figures().weights["stem.weight"].angle
    after = model.stem.weight.detach()
    cosine = (before * after).sum().double() / (before.double().norm() * after.double().norm())
    assert angle == pytest.approx(math.acos(cosine.item()), rel=1e-2)
    train(model, optimizer, 1)
    assert handle.figures().weights["stem.weight"].angle == angle


def test_figures_before_any_step_have_heads_only() -> None:
    model = converted(alpha=0.3)
    optimizer = sgd(fixnorm.param_groups(model))
    handle = fixnorm.attach(optimizer)
    figures = handle.figures()
    assert figures.groups == ()
    assert figures.weights == {}
    assert figures.heads["fc"].saturated


def test_hand_made_groups_need_no_model() -> None:
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = torch.optim.SGD([{"params": [weight], TARGET: None}], lr=1.0)
    handle = fixnorm.attach(optimizer)
    weight.grad = torch.tensor([[-3.0, -4.0]])
    optimizer.step()
    assert weight.tolist() == [[pytest.approx(3.0), pytest.approx(4.0)]]
    assert handle.figures().weights["weight 0"].share == pytest.approx(1.0)


def test_deepcopied_model_trains_with_groups_of_its_own() -> None:
    twin = copy.deepcopy(converted())
    optimizer = sgd(fixnorm.param_groups(twin))
    fixnorm.attach(optimizer)
    before = true_norm(optimizer.param_groups[0]["params"])
    train(twin, optimizer, 3)
    assert true_norm(optimizer.param_groups[0]["params"]) == pytest.approx(before, rel=1e-6)


TIMM = ["sgdp", "adamp", "lamb", "lars", "nadamw", "lion", "adopt", "lookahead_sgd", "madgradw"]


@pytest.mark.tried(
    "Optimizers",
    "SGDP, AdamP, LAMB, LARS, NAdamW, Lion, ADOPT, MADGRAD (timm)",
    "works",
    "MADGRAD: the norm is kept, its own copy of the weights is not",
)
@pytest.mark.parametrize("name", TIMM)
def test_timm_optimizers(name: str) -> None:
    from timm.optim import create_optimizer_v2

    model = converted()
    groups = fixnorm.param_groups(model)
    optimizer = create_optimizer_v2(groups, opt=name, lr=0.01, weight_decay=0.0, momentum=0.9)
    fixnorm.attach(optimizer)
    fixed = optimizer.param_groups[0]["params"]
    before, start = true_norm(fixed), model.stem.weight.detach().clone()
    for _ in range(4):
        train(model, optimizer, 2)
        assert true_norm(fixed) == pytest.approx(before, rel=1e-6)
    assert not torch.equal(model.stem.weight, start)
