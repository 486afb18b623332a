"""Parameters and multiply-adds, worked out by hand."""

import pytest
import torch
from torch import Tensor, nn

from fixnorm import models
from fixnorm.models import Counts


def test_grouped_strided_conv_and_linear() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),  # 8×8 → 4×4
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )

    counts = models.count(model, (4, 8, 8))

    conv = 4 * 4 * 6 * (4 // 2) * 3 * 3
    assert counts == Counts(params=6 * 2 * 9 + 6 + 30 + 5, conv_macs=conv, macs=conv + 30)


def test_resnet8_by_hand() -> None:
    counts = models.count(models.create("resnet8"), (3, 32, 32))

    stem = 3 * 16 * 9
    one = 2 * 16 * 16 * 9
    two = (16 * 32 + 32 * 32) * 9 + 16 * 32
    three = (32 * 64 + 64 * 64) * 9 + 32 * 64
    norms = 2 * (16 + 2 * 16 + 3 * 32 + 3 * 64)
    head = 64 * 10
    assert counts.params == stem + one + two + three + norms + head + 10
    assert counts.conv_macs == (stem + one) * 32**2 + two * 16**2 + three * 8**2
    assert counts.macs == counts.conv_macs + head


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, image: Tensor) -> Tensor:
        tokens = image.flatten(1, 2)
        y: Tensor = self.mha(tokens, tokens, tokens)[0]
        return y


def test_attention_counts_its_products() -> None:
    tokens, width = 2, 4

    counts = models.count(Attention(), (1, tokens, width))

    projections = tokens * width * 4 * width
    products = 2 * tokens * tokens * width
    assert counts.conv_macs == 0
    assert counts.macs == projections + products


def test_a_model_without_products_counts_zero() -> None:
    assert models.count(nn.ReLU(), (3, 8, 8)) == Counts(params=0, conv_macs=0, macs=0)


def test_counting_leaves_the_model_as_it_was() -> None:
    model = models.create("tinynet-se", drop=0.2, drop_path=0.2).train()
    model.get_submodule("bn1").eval()
    modes = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    rng = torch.get_rng_state()

    models.count(model, (3, 32, 32))

    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_that_fails_is_given_back_too() -> None:
    model = models.create("resnet8").train()
    fused = torch.backends.mha.get_fastpath_enabled()

    with pytest.raises(RuntimeError, match="channels"):
        models.count(model, (4, 32, 32))

    assert all(module.training for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled() == fused


def test_meta_half_and_float_agree() -> None:
    with torch.device("meta"):
        meta = models.count(models.create("resnet8d"), (3, 16, 16))

    assert meta == models.count(models.create("resnet8d"), (3, 16, 16))
    assert meta == models.count(models.create("resnet8d").bfloat16(), (3, 16, 16))


@pytest.mark.parametrize("size", [(32, 32), (3, 0, 32)])
def test_input_size_is_checked(size: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"must be \(channels, height, width\) but got"):
        models.count(models.create("resnet8"), size)


def test_a_model_that_does_not_say_its_input_size() -> None:
    with pytest.raises(ValueError, match=r"Linear does not say its input size: set model\."):
        models.input_size(nn.Linear(2, 2))
