"""The factory with timm's own optimizers, and what timm's training script does with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fixnorm
from fixnorm.hook import handle_of
from helpers.frameworks import Rescales, assert_goes_on, fixed_of, images, loss, net, run, true_norm

pytest.importorskip("timm")
from timm.optim import Lookahead, optimizer_kwargs

from fixnorm.integrations.timm import create_optimizer_v2
from helpers.timm_run import arguments


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, steps: int) -> None:
    for step in range(steps):
        x, y = images()[8 * (step % 4) : 8 * (step % 4) + 8]
        model.zero_grad()  # not the optimizer's: that would mend a step that calls no hooks
        loss(model, x, y).backward()
        optimizer.step()


@pytest.mark.tried(
    "Trainers",
    "timm: `create_optimizer_v2`",
    "works",
    "`integrations.timm`",
)
@pytest.mark.parametrize("opt", ["sgd", "momentum", "adamw", "lamb", "lookahead_sgd"])
def test_every_step_ends_at_the_target(seen: Rescales, opt: str) -> None:
    model = net()
    args = arguments(opt=opt, lr=0.05)
    optimizer = create_optimizer_v2(model, **optimizer_kwargs(cfg=args))
    target, weights = fixed_of(optimizer)
    assert target == pytest.approx(true_norm([p for p in model.parameters() if p.ndim > 1]))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.0, 0.0]
    train(model, optimizer, steps=7)  # Lookahead pulls the weights back on the sixth
    assert seen.count == 7
    assert true_norm(weights) == pytest.approx(target, rel=1e-6)
    handle = handle_of(optimizer)
    assert handle is not None
    assert handle.figures().groups[0].lr == 0.05


@pytest.mark.tried(
    "Optimizers", "Lookahead (timm)", "works", "the wrapper is attached, not what it wraps"
)
def test_lookahead_itself_is_hooked_not_what_it_wraps() -> None:
    optimizer = create_optimizer_v2(net(), "lookahead_sgd", lr=0.1)
    assert isinstance(optimizer, Lookahead)
    assert len(optimizer._optimizer_step_post_hooks) == 1
    assert len(optimizer._base_optimizer._optimizer_step_post_hooks) == 0


def unmended() -> Lookahead:
    """A wrapper of a class that no ``zero_grad`` has taught to call hooks."""

    class Fresh(Lookahead):  # type: ignore[misc]
        def step(self, closure: Any = None) -> Any:
            return self._base_optimizer.step(closure)

    optimizer = Fresh(torch.optim.SGD(fixnorm.param_groups(net()), lr=0.1))
    assert not hasattr(Fresh.step, "hooked")
    return optimizer


def test_a_wrapper_whose_step_calls_no_hooks_is_mended(seen: Rescales) -> None:
    optimizer = unmended()
    fixnorm.attach(optimizer)
    for weight in fixed_of(optimizer)[1]:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert seen.count == 1


@pytest.mark.tried(
    "Optimizers",
    "timm's Lookahead after its scheduler",
    "refused",
    "attach first, then build the scheduler",
)
def test_a_wrapper_whose_step_a_scheduler_has_wrapped_is_refused() -> None:
    optimizer = unmended()
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.raises(ValueError, match="step of Fresh was wrapped before it could call hooks"):
        fixnorm.attach(optimizer)


def test_methods_that_decay() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    options = {"lr": 0.1, "weight_decay": 0.01, "sample": torch.randn(4, 3, 8, 8)}
    fixed, decayed, rest = create_optimizer_v2(model, method="algorithm1", **options).param_groups
    assert fixed["params"] == [model[1].weight]
    assert decayed["params"] == [model[3].weight]
    assert [g["weight_decay"] for g in (fixed, decayed, rest)] == [0.0, 0.01, 0.0]
    plain = create_optimizer_v2(model, method="weight-decay", **options)
    assert handle_of(plain) is None
    assert [g["weight_decay"] for g in plain.param_groups] == [0.01, 0.0]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"weight_decay": 2e-5}, "no weight decay but got weight_decay=2e-05; leave it out"),
        ({"lr": "auto"}, r"lr='auto' needs steps, .* but got None"),
        ({"layer_decay": 0.7}, "layer_decay makes groups of its own but FixNorm needs those of"),
    ],
)
def test_refuses(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        create_optimizer_v2(net(), **optimizer_kwargs(cfg=arguments(**changes)))


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path) -> None:
    """The process dies after three epochs; another goes on from timm's checkpoint of the second."""
    killed, whole_run = tmp_path / "killed", tmp_path / "whole"
    for folder in (killed, whole_run):
        folder.mkdir()
    run("timm_run.py", killed, 3, expect=-9)
    run("timm_run.py", killed, -1, killed / "checkpoint-1.pth.tar")
    run("timm_run.py", whole_run, -1)
    assert_goes_on(killed / "end.pt", whole_run / "end.pt", steps=4, left=2)


def test_timm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fixnorm.integrations.timm")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs timm: pip install 'fixnorm\[train\]'"):
        import fixnorm.integrations.timm  # noqa: F401
