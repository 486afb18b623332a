"""Optimizers of others whose state, or whose way to step, is not that of torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fixnorm
from helpers.loops import Loss, check_training
from helpers.small_nets import ResNet, learnable_batches, true_norm

X, Y = learnable_batches(1)[0]


def loss_of(model: nn.Module) -> torch.Tensor:
    return nn.functional.cross_entropy(model(X), Y)


def outputs(model: nn.Module) -> torch.Tensor:
    output: torch.Tensor = model(X)
    return output


def converted() -> ResNet:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    return model


def switch(optimizer: Any, training: bool) -> None:
    optimizer.train() if training else optimizer.eval()


SCHEDULE_FREE = {
    "schedulefree": ["SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree"],
    "pytorch_optimizer": ["ScheduleFreeSGD", "ScheduleFreeAdamW", "ScheduleFreeRAdam"],
}


@pytest.mark.tried(
    "Optimizers",
    "schedule-free SGD, AdamW, RAdam (schedulefree, pytorch_optimizer)",
    "works",
    "y, z and x are rescaled together",
)
@pytest.mark.parametrize(
    ("package", "name"),
    [(package, name) for package, names in SCHEDULE_FREE.items() for name in names],
)
def test_schedule_free(package: str, name: str) -> None:
    make = getattr(pytest.importorskip(package), name)
    options = {"lr": 0.5 if "SGD" in name else 0.02}

    def start() -> tuple[nn.Module, Any]:
        model = converted()
        optimizer = make(fixnorm.param_groups(model), **options)
        fixnorm.attach(optimizer)
        optimizer.train()
        return model, optimizer

    # RAdam does not step before it has seen five gradients
    steps, falls_to = (16, 0.98) if "RAdam" in name else (8, 0.9)
    check_training(start, loss_of, steps=steps, falls_to=falls_to, average=switch, outputs=outputs)


def test_schedule_free_keeps_all_three_points_on_one_sphere() -> None:
    """z stays near the sphere, and x is the mean of points on it, by the method's own recursion."""
    schedulefree = pytest.importorskip("schedulefree")
    model = converted()
    beta, lr = 0.9, 1.0
    optimizer = schedulefree.SGDScheduleFree(fixnorm.param_groups(model), lr=lr, momentum=beta)
    handle = fixnorm.attach(optimizer)
    optimizer.train()
    weights = optimizer.param_groups[0]["params"]
    target = true_norm(weights)
    y = [w.detach().double().clone() for w in weights]
    x, z = [w.clone() for w in y], [w.clone() for w in y]
    for k in range(30):
        optimizer.zero_grad()
        loss_of(model).backward()
        gradients = [w.grad.double().clone() for w in weights]
        optimizer.step()
        z = [a - lr * g for a, g in zip(z, gradients, strict=True)]
        x = [a + (b - a) / (k + 1) for a, b in zip(x, z, strict=True)]
        y = [beta * a + (1 - beta) * b for a, b in zip(x, z, strict=True)]
        c = target / true_norm(y)
        x, y, z = ([c * a for a in points] for points in (x, y, z))
        assert true_norm(weights) == pytest.approx(target, rel=1e-6)
        found = [optimizer.state[w]["z"] for w in weights]
        assert true_norm([a - b for a, b in zip(found, z, strict=True)]) < 1e-4 * target
    assert true_norm(found) < 1.5 * target
    handle.figures()
    optimizer.eval()
    assert true_norm([w.double() - a for w, a in zip(weights, x, strict=True)]) < 1e-4 * target


def climb_and_step(model: nn.Module, optimizer: Any, loss_of: Loss) -> float:
    """A loop that never calls ``step``."""
    loss = loss_of(model)
    loss.backward()
    optimizer.first_step(zero_grad=True)
    loss_of(model).backward()
    optimizer.second_step(zero_grad=True)
    return float(loss.detach())


def step_with_closure(model: nn.Module, optimizer: Any, loss_of: Loss) -> float:
    loss = loss_of(model)
    if type(optimizer).__name__ == "SAM":  # wants the first gradients before its step
        loss.backward()

    def closure() -> torch.Tensor:
        again = loss_of(model)
        again.backward()
        return again

    optimizer.step(closure)
    optimizer.zero_grad()
    return float(loss.detach())


@pytest.mark.tried(
    "Optimizers",
    "SAM, WSAM (pytorch_optimizer)",
    "works",
    "by `step(closure)`, and by `first_step` and `second_step`",
)
@pytest.mark.parametrize("step", [climb_and_step, step_with_closure])
@pytest.mark.parametrize("name", ["SAM", "WSAM"])
def test_sharpness_aware(name: str, step: Any) -> None:
    make = getattr(pytest.importorskip("pytorch_optimizer"), name)

    def start() -> tuple[nn.Module, Any]:
        model = converted()
        more = {"model": model} if name == "WSAM" else {}
        groups = fixnorm.param_groups(model)
        optimizer = make(
            params=groups, base_optimizer=torch.optim.SGD, lr=0.2, momentum=0.9, rho=0.05, **more
        )
        fixnorm.attach(optimizer)
        return model, optimizer

    check_training(start, loss_of, step=step, outputs=outputs)


def test_a_detached_sharpness_aware_optimizer_is_its_own_again() -> None:
    package = pytest.importorskip("pytorch_optimizer")
    model = converted()
    optimizer = package.SAM(
        params=fixnorm.param_groups(model), base_optimizer=torch.optim.SGD, lr=0.2
    )
    handle = fixnorm.attach(optimizer)
    assert "second_step" in vars(optimizer)
    handle.remove()
    assert not {"first_step", "second_step"} & vars(optimizer).keys()


@pytest.mark.tried("Optimizers", "Lookahead (pytorch_optimizer)", "works")
def test_lookahead() -> None:
    package = pytest.importorskip("pytorch_optimizer")

    def start() -> tuple[nn.Module, Any]:
        model = converted()
        base = torch.optim.SGD(fixnorm.param_groups(model), lr=0.5, momentum=0.9)
        optimizer = package.Lookahead(base, k=3)
        fixnorm.attach(optimizer)
        return model, optimizer

    check_training(start, loss_of, outputs=outputs)


def test_optimizers_without_a_learning_rate_in_the_group() -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

        @torch.no_grad()
        def step(self) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(0.1 * p.grad)

    def start() -> tuple[nn.Module, Any]:
        model = converted()
        optimizer = Plain(fixnorm.param_groups(model))
        fixnorm.attach(optimizer)
        return model, optimizer

    check_training(start, loss_of, falls_to=1.0)


@pytest.mark.tried(
    "Optimizers",
    "`ScheduleFreeWrapper` (schedulefree)",
    "refused",
    "it is no `torch.optim.Optimizer`; take one of the schedule-free optimizers",
)
def test_a_wrapper_that_is_no_optimizer_is_refused() -> None:
    schedulefree = pytest.importorskip("schedulefree")
    base = torch.optim.SGD(fixnorm.param_groups(converted()), lr=0.1)
    with pytest.raises(TypeError, match="torch optimizer but got ScheduleFreeWrapper; a wrapper"):
        fixnorm.attach(schedulefree.ScheduleFreeWrapper(base))
