"""The fast path equals the paper's algorithms step by step: weights, momentum and g."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import fixnorm
from fixnorm import reference
from fixnorm.angle_rule import ANGLE, PLAIN
from fixnorm.sphere_rule import C, P

LR, MU, STEPS = 0.05, 0.9, 50


class Features(nn.Module):
    """Two convs under batch norm; what comes before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3, stride=2, bias=False)
        self.bn2 = nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.silu(self.bn1(self.conv1(x)))
        return torch.nn.functional.silu(self.bn2(self.conv2(x))).mean((2, 3))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = Features()
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))


CONV = ["features.conv1.weight", "features.conv2.weight"]


def eta(t: int) -> float:
    """Warm-up over five steps, then a slow fall."""
    return (t + 1) / 5 if t < 5 else 1 - t / 100


def loss(logits: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, y, label_smoothing=0.1)


def make(dtype: torch.dtype) -> tuple[Net, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(0)
    model = Net().to(dtype)
    classes = torch.randn(5, 2, 8, 8, dtype=dtype)
    labels = [torch.randint(0, 5, (16,)) for _ in range(STEPS)]
    return model, [(classes[y] + torch.randn(16, 2, 8, 8, dtype=dtype), y) for y in labels]


def features_of(model: Net) -> reference.Features:
    """The features as a function of a dict of parameters, on a copy with buffers of its own."""
    body = model.features
    buffers = {name: buffer.clone() for name, buffer in body.named_buffers()}

    def run(W: dict[str, Tensor], x: Tensor) -> Tensor:
        own = {n.removeprefix("features."): w for n, w in W.items() if n.startswith("features.")}
        return functional_call(body, own | buffers, (x,))

    return run


def compare(
    model: Net,
    batches: list[tuple[Tensor, Tensor]],
    states: Any,
    groups: list[dict[str, Any]],
    *,
    nesterov: bool,
    hooked: bool,
    dtype: torch.dtype,
    auto: bool = False,
) -> None:
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}[dtype]
    optimizer = torch.optim.SGD(groups, lr=1.0 if auto else LR, momentum=MU, nesterov=nesterov)
    if auto:
        fixnorm.attach(optimizer, lr="auto", steps=STEPS)
    elif hooked:
        fixnorm.attach(optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, eta)
    parameters = dict(model.named_parameters())
    moved = {name: p.detach().clone() for name, p in parameters.items()}
    largest: dict[tuple[str, str], float] = {}
    steps = 0
    for (x, y), state in zip(batches, states, strict=True):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        schedule.step()
        assert parameters.keys() == state.W.keys()
        for name, p in parameters.items():
            velocity = optimizer.state[p]["momentum_buffer"]
            for what, mine, theirs in (("W", p.detach(), state.W), ("V", velocity, state.V)):
                # against the largest so far: the velocity of a scalar passes through zero
                size = max(theirs[name].norm().item(), largest.get((what, name), 0.0))
                largest[what, name] = size
                error = (mine - theirs[name]).norm().item() / size
                assert error <= tolerance, (steps, what, name)
        steps += 1
    assert steps == STEPS
    assert all(not torch.equal(moved[name], p) for name, p in parameters.items())


CASES = [(dtype, nesterov) for dtype in (torch.float64, torch.float32) for nesterov in (0, 1)]


@pytest.mark.parametrize(("dtype", "nesterov"), CASES)
def test_weight_decay_training(dtype: torch.dtype, nesterov: bool) -> None:
    model, batches = make(dtype)
    states = reference.weight_decay_training(
        features_of(model),
        {n: p.detach().clone() for n, p in model.named_parameters()},
        loss,
        batches,
        head="fc",
        lr=LR,
        eta=eta,
        mu=MU,
        lambda_=1e-2,
        decayed=[*CONV, "fc.weight"],
        nesterov=nesterov,
    )
    groups = fixnorm.param_groups(model, method="weight-decay", weight_decay=1e-2)
    compare(model, batches, states, groups, nesterov=nesterov, hooked=False, dtype=dtype)


@pytest.mark.parametrize(("dtype", "nesterov"), CASES)
def test_algorithm_1(dtype: torch.dtype, nesterov: bool) -> None:
    model, batches = make(dtype)
    states = reference.algorithm_1(
        features_of(model),
        {n: p.detach().clone() for n, p in model.named_parameters()},
        loss,
        batches,
        head="fc",
        lr=LR,
        eta=eta,
        mu=MU,
        lambda_fc=1e-2,
        conv=CONV,
        nesterov=nesterov,
    )
    sample = torch.randn(4, 2, 8, 8)
    groups = fixnorm.param_groups(model, method="algorithm1", weight_decay=1e-2, sample=sample)
    compare(model, batches, states, groups, nesterov=nesterov, hooked=True, dtype=dtype)


@pytest.mark.parametrize(("dtype", "nesterov"), CASES)
def test_algorithm_1_wn_fc(dtype: torch.dtype, nesterov: bool) -> None:
    model, batches = make(dtype)
    fixnorm.convert(model, method="wn-fc", sample=torch.randn(4, 2, 8, 8))
    states = reference.algorithm_1_wn_fc(
        features_of(model),
        {n: p.detach().clone() for n, p in model.named_parameters()},
        loss,
        batches,
        head="fc",
        lr=LR,
        eta=eta,
        mu=MU,
        conv=CONV,
        nesterov=nesterov,
    )
    groups = fixnorm.param_groups(model)
    compare(model, batches, states, groups, nesterov=nesterov, hooked=True, dtype=dtype)


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize(("dtype", "nesterov"), CASES)
def test_algorithm_1_fixnorm_fc(dtype: torch.dtype, nesterov: bool, auto: bool) -> None:
    alpha = 0.6  # g starts at 0.58·√C and meets the cap on the way
    model, batches = make(dtype)
    fixnorm.convert(model, alpha=alpha, sample=torch.randn(4, 2, 8, 8))
    assert model.fc.g.item() < model.fc.cap
    states = reference.algorithm_1_fixnorm_fc(
        features_of(model),
        {n: p.detach().clone() for n, p in model.named_parameters()},
        loss,
        batches,
        head="fc",
        alpha=alpha,
        lr=reference.SphereRule(C, P, STEPS) if auto else LR,
        eta=eta,
        mu=MU,
        conv=CONV,
        nesterov=nesterov,
    )
    groups = fixnorm.param_groups(model)
    compare(model, batches, states, groups, nesterov=nesterov, hooked=True, dtype=dtype, auto=auto)
    assert auto or model.fc.g.item() >= model.fc.cap


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize(("dtype", "nesterov"), CASES)
def test_matrix_scope(dtype: torch.dtype, nesterov: bool, auto: bool) -> None:
    """LR is an angle: the weights turn by it, whatever the length of the momentum."""
    model, batches = make(dtype)
    fixnorm.convert(model, alpha=1.0, scope="matrix")
    states = reference.matrix_scope(
        features_of(model),
        {n: p.detach().clone() for n, p in model.named_parameters()},
        loss,
        batches,
        head="fc",
        alpha=1.0,
        matrices=CONV,
        lr=reference.AngleRule(ANGLE, PLAIN, STEPS) if auto else LR,
        eta=eta,
        mu=MU,
        nesterov=nesterov,
    )
    groups = fixnorm.param_groups(model)
    compare(model, batches, states, groups, nesterov=nesterov, hooked=True, dtype=dtype, auto=auto)
