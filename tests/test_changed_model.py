"""What happened to the model after ``convert``, and what its sample did not see."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import fixnorm
from helpers.small_nets import MobileNet, ResNet


def converted() -> ResNet:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    return model


def replaced_head(model: ResNet) -> None:
    model.fc = nn.Linear(8, 7)


def wider_conv(model: ResNet) -> None:
    model.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)


def pruned(model: ResNet) -> None:
    prune.l1_unstructured(model.conv1, "weight", 0.5)


def parametrized(model: ResNet) -> None:
    parametrizations.spectral_norm(model.conv1)


def wrapped(model: ResNet) -> None:
    model.conv1 = nn.Sequential(model.conv1)


def another_layer(model: ResNet) -> None:
    model.extra = nn.Linear(8, 8)


@pytest.mark.tried(
    "Models",
    "layers replaced, pruned, parametrized or wrapped after `convert`",
    "refused",
    "convert last",
)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (replaced_head, r"fc\.weight is Linear 7×8, was FixNormLinear 5×8"),
        (wider_conv, r"stem\.weight is Conv2d 8×1×3×3, was Conv2d 8×3×3×3"),
        (pruned, r"conv1\.weight is gone; conv1\.weight_orig is new"),
        (
            parametrized,
            r"conv1\.weight is gone; .*conv1\.parametrizations\.weight\.original is new",
        ),
        (wrapped, r"conv1\.weight is gone; conv1\.0\.weight is new"),
        (another_layer, r"extra\.weight is new"),
    ],
)
def test_a_changed_model_is_refused_with_the_names(
    change: Callable[[ResNet], None], told: str
) -> None:
    model = converted()
    change(model)
    with pytest.raises(ValueError, match=rf"changed since convert: {told}.*first, then convert"):
        fixnorm.param_groups(model)


@pytest.mark.tried("Models", "timm's `reset_classifier` after `convert`", "refused", "before it")
def test_timms_reset_classifier_is_a_change() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("resnet18", num_classes=4)
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 32, 32))
    model.reset_classifier(6)
    with pytest.raises(ValueError, match=r"fc\.weight is Linear 6×512, was FixNormLinear 4×512"):
        fixnorm.param_groups(model)


def test_wrappers_of_torch_and_new_frozen_layers_are_no_change() -> None:
    model = converted()
    model.conv1 = torch.compile(model.conv1, backend="eager")  # its name has _orig_mod now
    model.teacher = nn.Linear(8, 8).requires_grad_(False)
    fixed, rest = fixnorm.param_groups(model)
    assert len(fixed["params"]) == 4
    assert len(rest["params"]) == 8  # three norms, the head's bias and scale
    fixnorm.attach(torch.optim.SGD([fixed, rest], lr=0.3))


def test_folding_and_converting_again_is_the_way_out() -> None:
    model = converted()
    replaced_head(model)
    fixnorm.fold(model)
    fixnorm.convert(model, alpha=1.0)
    assert len(fixnorm.param_groups(model)[0]["params"]) == 4


class Dropped(nn.Module):
    """A branch that only long inputs reach."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.at_times = nn.Linear(6, 6), nn.Linear(6, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.always(x))
        return self.fc(x + self.at_times(x) if x.shape[1] > 1 else x).mean(1)


def test_weights_that_the_sample_did_not_reach_are_told() -> None:
    model = Dropped()
    with pytest.warns(UserWarning, match=r"sample did not reach at_times\.weight: not fixed"):
        report = fixnorm.convert(model, alpha=1.0, head="fc", sample=torch.randn(4, 1, 6))
    assert report.unused == ("at_times.weight",)
    assert "not reached by the sample, and free: at_times.weight" in str(report)
    for excluded, frozen, sample in (
        ("at_times", False, torch.randn(4, 1, 6)),
        ((), True, torch.randn(4, 1, 6)),
        ((), False, torch.randn(4, 2, 6)),
    ):
        model = Dropped()
        model.at_times.requires_grad_(not frozen)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            report = fixnorm.convert(model, alpha=1.0, head="fc", exclude=excluded, sample=sample)
        assert report.unused == ()


class Recurrent(nn.Module):
    """Layers of other kinds than images need."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(4, 6, 3, padding=1)
        self.up = nn.ConvTranspose1d(6, 6, 2, stride=2)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Conv1d(5, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.up(torch.tanh(self.one(x))))
        return self.head(self.lstm(x.transpose(1, 2))[0].transpose(1, 2))


@pytest.mark.tried(
    "Models",
    "1-d and 3-d convolutions, transposed ones, LSTM",
    "works",
    "recurrent weights stay free, with a warning",
)
def test_other_convolutions_are_scaled_and_the_rest_is_warned_of() -> None:
    model = Recurrent()
    x = torch.randn(4, 4, 8)
    before = model(x)
    with pytest.warns(UserWarning, match=r"lstm\.weight_ih_l0 and 1 more matters.*LSTM has no wei"):
        report = fixnorm.convert(model, alpha=1.0, sample=x)
    assert report.fixed == ("one.weight", "up.weight", "head.weight")
    assert [head.name for head in report.heads] == ["head"]
    assert type(model.head).__name__ == "FixNormConv1d"
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)
    fixnorm.fold(model)
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)


class Conv1D(nn.Module):
    """transformers' own linear layer, the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def test_a_layer_of_somebody_else_that_cannot_be_scaled_is_warned_of() -> None:
    model = nn.Sequential(nn.Embedding(9, 6), Conv1D(), nn.Tanh(), nn.Linear(6, 3))
    with pytest.warns(
        UserWarning, match=r"scale of 1\.weight matters.*Conv1D has no weight"
    ) as told:
        report = fixnorm.convert(model, alpha=1.0, sample=torch.arange(9).reshape(3, 3))
    assert len(told) == 1
    assert [kept.name for kept in report.kept] == ["0.weight", "1.weight"]


def test_a_frozen_layer_that_cannot_be_scaled_is_not_warned_of() -> None:
    model = Recurrent()
    model.lstm.requires_grad_(False)
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 4, 8))


class OddHead(nn.Module):
    """A head whose class computes something of its own."""

    class Head(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(2 * x)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.fc = self.Head(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_algorithm1_refuses_no_head_that_it_does_not_touch() -> None:
    with pytest.raises(ValueError, match="only a layer that computes what"):
        fixnorm.convert(OddHead(), alpha=1.0)
    model = OddHead()
    report = fixnorm.convert(model, method="algorithm1")
    assert report.fixed == ("conv.weight",)
    assert type(model.fc) is OddHead.Head


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"head": 5}, TypeError, r"head must be a name or several of the model's layers.*got 5"),
        ({"head": ["classifier", 1]}, TypeError, "head must be a name or several"),
        ({"exclude": 3.5}, TypeError, r"exclude must be a name or several.*got 3\.5"),
        ({"alpha": True}, ValueError, "alpha must be a positive number but got True"),
        ({"alpha": "2"}, ValueError, "alpha must be a positive number but got '2'"),
        ({"alpha": float("nan")}, ValueError, "alpha must be a positive number but got nan"),
        ({"method": ["fixnorm"]}, ValueError, r"method must be one of .* but got \['fixnorm'\]"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, object], error: type[Exception], match: str
) -> None:
    model = MobileNet()
    before = repr(model)
    with pytest.raises(error, match=match):
        fixnorm.convert(model, **{"alpha": 1.0} | arguments)
    assert repr(model) == before
