"""Inputs that the audit guesses: the smallest that the model takes and that starves no layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from helpers.small_nets import GroupNet, MobileNet, ResNet


def stages(count: int) -> nn.Sequential:
    """Convolutions of stride 2 under norms."""
    layers: list[nn.Module] = []
    for i in range(count):
        conv = nn.Conv2d(4 if i else 3, 4, 3, stride=2, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(4), nn.ReLU()]
    return nn.Sequential(*layers)


def classifier(features: int = 4) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, 5)]


class Pooled(nn.Module):
    """A norm behind global pooling has one position whatever the size."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.pool = stages(3), nn.AdaptiveAvgPool2d(1)
        self.context = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.context(self.pool(self.body(x))).flatten(1))


class Attention(nn.Module):
    """At 16 px one token is left, and a softmax over one has no use for queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 4, 16, stride=16)
        self.q, self.k, self.v = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.fc = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = (self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1) @ self.v(x)
        return self.fc(x.mean(1))


def says(model: nn.Module, *size: int, fixed: bool = False) -> nn.Module:
    model.pretrained_cfg = {"input_size": size, "fixed_input_size": fixed}
    return model


def pooled_net(depth: int) -> nn.Module:
    return nn.Sequential(stages(depth), nn.AdaptiveAvgPool2d(1), *classifier())


@pytest.mark.parametrize(
    ("build", "side"),
    [
        (lambda: pooled_net(2), 16),
        (lambda: pooled_net(5), 64),  # 2×2 positions are left
        (lambda: nn.Sequential(stages(2), nn.AvgPool2d(8), *classifier()), 32),  # CIFAR's way
        (lambda: nn.Sequential(stages(1), *classifier(14 * 14 * 4)), 28),
        (lambda: nn.Sequential(stages(1), *classifier(4 * 4 * 4)), 8),
        (lambda: nn.Sequential(stages(1), nn.AvgPool2d(150), *classifier()), 299),
        (Pooled, 16),
        (Attention, 128),
        (lambda: says(pooled_net(5), 3, 224, 224), 64),
        (lambda: says(pooled_net(5), 3, 224, 224, fixed=True), 224),
        (lambda: says(pooled_net(1), 3, 8, 8), 8),
    ],
)
def test_side_of_the_images(build: Callable[[], nn.Module], side: int) -> None:
    """Only at the chosen size is there a graph, so that larger tries that fail cost little."""
    sides: dict[bool, list[int]] = {True: [], False: []}
    model = build()
    model.register_forward_pre_hook(  # the copy has it, too
        lambda _, args: sides[torch.is_grad_enabled()].append(args[0].shape[-1])
    )
    audit = fixnorm.audit(model)
    assert sides[True][-2:] == [side, side]
    assert sides[False][-1] == side  # evaluation mode
    assert set(sides[True]) == ({16, 128} if isinstance(model, Attention) else {side})
    assert audit.names("unused") == ()
    assert audit.counts()["head"] == 1


@pytest.mark.parametrize("build", [ResNet, MobileNet, lambda: MobileNet(tricks=True), GroupNet])
def test_roles_at_the_guessed_size_are_those_at_a_large_one(build: type[nn.Module]) -> None:
    model = build()
    small, large = fixnorm.audit(model), fixnorm.audit(model, torch.randn(8, 3, 96, 96))
    assert [(row.name, row.role) for row in small] == [(row.name, row.role) for row in large]


def test_truly_unused_weights_stay_so() -> None:
    model = pooled_net(2)
    model.append(nn.Identity())
    model[-1].spare = nn.Linear(3, 3)
    assert fixnorm.audit(model).names("unused") == ("4.spare.weight",)


CONVS = {
    1: (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d),
    2: (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d),
    3: (nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d),
}


@pytest.mark.parametrize("dimensions", CONVS)
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_of_every_kind_are_guessed_and_have_roles(
    dimensions: int, transposed: bool
) -> None:
    conv, convt, norm = CONVS[dimensions]
    layer = convt if transposed else conv
    model = nn.Sequential(
        layer(2, 4, 3, bias=False), norm(4), nn.ReLU(), layer(4, 4, 3), nn.ReLU(), layer(4, 3, 1)
    )
    audit = fixnorm.audit(model)
    roles = {row.name: row.role for row in audit if row.role != "free"}
    assert roles == {"0.weight": "fixed", "3.weight": "unnormalised", "5.weight": "head"}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_weights_matter_also_those_of_one_input(kind: type[nn.RNNBase]) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.fc = kind(1, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.rnn(x)[0])

    audit = fixnorm.audit(Last())
    assert audit.names("unnormalised") == ("rnn.weight_ih_l0", "rnn.weight_hh_l0")
    assert audit.names("head") == ("fc.weight",)
    assert all(row.called for row in audit)
