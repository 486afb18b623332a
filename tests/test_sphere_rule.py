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
from helpers.auto_lr import STEPS, assert_same, backward, batch, plain, start, train, weights


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


@pytest.mark.parametrize("scaled", [False, True])
def test_clipping_shortens_steps_and_raises_no_lr(scaled: bool) -> None:
    """Shown before it, the gradients make the lr; after it they are smaller, and it is larger."""
    (free,) = train_clipped(False, max_norm=math.inf, scaled=scaled)
    (looked,) = train_clipped(True, max_norm=0.01, scaled=scaled)
    (clipped,) = train_clipped(False, max_norm=0.01, scaled=scaled)
    assert looked == pytest.approx(free, rel=1e-5)
    assert clipped > 5 * free


def test_a_look_is_for_one_step() -> None:
    """What was shown of one step is not taken for the next, of which nothing is shown."""
    both, first = (train_clipped(*looks, max_norm=0.01) for looks in ((True, True), (True, False)))
    assert first[0] == both[0]
    assert first[1] == pytest.approx(both[0] * 2**0.5, rel=1e-2)  # half of the mean square is left
    assert both[1] == pytest.approx(both[0], rel=0.3)
    _, optimizer = start(lr=0.1)
    fixnorm.attach(optimizer).before_clipping()  # without lr="auto" there is nothing to show


def train_clipped(*looks: bool, max_norm: float, scaled: bool = False) -> list[float]:
    """The learning rates of so many steps with clipped gradients."""
    model, optimizer = start()
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
    lrs = []
    for n, look in enumerate(looks):
        optimizer.zero_grad()
        x, y = batch(n)
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        scaler.unscale_(optimizer)
        if look:
            handle.before_clipping()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        lrs.append(handle.figures().groups[0].lr)
    return lrs


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


@pytest.mark.parametrize("then", ["step", "save", "remove"])
def test_a_step_that_fails_leaves_no_trace(then: str) -> None:
    model, optimizer = start()
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    backward(model, 0)
    momentum = optimizer.param_groups[0].pop("momentum")
    with pytest.raises(KeyError, match="momentum"):
        optimizer.step()
    optimizer.param_groups[0]["momentum"] = momentum
    if then == "step":
        optimizer.step()
        assert optimizer.param_groups[0][sphere_rule.SEEN] == 1
    elif then == "remove":
        handle.remove()
        assert optimizer.param_groups[0][sphere_rule.SEEN] == 0
    groups = optimizer.state_dict()["param_groups"] if then == "save" else optimizer.param_groups
    assert [group["lr"] for group in groups] == [1.0] * len(groups)


class Twice(torch.optim.SGD):
    """Its own step, around torch's: both call the hooks, and the closure is called twice."""

    def step(self, closure: Any = None) -> Any:
        if closure is not None:
            closure()
        return super().step(closure)


@pytest.mark.parametrize("closure", [False, True])
def test_a_step_within_a_step_counts_once(closure: bool) -> None:
    model, _ = start()
    optimizer = Twice(fixnorm.param_groups(model), lr=1.0, momentum=0.9)
    handle = fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    for n in range(5):

        def again(n: int = n) -> Tensor:
            optimizer.zero_grad()
            return backward(model, n)

        if closure:
            optimizer.step(again)
        else:
            again()
            optimizer.step()
    rule = handle.figures().rule
    assert rule is not None
    assert rule.seen == 5
    if not closure:
        assert_same(weights(model), plain())


@pytest.mark.slow
def test_a_compiled_step_makes_no_difference() -> None:
    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    train(model, optimizer, torch.compile(optimizer.step, backend="eager"))
    assert_same(weights(model), plain(), rtol=1e-5)  # it may take the foreach form, which rounds


@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_an_lr_that_is_a_tensor_makes_no_difference(kind: str) -> None:
    own = torch.tensor(1.0)
    model, optimizer = start(lr=own, **{kind: kind == "fused"})
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    train(model, optimizer)
    assert optimizer.param_groups[0]["lr"] is own
    assert own == 1.0
    assert_same(weights(model), plain(), rtol=1e-5)


def test_an_overflow_outside_the_fixed_weights_is_no_step() -> None:
    """A fused optimizer is called all the same, and leaves the weights alone."""
    model, optimizer = start(fused=True)
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaler.scale(backward(model, 0)).detach_()
    optimizer.param_groups[-1]["params"][0].grad[0] = torch.inf
    kept = weights(model)
    scaler.step(optimizer)
    assert_same(weights(model), kept)
    assert optimizer.param_groups[0][sphere_rule.SEEN] == 0


def test_a_step_with_no_gradient_at_all_is_none() -> None:
    """As torch.distributed.checkpoint makes one, with lr 0, to have a state to fill."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, optimizer = start()
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    get_optimizer_state_dict(model, optimizer)
    assert optimizer.param_groups[0][sphere_rule.SEEN] == 0


@pytest.mark.parametrize("scaled", [False, True])
def test_a_model_in_three_optimizers(scaled: bool) -> None:
    """Each follows the gradients of all fixed weights, the others' as they had them last."""
    model, _ = start()
    fixed, rest = fixnorm.param_groups(model)
    halves = [{**fixed, "params": part} for part in (fixed["params"][:2], fixed["params"][2:])]
    optimizers = [torch.optim.SGD([g], lr=1.0, momentum=0.9) for g in (*halves, rest)]
    handle = fixnorm.attach(*optimizers, lr="auto", steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=scaled)
    last, means = [0.0, 0.0, 0.0], [[], [], []]
    radius: float = optimizers[0].param_groups[0]["fixnorm_target"]
    for n in range(4):
        x, y = batch(n)
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        for k, optimizer in enumerate(optimizers):
            if k < 2:
                grads = [p.grad.double() / scaler.get_scale() for p in halves[k]["params"]]
                last[k] = radius**2 * sum(float(g.square().sum()) for g in grads)
            means[k].append(sum(last))
            before = weights(model)
            scaler.step(optimizer)
            optimizer.zero_grad()  # the next optimizer finds none of these gradients
            group = optimizer.param_groups[0]
            assert group["lr"] == 1.0
            assert any(not torch.equal(a, b) for a, b in zip(before, weights(model), strict=True))
            mean = sum(means[k]) / len(means[k])
            assert group[sphere_rule.MEAN] == pytest.approx(mean, rel=1e-5)
        scaler.update()
    assert handle.figures().rule is not None


def test_a_wrapper_is_saved_by_what_it_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    optim = pytest.importorskip("timm.optim")
    monkeypatch.setattr(sphere_rule, "_at_hand", lambda norm: False)
    model, inner = start()
    optimizer = optim.Lookahead(inner)
    fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    for n in range(3):
        backward(model, n)
        optimizer.step()
    assert optimizer.state_dict()["param_groups"][0][sphere_rule.SEEN] == 3
