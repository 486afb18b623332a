"""Roles by measurement, on small models whose truth is known."""

from __future__ import annotations

import copy
import gc
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import pytest
import torch
import torch.fx
from torch import Tensor, nn

import fixnorm
from helpers.small_nets import changed, state


def conv_bn(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


def roles(audit: fixnorm.Audit) -> dict[str, str]:
    return {row.name: row.role for row in audit if row.role != "free"}


class SmallNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, 6), conv_bn(6, 8))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.drop(self.pool(self.body(x)).flatten(1)))


def test_conv_bn_linear() -> None:
    audit = fixnorm.audit(SmallNet())
    assert roles(audit) == {
        "body.0.0.weight": "fixed",
        "body.1.0.weight": "fixed",
        "fc.weight": "head",
    }
    assert audit.counts() == {"fixed": 2, "head": 1, "unnormalised": 0, "free": 5, "unused": 0}
    assert audit["body.0.0.weight"].figure < 1e-13
    assert audit["fc.weight"].figure > 1e-4


def test_model_rng_and_default_dtype_are_untouched() -> None:
    model = SmallNet()
    model.body[0].eval()
    model.fc.weight.requires_grad_(False)
    before = copy.deepcopy(model)
    state = torch.get_rng_state()
    fixnorm.audit(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == torch.float32
    for (name, a), (_, b) in zip(
        model.state_dict().items(), before.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
        assert a.dtype == b.dtype
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == [
        0 for _ in model.modules()
    ]
    assert all(p.grad is None for p in model.parameters())
    assert not model.fc.weight.requires_grad


def test_plain_mlp_has_one_head_and_the_rest_unnormalised() -> None:
    model = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 3))
    assert roles(fixnorm.audit(model)) == {
        "0.weight": "unnormalised",
        "2.weight": "unnormalised",
        "4.weight": "head",
    }


def test_deep_linear_net_has_only_its_last_layer_as_head() -> None:
    model = nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 3))
    assert roles(fixnorm.audit(model)) == {"0.weight": "unnormalised", "1.weight": "head"}


def test_head_under_pooling_and_upsampling_is_linear_and_under_relu_is_not() -> None:
    upsampled = nn.Sequential(conv_bn(3, 4), nn.Conv2d(4, 5, 1), nn.Upsample(scale_factor=2))
    assert roles(fixnorm.audit(upsampled, torch.randn(4, 3, 8, 8)))["1.weight"] == "head"
    rectified = nn.Sequential(conv_bn(3, 4), nn.Conv2d(4, 5, 1), nn.ReLU())
    assert roles(fixnorm.audit(rectified, torch.randn(4, 3, 8, 8)))["1.weight"] == "unnormalised"


def test_one_column_of_many_under_a_tanh_makes_no_head() -> None:
    class LastButTwo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2000)

        def forward(self, x: Tensor) -> Tensor:
            y = self.fc(x)
            return torch.cat([y[:, :1997], torch.tanh(y[:, 1997:1998]), y[:, 1998:]], 1)

    assert roles(fixnorm.audit(LastButTwo())) == {"fc.weight": "unnormalised"}


class Zeroed(nn.Module):
    """Zero-initialised γ and a zero conv: both hide what is behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, 4)
        self.branch = nn.Sequential(conv_bn(4, 4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
        nn.init.zeros_(self.branch[2].weight)
        self.context = nn.Conv2d(4, 4, 1)
        nn.init.zeros_(self.context.weight)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.branch(x)
        return self.fc(torch.sigmoid(x + self.context(x)).mean((2, 3)))


def test_zero_initialised_parts_do_not_feign_invariance() -> None:
    assert roles(fixnorm.audit(Zeroed())) == {
        "stem.0.weight": "fixed",
        "branch.0.0.weight": "fixed",
        "branch.1.weight": "fixed",
        "context.weight": "unnormalised",
        "fc.weight": "head",
    }


def test_frozen_parameters_are_measured_and_marked() -> None:
    model = SmallNet()
    for parameter in model.body.parameters():
        parameter.requires_grad_(False)
    audit = fixnorm.audit(model)
    assert audit["body.0.0.weight"].role == "fixed"
    assert not audit["body.0.0.weight"].trainable
    assert "fixed (frozen)" in str(audit)


class Unused(SmallNet):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


def test_unused_parameters_are_said_so() -> None:
    assert fixnorm.audit(Unused())["spare.weight"].role == "unused"


class TwoHeads(SmallNet):
    def __init__(self) -> None:
        super().__init__()
        self.aux = nn.Conv2d(6, 5, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.body[0](x)
        out = self.fc(self.pool(self.body[1](hidden)).flatten(1))
        return OrderedDict(out=out, aux=self.aux(hidden))


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, ...]


class DataclassOutput(SmallNet):
    def forward(self, x: Tensor) -> Output:
        hidden = self.body(x)
        return Output(self.fc(hidden.mean((2, 3))), (hidden,))


def test_several_heads_dicts_and_dataclasses() -> None:
    assert set(fixnorm.audit(TwoHeads()).names("head")) == {"fc.weight", "aux.weight"}
    assert fixnorm.audit(DataclassOutput()).names("head") == ("fc.weight",)


class Tied(nn.Module):
    """An output layer that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(self.embedding(tokens))))


