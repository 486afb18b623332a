"""One contract for every optimizer, network and way of training.

After every step: the fixed group is at its target to 1e-6, the head's effective scale is at most
its cap, and nothing outside the fixed group was rescaled: it is bit for bit what the optimizer
alone would have made of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm import plain_norms
from helpers.small_nets import MobileNet, PatchNet, ResNet, learnable_batches, true_norm

ALPHA = 0.6

NETS: dict[str, Callable[[], nn.Module]] = {
    "resnet": ResNet,
    "mobilenetv2": MobileNet,
    "se": lambda: MobileNet(tricks=True),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.2, momentum=0.9),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=0.2, momentum=0.9, nesterov=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01),
}


@dataclass
class Run:
    """A converted model, its optimizer, and the same optimizer without the hook."""

    model: nn.Module
    forward: Callable[[Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    shadow: torch.optim.Optimizer
    shadow_parameters: list[nn.Parameter]
    target: float

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def fixed(self) -> list[nn.Parameter]:
        return list(self.optimizer.param_groups[0]["params"])


def start(net: str, optimizer: str, compiled: bool = False, scope: Any = None) -> Run:
    model = NETS[net]() if scope is None else MATRIX_NETS[net]()
    sample = None if scope is None else learnable_batches(1)[0][0]
    fixnorm.convert(model, alpha=ALPHA, scope=scope, sample=sample)
    forward = torch.compile(model, backend="aot_eager") if compiled else model
    opt = OPTIMIZERS[optimizer](fixnorm.param_groups(forward))
    target = true_norm(opt.param_groups[0]["params"])
    fixnorm.attach(opt)
    clones = copy.deepcopy([list(group["params"]) for group in opt.param_groups])
    shadow = OPTIMIZERS[optimizer]([{"params": ps, "weight_decay": 0.0} for ps in clones])
    return Run(model, forward, opt, shadow, [p for ps in clones for p in ps], target)


def shadow_step(run: Run) -> None:
    """Step the unhooked optimizer from the same parameters and gradients."""
    with torch.no_grad():
        for p, twin in zip(run.parameters, run.shadow_parameters, strict=True):
            twin.copy_(p)
            twin.grad = None if p.grad is None else p.grad.clone()
    run.shadow.step()


def check(run: Run, *, stepped: bool = True) -> None:
    assert true_norm(run.fixed) == pytest.approx(run.target, rel=1e-6)
    for layer in run.model.modules():
        if isinstance(layer, fixnorm.FixNormLinear):
            assert true_norm([layer.effective_weight()]) <= layer.cap * (1 + 1e-6)
    if not stepped:
        return
    fixed = {id(p) for p in run.fixed}
    factor = run.target / true_norm(run.shadow_parameters[: len(run.fixed)])
    for p, twin in zip(run.parameters, run.shadow_parameters, strict=True):
        if id(p) in fixed:
            torch.testing.assert_close(p, twin * factor, rtol=1e-5, atol=1e-8)
        else:
            assert torch.equal(p, twin)


def plain(run: Run) -> Iterator[bool]:
    for x, y in learnable_batches(6):
        run.optimizer.zero_grad()
        nn.functional.cross_entropy(run.forward(x), y).backward()
        shadow_step(run)
        run.optimizer.step()
        yield True


def bf16_autocast(run: Run) -> Iterator[bool]:
    for x, y in learnable_batches(6):
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(run.forward(x), y)
        loss.backward()
        shadow_step(run)
        run.optimizer.step()
        yield True


def accumulation(run: Run) -> Iterator[bool]:
    for i, (x, y) in enumerate(learnable_batches(8)):
        (nn.functional.cross_entropy(run.forward(x), y) / 2).backward()
        if i % 2:
            shadow_step(run)
            run.optimizer.step()
            run.optimizer.zero_grad()
            yield True


def grad_scaler(run: Run) -> Iterator[bool]:
    """The third batch overflows: the step is skipped, nothing may move."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for i, (x, y) in enumerate(learnable_batches(6)):
        run.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run.forward(x), y)
        scaler.scale(loss * (float("inf") if i == 2 else 1.0)).backward()
        scaler.unscale_(run.optimizer)
        before = [p.detach().clone() for p in run.parameters]
        if i != 2:
            shadow_step(run)
        scaler.step(run.optimizer)
        scaler.update()
        if i == 2:
            assert all(torch.equal(p, b) for p, b in zip(run.parameters, before, strict=True))
        yield i != 2


