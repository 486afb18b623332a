"""Conversion in place: what is swapped, what is kept, what is refused, and the way back."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from fixnorm.conversion import conversion_of
from helpers.small_nets import GroupNet, MobileNet, ResNet


def test_roles_decide() -> None:
    model = MobileNet(tricks=True)
    x = torch.randn(4, 3, 12, 12)
    before = copy.deepcopy(model).eval()(x)
    report = fixnorm.convert(model, alpha=4.0)
    assert type(model.classifier) is fixnorm.FixNormLinear
    assert type(model.block[6].reduce) is fixnorm.WeightNormConv2d
    assert type(model.block[6].expand) is fixnorm.WeightNormConv2d
    assert type(model.stem[0]) is nn.Conv2d
    assert [head.name for head in report.heads] == ["classifier"]
    assert report.weight_normalised == ("block.6.reduce", "block.6.expand")
    assert len(report.fixed) == 7  # stem, three convs, two SE layers, classifier
    assert report.kept == ()
    torch.testing.assert_close(model.eval()(x), before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", [ResNet, MobileNet, lambda: MobileNet(tricks=True), GroupNet])
def test_after_convert_no_conv_or_linear_scale_matters(build: type[nn.Module]) -> None:
    model = build()
    report = fixnorm.convert(model, alpha=1.0)
    audit = fixnorm.audit(model)
    assert audit.names("unnormalised") == ()
    assert audit.names("head") == ()
    assert set(audit.names("fixed")) == set(report.fixed)


def test_fold_gives_the_original_architecture_and_outputs() -> None:
    model = MobileNet(tricks=True)
    names = list(model.state_dict())
    fixnorm.convert(model, alpha=0.2)  # capped from the start: the function changed
    with torch.no_grad():
        model.block[6].expand.g.mul_(3)
    x = torch.randn(4, 3, 12, 12)
    before = model.eval()(x)
    folded = fixnorm.fold(model)
    assert folded is model
    assert list(model.state_dict()) == names
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)
    plain = MobileNet(tricks=True).eval()
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain(x), before, rtol=1e-5, atol=1e-6)
    assert not any(isinstance(m, fixnorm.WeightNormConv2d) for m in model.modules())
    fixnorm.convert(model, alpha=1.0)  # and again


def test_a_head_that_is_cut_deep_is_told() -> None:
    """As where logits are divided by a temperature later: no fresh layer starts there."""
    model = ResNet()
    with torch.no_grad():
        model.fc.weight.mul_(40)
    with pytest.warns(UserWarning, match=r"fc starts at \d+\.?\d* and is cut to its cap of 2\.24"):
        fixnorm.convert(model, alpha=1.0)


def test_pretrained_plain_weights_load_after_convert() -> None:
    pretrained, model = ResNet().eval(), ResNet().eval()
    fixnorm.convert(model, alpha=8.0)
    model.load_state_dict(pretrained.state_dict())
    x = torch.randn(4, 3, 12, 12)
    torch.testing.assert_close(model(x), pretrained(x), rtol=1e-5, atol=1e-6)


def test_report_is_readable() -> None:
    model = MobileNet(tricks=True)
    text = str(fixnorm.convert(model, alpha=0.5))
    assert "method fixnorm: the norm of 7 weights will be fixed" in text
    assert "head classifier: capped scale" in text
    assert "at the cap from the start" in text
    assert "weight-normalised, as no norm follows: block.6.reduce, block.6.expand" in text


def test_methods_by_name() -> None:
    free, plain = ResNet(), ResNet()
    fixnorm.convert(free, method="wn-fc")
    assert type(free.fc) is fixnorm.WeightNormLinear
    report = fixnorm.convert(plain, method="algorithm1")
    assert type(plain.fc) is nn.Linear
    assert "fc.weight" not in report.fixed
    assert [head.name for head in report.heads] == ["fc"]


def test_conversion_survives_deepcopy_and_pickle() -> None:
    model = ResNet()
    report = fixnorm.convert(model, alpha=1.0)
    assert conversion_of(copy.deepcopy(model)) == report
    assert conversion_of(pickle.loads(pickle.dumps(model))) == report


class TwoOutputs(ResNet):
    def __init__(self) -> None:
        super().__init__()
        self.box = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.norm(self.stem(x)))
        x = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))).mean((2, 3))
        return self.fc(x), self.box(x)


def test_all_measured_heads_are_capped_unless_the_caller_names_one() -> None:
    both, one = TwoOutputs(), TwoOutputs()
    fixnorm.convert(both, alpha=1.0)
    assert type(both.fc) is type(both.box) is fixnorm.FixNormLinear
    fixnorm.convert(one, alpha=1.0, head="fc")
    assert type(one.fc) is fixnorm.FixNormLinear
    assert type(one.box) is fixnorm.WeightNormLinear


def test_exclude_leaves_a_part_alone() -> None:
    model = MobileNet(tricks=True)
    report = fixnorm.convert(model, alpha=1.0, exclude=["block.6", "stem"])
    assert type(model.block[6].reduce) is nn.Conv2d
    assert "stem.0.weight" not in report.fixed
    assert {kept.name for kept in report.kept} == {
        "stem.0.weight",
        "block.6.reduce.weight",
        "block.6.expand.weight",
    }
    assert {kept.reason for kept in report.kept} == {"excluded by the caller"}


class Rectified(nn.Module):
    """SqueezeNet's kind of head: a conv before ReLU and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3)
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.last(torch.relu(self.first(x)))).mean((2, 3))


