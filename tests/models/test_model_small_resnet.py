"""The CIFAR ResNets and the digits net."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fixnorm import models
from fixnorm.models.small_resnet import DropPath, SmallResNet


def build(name: str) -> SmallResNet:
    model = models.create(name)
    assert isinstance(model, SmallResNet)
    return model


# Depth 6n+2 counts the 3×3 convolutions and the head; the shortcut's 1×1 ones do not count.
@pytest.mark.parametrize("depth", [8, 14, 20, 32, 44, 56])
def test_depth(depth: int) -> None:
    model = build(f"resnet{depth}")

    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]

    assert len(convs) + 1 == depth


def test_width_and_stem_stride() -> None:
    x = torch.randn(2, 3, 32, 32)

    assert build("resnet8").forward_features(x).shape == (2, 64, 8, 8)
    assert build("resnet8-w32").forward_features(x).shape == (2, 128, 8, 8)
    assert build("resnet8-s2").forward_features(x).shape == (2, 64, 4, 4)
    assert build("resnet8d-w8-s2").forward_features(x).shape == (2, 32, 4, 4)


def test_d_variant_has_a_deep_stem_and_average_pool_shortcuts() -> None:
    plain, deep = build("resnet8-w32"), build("resnet8d-w32")

    stem = [m.weight.shape[:2] for m in deep.stem if isinstance(m, nn.Conv2d)]
    assert stem == [(16, 3), (16, 16), (32, 16)]
    assert [m.weight.shape[:2] for m in plain.stem if isinstance(m, nn.Conv2d)] == [(32, 3)]

    def kinds(model: SmallResNet) -> list[tuple[str, object]]:
        return [
            (name, module.stride)
            for name, module in model.named_modules()
            if "shortcut" in name and isinstance(module, nn.AvgPool2d | nn.Conv2d)
        ]

    assert [stride for _, stride in kinds(plain)] == [(2, 2), (2, 2)]
    assert [stride for _, stride in kinds(deep)] == [2, (1, 1), 2, (1, 1)]


def test_d_variant_needs_an_even_width() -> None:
    with pytest.raises(ValueError, match=r"'resnet8d-w7': .* the width must be even"):
        models.create("resnet8d-w7")


@pytest.mark.parametrize("name", ["resnet8", "resnet8d", "resnet8d-s2"])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (8, 8), (96, 33)])
def test_any_input_size(name: str, size: tuple[int, int]) -> None:
    assert build(name).eval()(torch.randn(2, 3, *size)).shape == (2, 10)


def test_convolutions_start_at_he_scale() -> None:
    torch.manual_seed(0)
    conv = build("resnet8-w32").get_submodule("stages.2.0.conv1")
    assert isinstance(conv, nn.Conv2d)

    # std² = 2 / fan_out = 2 / (3·3 positions × 128 outputs); it has 64 inputs
    assert conv.weight.std().item() == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.01)


def test_drop_path_zeroes_a_share_of_the_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop = DropPath(0.2).train()
    y = drop(torch.ones(10_000, 2, 1, 1))

    assert torch.equal(y[:, 0], y[:, 1])  # a sample is dropped whole
    assert set(y.unique().tolist()) == {0.0, 1.25}  # 1 / (1 - 0.2)
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(drop.eval()(torch.ones(3, 2, 1, 1)), torch.ones(3, 2, 1, 1))


def test_drop_path_rates_grow_linearly() -> None:
    model = models.create("resnet14", drop_path=0.5)

    rates = [m.p for m in model.modules() if isinstance(m, DropPath)]

    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.slow
def test_digits_resnet_reads_digits() -> None:
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float().view(-1, 1, 8, 8) / 8 - 1
    y = torch.from_numpy(labels)
    order = torch.randperm(len(y))
    train, val = order[:1437], order[1437:]
    model = models.create("digits-resnet")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    epochs, batch = 8, 64
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    for _ in range(epochs):
        for part in torch.split(train[torch.randperm(len(train))], batch):
            loss = functional.cross_entropy(model(x[part]), y[part], label_smoothing=0.1)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        schedule.step()

    with torch.no_grad():
        correct = model.eval()(x[val]).argmax(1) == y[val]
    assert correct.float().mean().item() >= 0.98