LOOPS = {
    "fp32": plain,
    "bf16-autocast": bf16_autocast,
    "grad-scaler": grad_scaler,
    "accumulation": accumulation,
    "compile": plain,
    "norms-at-once": plain,
}


@pytest.mark.tried(
    "Features of torch",
    "autocast, `GradScaler`, accumulation, clipping, `torch.compile` of the model",
    "works",
    "SGD, Nesterov, AdamW",
)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_contract(optimizer: str, net: str, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loop == "norms-at-once":  # as on a GPU
        monkeypatch.setattr(plain_norms, "_LOOPING", ())
    run = start(net, optimizer, compiled=loop == "compile")
    start_weights = [p.detach().clone() for p in run.fixed]
    steps = 0
    for stepped in LOOPS[loop](run):
        check(run, stepped=stepped)
        steps += 1
    assert steps >= 4
    assert all(not torch.equal(p, w) for p, w in zip(run.fixed, start_weights, strict=True))


MATRIX_NETS: dict[str, Callable[[], nn.Module]] = {"resnet": ResNet, "patches": PatchNet}


def check_turns(run: Run, before: list[Tensor], *, stepped: bool) -> None:
    """Each matrix at its radius, turned by lr along the optimizer's own step; the rest is as ever.

    In float64, from the weights of before and what the optimizer alone makes of them.
    """
    (group, _) = run.optimizer.param_groups
    lr, radii = group["lr"], group["fixnorm_radii"]
    for p, old, twin, radius in zip(run.fixed, before, run.shadow_parameters, radii, strict=False):
        assert true_norm([p]) == pytest.approx(radius, rel=1e-6)
        if stepped:
            d = twin.double() - old.double()
            expected = old.double() + lr * radius * d / d.norm()
            expected *= radius / expected.norm()
            torch.testing.assert_close(p.double(), expected, rtol=1e-4, atol=1e-5 * lr * radius)
        else:
            assert torch.equal(p, old)
    count = len(run.fixed)
    if stepped:
        for p, twin in zip(run.parameters[count:], run.shadow_parameters[count:], strict=True):
            assert torch.equal(p, twin)


@pytest.mark.tried(
    "Features of torch",
    "scope `matrix` under autocast, `GradScaler`, accumulation, `torch.compile` of the model",
    "works",
    "SGD, Nesterov, AdamW",
)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("net", MATRIX_NETS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_contract_of_scope_matrix(
    optimizer: str, net: str, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop == "norms-at-once":  # as on a GPU
        monkeypatch.setattr(plain_norms, "_LOOPING", ())
    run = start(net, optimizer, compiled=loop == "compile", scope="matrix")
    before = [p.detach().clone() for p in run.fixed]
    first = [p.clone() for p in before]
    for stepped in LOOPS[loop](run):
        check_turns(run, before, stepped=stepped)
        before = [p.detach().clone() for p in run.fixed]
    assert all(not torch.equal(p, w) for p, w in zip(run.fixed, first, strict=True))


@pytest.mark.tried("Optimizers", "SGD and AdamW of torch: for-loop, foreach, fused", "works")
@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_every_implementation_of_the_optimizer(kind: Any, options: dict[str, bool]) -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=ALPHA)
    optimizer = kind(fixnorm.param_groups(model), lr=0.05, **options)
    fixnorm.attach(optimizer)
    target = true_norm(optimizer.param_groups[0]["params"])
    for x, y in learnable_batches(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert true_norm(optimizer.param_groups[0]["params"]) == pytest.approx(target, rel=1e-6)


@pytest.mark.tried("Optimizers", "closures (LBFGS)", "works")
def test_closures() -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=ALPHA)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    optimizer.param_groups[0] |= {"fixnorm_target": None}
    x, y = learnable_batches(1)[0]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    fixnorm.attach(optimizer)
    target = true_norm(list(model.parameters()))
    before = model.stem.weight.detach().clone()
    optimizer.step(closure)
    assert true_norm(list(model.parameters())) == pytest.approx(target, rel=1e-6)
    assert not torch.equal(model.stem.weight, before)


@pytest.mark.tried("Features of torch", "`torch.compile` of `optimizer.step`", "works")
@pytest.mark.slow
def test_compiled_optimizer_step() -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=ALPHA)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.1, momentum=0.9)
    fixnorm.attach(optimizer)
    target = true_norm(optimizer.param_groups[0]["params"])
    step = torch.compile(optimizer.step, backend="aot_eager")
    for x, y in learnable_batches(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        step()
        assert true_norm(optimizer.param_groups[0]["params"]) == pytest.approx(target, rel=1e-6)