class OddLayers(nn.Module):
    """A head, and weights that no layer of ours can stand in for."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(4, 6))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.mix = nn.Conv1d(6, 6, 1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.position
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.fc(torch.tanh(self.mix(x.transpose(1, 2))).mean(2))


def test_weights_that_cannot_be_normalised_are_kept_and_named() -> None:
    model = OddLayers()
    with pytest.warns(UserWarning, match="matters and it is not fixed") as told:
        report = fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 4, 6))
    assert [str(warning.message).split(" matters")[0] for warning in told] == [
        "the scale of attention.in_proj_weight",
        "the scale of attention.out_proj.weight",
    ]
    assert {kept.name: kept.reason for kept in report.kept} == {
        "position": "OddLayers has no weight-normalised form",
        "attention.in_proj_weight": "MultiheadAttention has no weight-normalised form",
        "attention.out_proj.weight": "its weight is used without the layer being called",
    }
    assert report.fixed == ("mix.weight", "fc.weight")


class UsedFromOutside(nn.Module):
    """A linear layer whose weight is used without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(x @ self.hidden.weight.T))


def test_a_layer_that_is_never_called_is_kept_with_a_warning() -> None:
    model = UsedFromOutside()
    x = torch.randn(4, 6)
    before = model(x)
    with pytest.warns(UserWarning, match=r"scale of hidden\.weight matters and it is not fixed"):
        report = fixnorm.convert(model, alpha=8.0, sample=x)
    assert type(model.hidden) is nn.Linear
    assert report.kept[0].reason == "its weight is used without the layer being called"
    torch.testing.assert_close(model(x), before)


class Renamed(nn.Linear):
    """A subclass that computes what nn.Linear does, as timm has one."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class SamePadding(nn.Conv2d):
    """A subclass with a padding of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.pad(x, (0, 1, 0, 1)))


def test_subclasses_are_taken_if_they_compute_what_the_plain_layer_does() -> None:
    model = nn.Sequential(
        SamePadding(3, 4, 2), nn.Tanh(), SamePadding(4, 4, 1), nn.Flatten(), Renamed(324, 2)
    )
    with pytest.warns(UserWarning, match=r"SamePadding has no weight-normalised form"):
        report = fixnorm.convert(model, alpha=1.0, sample=torch.randn(4, 3, 8, 8))
    assert type(model[4]) is fixnorm.FixNormLinear
    assert [kept.name for kept in report.kept] == ["0.weight", "2.weight"]
    fixnorm.fold(model)
    assert type(model[4]) is Renamed


class TiedLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fc = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.b(torch.tanh(self.a(x)))))


def test_tied_layers_are_normalised_together_and_stay_tied() -> None:
    model = TiedLinears()
    x = torch.randn(4, 6)
    before = model(x)
    report = fixnorm.convert(model, alpha=8.0)
    assert model.a.weight is model.b.weight
    assert type(model.a) is type(model.b) is fixnorm.WeightNormLinear
    assert report.fixed == ("a.weight", "fc.weight")
    torch.testing.assert_close(model(x), before)


def snapshot(model: nn.Module) -> tuple[list[type], dict[str, Tensor]]:
    return [type(m) for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}


def converted() -> nn.Module:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    return model


def zeroed() -> nn.Module:
    model = ResNet()
    nn.init.zeros_(model.fc.weight)
    return model


@pytest.mark.parametrize(
    ("build", "arguments", "match"),
    [
        (ResNet, {}, "method 'fixnorm' needs a cap: fixnorm.convert"),
        (ResNet, {"alpha": 0.0}, "alpha must be a positive number but got 0.0"),
        (ResNet, {"alpha": float("nan")}, "alpha must be a positive number but got nan"),
        (ResNet, {"alpha": 1.0, "method": "wn-fc"}, "method 'wn-fc' has no cap"),
        (ResNet, {"method": "weight-decay"}, "plain weight decay needs no convert"),
        (ResNet, {"method": "fixnrom"}, "method must be one of fixnorm, wn-fc, algorithm1"),
        (converted, {"alpha": 1.0}, "converted already; set layer.alpha"),
        (Rectified, {"alpha": 1.0}, r"no head found.*head=NAME.*last first: last, first"),
        (ResNet, {"alpha": 1.0, "head": "fcc"}, "head: the model has no layer 'fcc'; .*mean fc"),
        (ResNet, {"alpha": 1.0, "head": "bn1"}, "head bn1 is a BatchNorm2d; only a layer that"),
        (ResNet, {"alpha": 1.0, "head": "conv1"}, "conv1 cannot be the head: .* on its scale"),
        (ResNet, {"alpha": 1.0, "exclude": ["convl"]}, "exclude: the model has no layer 'convl'"),
        (zeroed, {"alpha": 1.0}, r"fc\.weight is all zeros and has no direction"),
        (ResNet, {"alpha": 1.0, "sample": torch.randn(4, 1, 8, 8)}, "not be run on the sample"),
    ],
)
def test_refused_with_the_next_move_and_the_model_as_before(build, arguments, match) -> None:  # type: ignore[no-untyped-def]
    model = build()
    types, state = snapshot(model)
    with pytest.raises(ValueError, match=match):
        fixnorm.convert(model, **arguments)
    assert snapshot(model)[0] == types
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_a_named_head_works_where_measurement_cannot_tell() -> None:
    model = Rectified()
    fixnorm.convert(model, alpha=1.0, head="last")
    assert type(model.last) is fixnorm.FixNormConv2d
    assert fixnorm.audit(model).names("unnormalised") == ()


def test_wrappers_come_after_convert() -> None:
    with pytest.raises(ValueError, match=r"convert the model first, then torch\.compile it"):
        fixnorm.convert(torch.compile(ResNet()), alpha=1.0)
    with pytest.raises(TypeError, match=r"convert needs an nn\.Module but got OrderedDict"):
        fixnorm.convert(ResNet().state_dict(), alpha=1.0)