def test_tied_weights_are_one_row_and_no_head() -> None:
    audit = fixnorm.audit(Tied(), torch.randint(0, 11, (4, 5)))
    row = audit["out.weight"]
    assert row.name == "embedding.weight"
    assert row.also == ("out.weight",)
    assert row.role == "unnormalised"  # the output is not linear in it
    assert row.head_uses == ("out.weight",)  # but in this use of it
    assert row.called
    assert audit["hidden.weight"].head_uses == ()
    assert audit.to_dict()["rows"][0]["head_uses"] == ["out.weight"]
    assert "embedding.weight = out.weight" in str(audit)


class SharedConv(nn.Module):
    """One conv used twice, each time under a norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.a, self.b = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.a(self.conv(x)))
        return self.fc(torch.relu(self.b(self.conv(x))).mean((2, 3)))


def test_a_layer_used_twice_under_norms_is_fixed() -> None:
    assert fixnorm.audit(SharedConv())["conv.weight"].role == "fixed"


def test_layer_norm_group_norm_and_weight_standardisation_are_seen() -> None:
    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            w = self.weight
            w = (w - w.mean((1, 2, 3), True)) / w.std((1, 2, 3), keepdim=True)
            return self._conv_forward(x, w, self.bias)

    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.GroupNorm(2, 4),
        Standardised(4, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 8),
        nn.LayerNorm(8),
        nn.Linear(8, 2),
    )
    found = fixnorm.audit(model, torch.randn(4, 3, 8, 8))
    # A linear layer with a bias under LayerNorm: the bias keeps its size, so the scale matters.
    assert roles(found) == {
        "0.weight": "unnormalised",
        "2.weight": "fixed",
        "5.weight": "unnormalised",
        "7.weight": "head",
    }


def test_biasless_layers_under_layer_norm_are_fixed() -> None:
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 2))
    assert roles(fixnorm.audit(model)) == {"0.weight": "fixed", "2.weight": "head"}


def test_frozen_batch_norm_does_not_make_a_conv_invariant() -> None:
    from torchvision.ops import FrozenBatchNorm2d

    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        FrozenBatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 36, 2),
    )
    assert fixnorm.audit(model, torch.randn(4, 3, 8, 8))["0.weight"].role == "unnormalised"


def test_a_layer_with_one_output_is_a_weight_and_a_gain_is_not() -> None:
    class Gain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(6, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain

    model = nn.Sequential(conv_bn(3, 6), Gain(), nn.Conv2d(6, 1, 1))
    audit = fixnorm.audit(model, torch.randn(4, 3, 8, 8))
    assert audit["1.gain"].role == "free"
    assert audit["2.weight"].role == "head"


def test_weights_of_layers_and_affines_of_norms_whatever_their_shape() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 6)
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
            self.bilinear = nn.Bilinear(1, 1, 3)
            self.norm = nn.LayerNorm((5, 3))
            self.fc = nn.Linear(3, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            x = self.attention(x, x, x)[0].sum(-1, keepdim=True)
            return self.fc(torch.relu(self.norm(self.bilinear(x, x))))

    audit = fixnorm.audit(Mixed(), torch.randint(0, 7, (4, 5)))
    assert roles(audit) == {
        "embedding.weight": "unnormalised",
        "attention.in_proj_weight": "unnormalised",
        "attention.out_proj.weight": "unnormalised",
        "bilinear.weight": "unnormalised",
        "fc.weight": "head",
    }
    uncalled = {row.name for row in audit if not row.called}
    assert uncalled == {"attention.out_proj.weight", "attention.out_proj.bias"}


def test_a_single_output_is_no_classifier_unless_named() -> None:
    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.ReLU())
            self.policy, self.value = nn.Linear(6, 3), nn.Linear(6, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.body(x)
            return self.policy(x), self.value(x)

    model = ActorCritic()
    assert fixnorm.audit(model).names("head") == ("policy.weight", "value.weight")
    with pytest.raises(ValueError, match=r"value has one output.* Name it .* head='value'"):
        fixnorm.convert(model, alpha=1.0)
    assert type(model.policy) is nn.Linear
    report = fixnorm.convert(model, alpha=1.0, head="policy")
    assert [head.name for head in report.heads] == ["policy"]
    assert report.weight_normalised == ("value",)
    meant = ActorCritic()
    fixnorm.convert(meant, alpha=1.0, head=["policy", "value"])
    assert type(meant.value) is fixnorm.FixNormLinear


def test_callable_sample_runs_the_copy_or_parts_of_it() -> None:
    seen: list[nn.Module] = []
    model = SmallNet()
    images, targets = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))

    def losses(m: nn.Module) -> Tensor:
        seen.append(m)
        return nn.functional.cross_entropy(m(images), targets)

    audit = fixnorm.audit(model, losses)
    assert all(m is not model for m in seen)
    assert audit["body.0.0.weight"].role == "fixed"
    assert audit["fc.weight"].role == "unnormalised"  # a loss is not linear in the head
    parts = fixnorm.audit(model, lambda m: m.fc(m.body(images).mean((2, 3))))
    assert parts["fc.weight"].role == "head"


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (
            lambda model, x: model(x),
            "ran the model itself, not the copy it was given: write sample",
        ),
        (lambda model, x: model.fc(model.body(x).mean((2, 3))), "ran the model itself"),
        (
            lambda model, x: nn.functional.linear(x.double().mean((2, 3)), model.fc.weight[:, :3]),
            "no weight of the copy that the callable was given: write sample=lambda m",
        ),
    ],
)
def test_a_callable_that_runs_the_model_itself_is_refused(
    run: Callable[[nn.Module, Tensor], Tensor], match: str
) -> None:
    model = SmallNet().double()
    before = state(model)
    with pytest.raises(ValueError, match=match):
        fixnorm.audit(model, lambda copied: run(model, torch.randn(4, 3, 8, 8).double()))
    assert changed(before, model) == set()  # running statistics, too
    model(torch.randn(4, 3, 8, 8).double())  # it may run again


def test_number_of_passes_does_not_grow_with_the_number_of_weights() -> None:
    for depth in (2, 12):
        calls = {"forward": 0}
        model = nn.Sequential(*[conv_bn(3, 3) for _ in range(depth)], nn.Conv2d(3, 2, 1))

        def run(m: nn.Module, calls: dict[str, int] = calls) -> Tensor:
            calls["forward"] += 1
            return m(torch.randn(4, 3, 8, 8))

        fixnorm.audit(model, run)
        assert calls["forward"] == 3  # two in training mode, one in evaluation mode


@pytest.mark.slow
def test_nothing_stays_in_memory() -> None:
    model = SmallNet()

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    before = tensors()
    fixnorm.audit(model)
    assert tensors() == before


def test_tuple_of_inputs() -> None:
    class Sum(SmallNet):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return super().forward(x + y)

    sample = (torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8))
    assert fixnorm.audit(Sum(), sample)["fc.weight"].role == "head"


def test_keyword_inputs() -> None:
    audit = fixnorm.audit(SmallNet(), {"x": torch.randn(4, 3, 8, 8)})
    assert audit["fc.weight"].role == "head"


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")
def test_fx_graphs_are_audited_and_script_modules_refused() -> None:
    graph = torch.fx.symbolic_trace(SmallNet())
    fixnorm.convert(graph, alpha=1.0)
    assert type(graph.fc) is fixnorm.FixNormLinear
    scripted = torch.jit.script(SmallNet())
    with pytest.raises(TypeError, match=r"the model is TorchScript.* from, .*fixnorm\.fold"):
        fixnorm.convert(scripted, alpha=1.0)
    with pytest.raises(TypeError, match="1 is a TorchScript module"):
        fixnorm.audit(nn.Sequential(nn.Linear(3, 3), scripted))


def test_a_model_that_cannot_be_copied_is_named_with_what_cannot() -> None:
    model = SmallNet()
    model.body.lock = threading.Lock()
    match = (
        r"SmallNet cannot be copied.* attribute body\.lock, TypeError: cannot pickle.*Take it off"
    )
    with pytest.raises(ValueError, match=match):
        fixnorm.audit(model)


def test_table_and_dict() -> None:
    audit = fixnorm.audit(SmallNet())
    lines = str(audit).splitlines()
    assert lines[0].split() == ["parameter", "shape", "layer", "role", "⟨∂F/∂W,", "W⟩"]
    assert lines[-2] == "8 parameters: 2 fixed, 1 head, 5 free"
    assert lines[-1] == "scope: global, as most weights are scale-free"
    assert any(line.split()[:4] == ["fc.weight", "5×8", "Linear", "head"] for line in lines)
    data = audit.to_dict()
    assert data["counts"]["fixed"] == 2
    assert data["rows"][-2]["name"] == "fc.weight"
    assert data["rows"][-2]["shape"] == [5, 8]


@pytest.mark.parametrize(
    ("model", "sample", "error", "match"),
    [
        ("resnet", None, TypeError, "audit needs an nn.Module but got str"),
        (nn.ReLU(), None, ValueError, "ReLU has no floating-point parameter"),
        *[
            (SmallNet(), wrong, TypeError, f"sample is of type {name}, but must be a tensor, a tup")
            for name, wrong in {"str": "a.png", "int": 3, "list": [torch.ones(2)]}.items()
        ],
        (SmallNet(), numpy.zeros((4, 3, 8, 8)), TypeError, "sample is of type ndarray"),
        (SmallNet(), torch.randn(4, 5, 8, 8), ValueError, "could not be run on the sample"),
        (nn.Embedding(4, 2), None, ValueError, "no input could be guessed for the model; pass one"),
        (SmallNet(), lambda m: None, ValueError, "holds no tensor that depends on its parameters"),
        (nn.Linear(3, 2, device="meta"), None, ValueError, "weight is on the meta device"),
    ],
)
def test_errors(model: nn.Module, sample: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        fixnorm.audit(model, sample)
