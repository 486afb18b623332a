"""lr="auto": the rule is its equation, whatever the loop does around it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm import sphere_rule
from fixnorm.integrations import scalars
from helpers.small_nets import ResNet

STEPS = 20


def start(*, scope: Any = "global", momentum: float = 0.9, **options: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = ResNet()
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 8, 8))
    groups = fixnorm.param_groups(model, scope=scope)
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=momentum, **options)
    return model, optimizer


def batch(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(8, 3, 8, 8, generator=generator), torch.arange(8) % 5 % 5


def backward(model: nn.Module, n: int, scale: float = 1.0) -> Tensor:
    x, y = batch(n)
    loss = nn.functional.cross_entropy(model(x), y)
    (loss * scale).backward()
    return loss


def by_hand(optimizer: Any, seen: list[float]) -> float:
    """The equation, in float64, from the gradients that are there now."""
    fixed = [g for g in optimizer.param_groups if "fixnorm_target" in g]
    radius = math.hypot(*(g["fixnorm_target"] for g in fixed))
    square = sum(float(p.grad.double().square().sum()) for g in fixed for p in g["params"])
    seen.append(radius**2 * square)
    group = fixed[0]
    once = (1 - group["momentum"]) / (1 - group["dampening"]) if group["momentum"] else 1.0
    rms = math.sqrt(sum(seen) / len(seen))
    return sphere_rule.C * once * radius**2 / (STEPS**sphere_rule.P * rms)


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


@pytest.mark.parametrize(
    "options",
    [
        {"nesterov": True},
        {"scope": "layer"},
        {"momentum": 0.0, "dampening": 0.5},
        {"momentum": 0.5},
        {"dampening": 0.9},
    ],
    ids=str,
)
def test_it_is_the_equation(options: dict[str, Any]) -> None:
    model, optimizer = start(**options)
    optimizer.param_groups[-1]["lr"] = 0.5  # a group's own ratio is kept
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    twin_model, twin = start(**options)
    fixnorm.attach(twin)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    seen: list[float] = []
    for n in range(5):
        own = [group["lr"] for group in optimizer.param_groups]
        for net, one in ((model, optimizer), (twin_model, twin)):
            one.zero_grad()
            backward(net, n)
        factor = by_hand(twin, seen)
        for group, lr in zip(twin.param_groups, own, strict=True):
            group["lr"] = lr * factor
        optimizer.step()
        twin.step()
        assert [group["lr"] for group in optimizer.param_groups] == own
        figures = handle.figures()
        assert figures.groups[0].lr == pytest.approx(own[0] * factor, rel=1e-6)
        assert figures.rule is not None
        assert (figures.rule.steps, figures.rule.seen) == (STEPS, n + 1)
        assert figures.rule.gradient == pytest.approx(math.sqrt(sum(seen) / len(seen)), rel=1e-6)
        assert scalars(figures, prefix="")["lr"] == figures.groups[0].lr
        scheduler.step()
        assert_same(weights(model), weights(twin_model), rtol=1e-5)
    assert own[0] == 2 * own[-1] < 1


def test_a_closure_makes_no_difference() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)

    def closure(n: int) -> Tensor:
        optimizer.zero_grad()
        return backward(model, n)

    for n in range(5):
        if n % 2:
            optimizer.step(lambda n=n: closure(n))
        else:
            optimizer.step(closure=lambda n=n: closure(n))
    assert_same(weights(model), plain())


@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_makes_no_difference(fused: bool) -> None:
    model, optimizer = start(fused=fused)
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    for n in range(5):
        optimizer.zero_grad()
        x, y = batch(n)
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        if n == 1:  # an overflow: skipped, and no part of the mean
            kept = weights(model)
            (fixed, *_) = optimizer.param_groups[0]["params"]
            fixed.grad[0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
            assert_same(weights(model), kept)
            optimizer.zero_grad()
            scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    buffers_moved_once_more = weights(model)
    assert_same(buffers_moved_once_more, plain(fused=fused), rtol=1e-5)


def test_a_resumed_training_is_the_whole_one(tmp_path: Any) -> None:
    model, optimizer = start()
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    for n in range(3):
        optimizer.zero_grad()
        backward(model, n)
        optimizer.step()
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "state.pt")
    handle.remove()

    for attach_first in (False, True):
        again, resumed = start()
        if attach_first:
            fixnorm.attach(resumed, lr="auto", steps=STEPS)
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        again.load_state_dict(state[0])
        resumed.load_state_dict(copy.deepcopy(state[1]))
        if not attach_first:
            fixnorm.attach(resumed, lr="auto", steps=STEPS)
        for n in range(3, 5):
            resumed.zero_grad()
            backward(again, n)
            resumed.step()
        assert_same(weights(again), plain())


def test_off_the_cpu_a_norm_is_used_one_step_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the gradients were elsewhere: the first step has its own, the others the last one's."""
    monkeypatch.setattr(sphere_rule, "_at_hand", lambda norm: False)
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    seen: list[float] = []
    for n in range(4):
        optimizer.zero_grad()
        backward(model, n)
        by_hand(optimizer, seen)
        optimizer.step()
        known = seen[: max(n, 1)]
        assert optimizer.param_groups[0][sphere_rule.SEEN] == len(known)
        mean = sum(known) / len(known)
        assert optimizer.param_groups[0][sphere_rule.MEAN] == pytest.approx(mean, rel=1e-5)
    optimizer.state_dict()  # a checkpoint has them all
    assert optimizer.param_groups[0][sphere_rule.SEEN] == 4


def test_a_step_that_fails_leaves_the_lr_alone() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    backward(model, 0)
    momentum = optimizer.param_groups[0].pop("momentum")
    with pytest.raises(KeyError, match="momentum"):
        optimizer.step()
    optimizer.param_groups[0]["momentum"] = momentum
    optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == [1.0] * len(optimizer.param_groups)


def test_it_warns_once_when_there_are_more_steps_than_said() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=2)
    backward(model, 0)
    for n in range(4):
        if n == 2:
            with pytest.warns(UserWarning, match="goes on after the 2 steps"):
                optimizer.step()
        else:
            optimizer.step()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": "auto"}, r"lr='auto' needs steps, .* but got None"),
        ({"lr": "auto", "steps": 0}, r"at least 1\) but got 0"),
        ({"lr": "auto", "steps": 2.5}, "but got 2.5"),
        ({"lr": 0.1}, "lr must be 'auto', with steps, or left out but got lr=0.1"),
        ({"steps": 10}, "or left out but got lr=None, steps=10"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    _, optimizer = start()
    with pytest.raises(ValueError, match=message):
        fixnorm.attach(optimizer, **arguments)
    fixnorm.attach(optimizer)  # nothing was left behind


def test_it_is_for_sgd_with_lr_one() -> None:
    model, optimizer = start()
    groups = fixnorm.param_groups(model)
    for other in (torch.optim.AdamW(groups, weight_decay=0.0), torch.optim.RMSprop(groups)):
        name = type(other).__name__
        with pytest.raises(ValueError, match=rf"lr='auto' is for SGD, .* those of {name} are not"):
            fixnorm.attach(other, lr="auto", steps=STEPS)
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    with pytest.raises(ValueError, match=r"own lr, which is 0.001 .* build it with lr=1.0"):
        fixnorm.attach(optimizer, lr="auto", steps=STEPS)


def test_the_state_of_another_length_is_refused() -> None:
    _, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS).remove()
    with pytest.raises(ValueError, match=r"steps=5 but .* a training of 20: give the same"):
        fixnorm.attach(optimizer, lr="auto", steps=5)
