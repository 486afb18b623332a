"""The paper's own equations, in float64, on real layers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fixnorm import WeightNormLinear

KAPPA = (0.1, 3.0, 50.0)


def conv_bn() -> tuple[nn.Conv2d, nn.BatchNorm2d, torch.Tensor]:
    conv = nn.Conv2d(3, 5, 3, bias=False).double()
    norm = nn.BatchNorm2d(5, eps=1e-30).double()
    nn.init.uniform_(norm.weight)
    nn.init.normal_(norm.bias)
    return conv, norm, torch.randn(4, 3, 8, 8, dtype=torch.float64)


@pytest.mark.parametrize("kappa", KAPPA)
def test_equation_1_batch_norm_ignores_the_norm_of_the_weight(kappa: float) -> None:
    conv, norm, x = conv_bn()
    before = norm(conv(x))
    with torch.no_grad():
        conv.weight.mul_(kappa)
    torch.testing.assert_close(norm(conv(x)), before, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kappa", KAPPA)
def test_equation_2_the_gradient_shrinks_with_the_norm(kappa: float) -> None:
    conv, norm, x = conv_bn()
    u = torch.randn_like(norm(conv(x)))
    (before,) = torch.autograd.grad((norm(conv(x)) * u).sum(), conv.weight)
    with torch.no_grad():
        conv.weight.mul_(kappa)
    (after,) = torch.autograd.grad((norm(conv(x)) * u).sum(), conv.weight)
    torch.testing.assert_close(after * kappa, before, rtol=1e-9, atol=1e-11)


def turn(lr: float, kappa: float) -> float:
    """‖ŵ_{t+1} − ŵ_t‖ of one SGD step from a weight of κ times its norm."""
    torch.manual_seed(0)
    conv, norm, x = conv_bn()
    u = torch.randn_like(norm(conv(x)))
    with torch.no_grad():
        conv.weight.mul_(kappa)
    w = conv.weight.detach()
    (gradient,) = torch.autograd.grad((norm(conv(x)) * u).sum(), conv.weight)
    stepped = w - lr * gradient
    return float((stepped / stepped.norm() - w / w.norm()).norm())


def test_equation_4_a_step_turns_the_direction_by_lr_over_norm_squared() -> None:
    base = turn(1e-7, 1.0)
    assert turn(2e-7, 1.0) == pytest.approx(2 * base, rel=1e-5)
    assert turn(1e-7, 3.0) == pytest.approx(base / 9, rel=1e-5)
    assert turn(9e-7, 3.0) == pytest.approx(base, rel=1e-5)  # lr/‖w‖² is all that counts


@pytest.mark.parametrize("label", [0, 3])
def test_equation_8_the_loss_drives_x_from_other_class_centres_to_its_own(label: int) -> None:
    head = WeightNormLinear(6, 5, bias=False).double()
    with torch.no_grad():
        head.g.fill_(2.5)
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    logits = head(x)
    loss = nn.functional.cross_entropy(logits, torch.tensor(label))
    (gradient,) = torch.autograd.grad(loss, x)

    W, p = head.weight.detach(), logits.detach().softmax(0)
    others = [j for j in range(5) if j != label]
    expected = 2.5 / W.norm() * sum(p[j] * (W[label] - W[j]) for j in others)
    torch.testing.assert_close(-gradient, expected, rtol=1e-12, atol=1e-14)


def test_appendix_derivatives_of_the_probability() -> None:
    s = torch.randn(4, dtype=torch.float64, requires_grad=True)
    p = s.softmax(0)
    (gradient,) = torch.autograd.grad(p[1], s)
    p = p.detach()
    assert float(gradient[1]) == pytest.approx(float(p[1] * (1 - p[1])), rel=1e-12)
    for j in (0, 2, 3):
        assert float(gradient[j]) == pytest.approx(float(-p[1] * p[j]), rel=1e-12)


def test_linear_default_initialisation_starts_at_0_577_root_c() -> None:
    head = WeightNormLinear(2048, 1000)
    assert float(head.g.detach()) / math.sqrt(1000) == pytest.approx(1 / math.sqrt(3), rel=2e-3)
