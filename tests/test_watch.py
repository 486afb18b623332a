"""The watchdog: it tells what is wrong, once, and is silent otherwise."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fixnorm
from fixnorm import watch
from helpers.small_nets import ResNet, learnable_batches, true_norm


def started(
    scope: Any = "global", **options: Any
) -> tuple[ResNet, torch.optim.Optimizer, fixnorm.Handle]:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    groups = fixnorm.param_groups(model, scope=scope)
    optimizer = torch.optim.SGD(groups, **{"lr": 0.3, "momentum": 0.9} | options)
    return model, optimizer, fixnorm.attach(optimizer)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for x, y in learnable_batches(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def quiet(handle: fixnorm.Handle) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle.figures()


def test_weights_that_something_else_changes() -> None:
    model, optimizer, handle = started()
    train(model, optimizer)
    quiet(handle)
    with torch.no_grad():
        model.stem.weight.mul_(2)
    train(model, optimizer, 1)
    with pytest.warns(UserWarning, match=r"had 1\.\d+ times their norm before a step: something"):
        handle.figures()
    quiet(handle)  # once is enough
    with torch.no_grad():
        model.stem.weight.mul_(2)
    quiet(handle)


def test_weights_loaded_after_attach() -> None:
    model, optimizer, handle = started()
    state = {
        name: 3 * value if value.ndim > 1 else value
        for name, value in ResNet().state_dict().items()
    }
    model.load_state_dict(state)
    train(model, optimizer)
    with pytest.warns(UserWarning, match="Load weights before"):
        handle.figures()


def test_a_step_that_the_hook_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer, handle = started()
    unseen = torch.optim.SGD(model.parameters(), lr=0.3)
    train(model, unseen)
    with pytest.warns(UserWarning, match="attach the optimizer that steps"):
        handle.figures()
    monkeypatch.setattr(watch, "_EVERY", 5)
    train(model, optimizer, 8)  # its own steps: silent
    with pytest.warns(UserWarning, match="5 backward passes without a step of the attached"):
        train(model, unseen, 5)


def test_a_weight_that_is_trained_and_in_no_fixed_group() -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    model.stem.weight.requires_grad_(False)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.3)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer)
    quiet(handle)
    model.stem.weight.requires_grad_(True)
    train(model, optimizer)
    with pytest.warns(UserWarning, match=r"stem\.weight should keep a norm but no attached"):
        handle.figures()


def test_a_head_replaced_during_training() -> None:
    model, optimizer, handle = started()
    train(model, optimizer)
    model.fc = nn.Linear(8, 5)
    with pytest.warns(UserWarning, match=r"fc\.weight should keep a norm"):
        handle.figures()


def test_it_looks_by_itself_every_thousand_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY", 4)
    model, optimizer, _ = started()
    train(model, optimizer, 8)
    with torch.no_grad():
        model.stem.weight.mul_(2)
    for _ in range(3):  # steps 9 to 11: not measured, so not known
        train(model, optimizer, 1)
    with torch.no_grad():
        model.stem.weight.mul_(2)
    train(model, optimizer, 1)  # measured before step 12
    train(model, optimizer, 3)
    with pytest.warns(UserWarning, match="something besides"):
        train(model, optimizer, 1)  # looked at before step 16


def test_a_state_that_is_a_copy_of_the_weights() -> None:
    class Averaging(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p].setdefault("anchor", p.detach().clone())
            return super().step(closure)

    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    optimizer = Averaging(fixnorm.param_groups(model), lr=0.01)
    handle = fixnorm.attach(optimizer)
    train(model, optimizer)
    with pytest.warns(UserWarning, match="state 'anchor' of Averaging is a copy of the weights"):
        handle.figures()


def test_a_removed_handle_watches_no_more() -> None:
    model, optimizer, handle = started()
    train(model, optimizer)
    handle.remove()
    train(model, optimizer)
    quiet(handle)
    assert not model.stem.weight._post_accumulate_grad_hooks


def test_a_step_that_failed_does_not_blind_the_hook() -> None:
    model, optimizer, _ = started()

    def broken() -> float:
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        optimizer.step(broken)
    before = model.stem.weight.detach().clone()
    train(model, optimizer)
    fixed = optimizer.param_groups[0]
    assert true_norm(fixed["params"]) == pytest.approx(fixed["fixnorm_target"], rel=1e-6)
    assert not torch.equal(model.stem.weight, before)


class _NoHostSync(TorchDispatchMode):
    """Refuses whatever waits for a value on the device: reading it, or copying it to the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value went to the host"
        assert func is not torch.ops.aten._to_copy.default or "device" not in (kwargs or {}), (
            "a tensor went to another device"
        )
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("scope", ["global", "layer"])
def test_no_step_waits_for_the_device_and_figures_do(scope: Any, frozen: bool) -> None:
    model, optimizer, handle = started(scope, foreach=True)
    if frozen:
        model.stem.weight.requires_grad_(False)
    x, y = learnable_batches(1)[0]
    for _ in range(4):  # the watchdog measures before the first two, and after figures
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        with _NoHostSync():
            optimizer.step()
        handle.figures()
    with _NoHostSync(), pytest.raises(AssertionError, match="a value went to the host"):
        handle.figures()
