"""The layers: their formula, their drop-in behaviour, and torch's own tools on them."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import fixnorm
from fixnorm import layers
from fixnorm.layers import scale_, unscale_
from fixnorm.norm import frobenius
from fixnorm.reference import fixnorm_conv, fixnorm_fc, wn_fc
from fixnorm.telemetry import head_figures

CONV_OPTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "padding": 2, "bias": False},
    {"groups": 2},
    {"padding": "same", "padding_mode": "reflect"},
    {"padding": 1, "padding_mode": "circular", "groups": 4},
]


def test_hand_worked_numbers() -> None:
    layer = fixnorm.FixNormLinear(2, 4, bias=False, alpha=1.5)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0], [0.0, 0.0]]))
        layer.g.fill_(2.0)
    x = torch.tensor([1.0, 1.0])
    # ‖W‖ = 5, cap = 1.5·√4 = 3, g = 2 under it: logits = xᵀW/5·2
    assert layer(x).tolist() == pytest.approx([1.2, 1.6, 0.0, 0.0])
    with torch.no_grad():
        layer.g.fill_(7.0)  # over the cap: 3 counts
    assert layer(x).tolist() == pytest.approx([1.8, 2.4, 0.0, 0.0])
    layer.alpha = 0.5  # a live change: cap 1
    assert layer(x).tolist() == pytest.approx([0.6, 0.8, 0.0, 0.0])


def test_layers_equal_the_reference_formulas() -> None:
    x = torch.randn(3, 6, dtype=torch.float64)
    linear = fixnorm.FixNormLinear(6, 5, bias=False, alpha=0.3, dtype=torch.float64)
    torch.testing.assert_close(linear(x), fixnorm_fc(x, linear.weight, linear.g, 0.3))
    free = fixnorm.WeightNormLinear(6, 5, bias=False, dtype=torch.float64)
    torch.testing.assert_close(free(x), wn_fc(x, free.weight, free.g))
    image = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    conv = fixnorm.FixNormConv2d(3, 5, 3, bias=False, alpha=0.3, dtype=torch.float64)
    torch.testing.assert_close(conv(image), fixnorm_conv(image, conv.weight, conv.g, 0.3))


def test_gradient_in_g_is_zero_above_the_cap_and_not_below() -> None:
    layer = fixnorm.FixNormLinear(4, 4, alpha=1.0)  # cap 2
    for g, is_zero in ((1.9, False), (2.1, True)):
        with torch.no_grad():
            layer.g.fill_(g)
        layer.zero_grad()
        layer(torch.randn(3, 4)).square().sum().backward()
        assert (layer.g.grad.item() == 0.0) is is_zero
        assert layer.weight.grad.any()


def test_the_cap_holds_on_both_sides() -> None:
    layer = fixnorm.FixNormLinear(2, 4, bias=False, alpha=1.0, dtype=torch.float64)  # cap 2
    x = torch.randn(3, 2, dtype=torch.float64)
    for g, scale, is_zero in ((-1.5, -1.5, False), (-2.5, -2.0, True), (-70.0, -2.0, True)):
        with torch.no_grad():
            layer.g.fill_(g)
        layer.zero_grad()
        layer(x).square().sum().backward()
        assert layer.effective_scale().item() == scale
        assert (layer.g.grad.item() == 0.0) is is_zero
        torch.testing.assert_close(layer(x), fixnorm_fc(x, layer.weight, layer.g, 1.0))
    folded = nn.Sequential(layer)
    assert head_figures(folded)["0"].saturated
    before = layer(x)
    fixnorm.fold(folded)
    torch.testing.assert_close(folded(x), before)


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("Conv1d", {"padding": 1, "padding_mode": "circular"}),
    ("Conv1d", {"groups": 2, "stride": 2}),
    ("Conv3d", {"padding": "same"}),
    ("ConvTranspose1d", {"stride": 2, "output_padding": 1}),
    ("ConvTranspose2d", {"stride": 2, "padding": 1, "groups": 2, "bias": False}),
    ("ConvTranspose3d", {"dilation": 2}),
]


@pytest.mark.parametrize("alpha", [None, 4.0])
@pytest.mark.parametrize(("kind", "options"), OTHERS)
def test_every_convolution_has_its_scaled_layer(
    kind: str, options: dict[str, Any], alpha: float | None
) -> None:
    conv = getattr(nn, kind)(4, 6, 3, dtype=torch.float64, **options)
    x = torch.randn(2, 4, *[7] * int(kind[-2]), dtype=torch.float64)
    before = conv(x)
    scale_(conv, alpha=alpha)
    assert type(conv) is getattr(layers, ("WeightNorm" if alpha is None else "FixNorm") + kind)
    torch.testing.assert_close(conv(x), before, rtol=1e-12, atol=1e-12)
    conv(x).square().sum().backward()
    assert abs((conv.weight.grad * conv.weight).sum().item()) < 1e-10
    if alpha is not None:
        assert conv.cap == 4.0 * math.sqrt(6)  # C is the number of outputs, transposed or not
    if "stride" in options and kind == "ConvTranspose1d":
        assert conv(x, output_size=[16]).shape == before.shape
    unscale_(conv)
    assert type(conv) is getattr(nn, kind)
    torch.testing.assert_close(conv(x), before, rtol=1e-12, atol=1e-12)


def test_weight_gradient_is_orthogonal_to_the_weight() -> None:
    layer = fixnorm.WeightNormConv2d(3, 4, 3, dtype=torch.float64)
    layer(torch.randn(2, 3, 6, 6, dtype=torch.float64)).square().sum().backward()
    assert abs((layer.weight.grad * layer.weight).sum().item()) < 1e-12


@pytest.mark.parametrize("options", CONV_OPTIONS)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_scaling_a_conv_in_place_keeps_all_options_and_the_function(
    options: dict[str, Any], alpha: float | None
) -> None:
    conv = nn.Conv2d(4, 8, 3, dtype=torch.float64, **options).eval()
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    before, weight, plain = conv(x), conv.weight, copy.deepcopy(conv)
    scale_(conv, alpha=alpha)
    expected = fixnorm.WeightNormConv2d if alpha is None else fixnorm.FixNormConv2d
    assert type(conv) is expected
    assert conv.weight is weight
    assert not conv.training
    torch.testing.assert_close(conv(x), before, rtol=1e-12, atol=1e-12)
    for name in ("stride", "padding", "dilation", "groups", "padding_mode"):
        assert getattr(conv, name) == getattr(plain, name)
    unscale_(conv)
    assert type(conv) is nn.Conv2d
    assert set(conv.state_dict()) == set(plain.state_dict())
    torch.testing.assert_close(conv(x), before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", CONV_OPTIONS)
def test_constructor_takes_the_plain_layers_arguments(options: dict[str, Any]) -> None:
    layer = fixnorm.FixNormConv2d(4, 8, 3, alpha=2.0, dtype=torch.float64, **options)
    plain = nn.Conv2d(4, 8, 3, dtype=torch.float64, **options)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "g"})
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(layer(x), plain(x), rtol=1e-12, atol=1e-12)


def test_state_dict_of_a_plain_layer_loads_with_g_at_the_norm() -> None:
    plain = nn.Linear(5, 3)
    layer = fixnorm.FixNormLinear(5, 3, alpha=8.0)
    state = plain.state_dict()
    layer.load_state_dict(state)
    assert "g" not in state
    assert layer.g.item() == pytest.approx(float(plain.weight.detach().norm()), rel=1e-6)
    x = torch.randn(2, 5)
    torch.testing.assert_close(layer(x), plain(x))


def test_own_state_dict_round_trips_g() -> None:
    layer, other = (fixnorm.FixNormLinear(5, 3, alpha=8.0) for _ in range(2))
    with torch.no_grad():
        layer.g.fill_(0.123)
    other.load_state_dict(layer.state_dict())
    assert other.g.item() == pytest.approx(0.123)
    assert sorted(layer.state_dict()) == ["bias", "g", "weight"]


def test_deepcopy_is_independent_and_keeps_alpha() -> None:
    layer = fixnorm.FixNormConv2d(2, 3, 1, alpha=0.7)
    twin = copy.deepcopy(layer)
    twin.alpha = 9.0
    with torch.no_grad():
        twin.g.zero_()
    assert layer.alpha == 0.7
    assert layer.g.item() > 0


def test_reset_parameters_and_meta_device() -> None:
    with torch.device("meta"):
        layer = fixnorm.FixNormLinear(6, 4, alpha=1.0)
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert layer.g.item() == pytest.approx(float(layer.weight.detach().norm()), rel=1e-6)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compile_forward_and_backward(backend: str) -> None:
    model = nn.Sequential(
        fixnorm.WeightNormConv2d(2, 4, 3), nn.Flatten(), fixnorm.FixNormLinear(36, 4, alpha=0.2)
    )
    x = torch.randn(3, 2, 5, 5)
    expected = model(x)
    expected.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    actual = compiled(x)
    actual.square().sum().backward()
    torch.testing.assert_close(actual, expected)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, gradient)
    model[2].alpha = 0.1  # a live change reaches the compiled code
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.tried(
    "Features of torch", "`torch.jit.script`", "how to", "`fixnorm.fold(model)` first"
)
def test_scripting_says_to_fold_first() -> None:
    model = nn.Sequential(fixnorm.FixNormLinear(3, 4, alpha=1.0))
    with pytest.raises(TypeError, match=r"cannot read a FixNormLinear: call fixnorm\.fold\(model"):
        script_quietly(model)
    assert script_quietly(fixnorm.fold(model))(torch.ones(2, 3)).shape == (2, 4)


def script_quietly(model: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that scripting is old
        return torch.jit.script(model)


@pytest.mark.tried("Features of torch", "`torch.export`", "works")
def test_export() -> None:
    model = nn.Sequential(fixnorm.FixNormConv2d(2, 4, 3, alpha=0.1)).eval()
    x = torch.randn(3, 2, 5, 5)
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), model(x))


def test_autocast_computes_in_bf16_with_a_float32_norm() -> None:
    layer = fixnorm.FixNormLinear(512, 64, alpha=0.5)
    x = torch.randn(4, 512)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert layer.effective_weight().dtype == torch.float32
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_is_carried(dtype: torch.dtype) -> None:
    layer = fixnorm.FixNormLinear(64, 8, alpha=4.0, dtype=dtype)
    assert {p.dtype for p in layer.parameters()} == {dtype}
    assert layer(torch.randn(2, 64, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan])
def test_alpha_must_be_positive(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must be a positive number but got"):
        fixnorm.FixNormLinear(2, 2, alpha=alpha)
    layer = fixnorm.FixNormLinear(2, 2, alpha=1.0)
    with pytest.raises(ValueError, match=r"alpha must be a positive number but got"):
        layer.alpha = alpha


def test_infinite_alpha_is_weight_norm() -> None:
    layer = fixnorm.FixNormLinear(3, 2, alpha=math.inf)
    with torch.no_grad():
        layer.g.fill_(1e6)
    assert layer.effective_scale().item() == 1e6


def test_repr_shows_alpha() -> None:
    assert repr(fixnorm.FixNormLinear(3, 2, alpha=0.5)).endswith("bias=True, alpha=0.5)")


def test_frobenius_of_a_large_weight_is_exact_to_2e_7() -> None:
    weight = torch.randn(2048, 1000)
    exact = float(weight.double().norm())
    assert abs(float(frobenius(weight)) / exact - 1) < 2e-7
    last = torch.randn(512, 512, 3, 3).to(memory_format=torch.channels_last)
    assert abs(float(frobenius(last)) / float(last.double().norm()) - 1) < 2e-7
