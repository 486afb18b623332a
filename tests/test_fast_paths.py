"""Evaluation mode computes what training mode does, also where torch has a fast path."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import fixnorm

# torch's own word on its nested tensors, and on encoders that cannot have them
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:the scale of .* matters:UserWarning"),  # attention's own
]


class Encoder(nn.Module):
    def __init__(self, *, stacked: bool, batch_first: bool) -> None:
        super().__init__()
        activation = "gelu" if stacked else "relu"
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2) if stacked else layer
        self.fc = nn.Linear(8, 5)
        self.batch_first = batch_first

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if not self.batch_first:
            x = x.transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=padding)
        if not self.batch_first:
            x = x.transpose(0, 1)
        return self.fc(x)


def padding() -> Tensor:
    mask = torch.zeros(4, 6, dtype=torch.bool)
    mask[1, 4:] = mask[2, 3:] = True
    return mask


@torch.no_grad()
def in_both_modes(model: nn.Module, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
    return model.train()(*inputs), model.eval()(*inputs)


@pytest.mark.tried(
    "Features of torch",
    "the fast path of `nn.TransformerEncoderLayer`",
    "works",
    "off while the layers are scaled, on again after `fold`",
)
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_eval_is_train_after_convert_after_training_and_after_fold(
    stacked: bool, batch_first: bool
) -> None:
    model = Encoder(stacked=stacked, batch_first=batch_first)
    x = torch.randn(4, 6, 8)
    before = copy.deepcopy(model)
    fixnorm.convert(model, alpha=4.0, sample=x)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.3)
    fixnorm.attach(optimizer)
    for step in range(4):
        for mask in (None, padding()):
            train, evaluation = in_both_modes(model, x, mask)
            seen = slice(None) if mask is None else ~mask  # torch gives zeros for padding
            torch.testing.assert_close(evaluation[seen], train[seen], rtol=1e-5, atol=1e-5)
            if step == 0:
                _, plain = in_both_modes(before, x, mask)
                torch.testing.assert_close(evaluation, plain, rtol=1e-5, atol=1e-5)
        model.train()(x, padding()).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    _, trained = in_both_modes(model, x, padding())
    fixnorm.fold(model)
    assert vars(model.encoder).keys() == vars(before.encoder).keys()
    switches = [
        [getattr(module, "activation_relu_or_gelu", None) for module in net.modules()]
        for net in (model, before)
    ]
    assert switches[0] == switches[1]
    _, evaluation = in_both_modes(model, x, padding())
    torch.testing.assert_close(evaluation, trained, rtol=1e-5, atol=1e-5)


def test_an_encoder_without_a_scaled_layer_keeps_its_fast_path() -> None:
    model = Encoder(stacked=True, batch_first=True)
    fixnorm.convert(model, alpha=4.0, sample=torch.randn(4, 6, 8), exclude=["encoder"])
    assert [layer.activation_relu_or_gelu for layer in model.encoder.layers] == [2, 2]


def test_the_audit_tells_what_evaluation_bypasses() -> None:
    model = Encoder(stacked=False, batch_first=True)
    audit = fixnorm.audit(model, torch.randn(4, 6, 8))
    assert [row.name for row in audit if row.bypassed_in_eval] == [
        "encoder.self_attn.in_proj_weight",
        "encoder.linear1.weight",
        "encoder.linear2.weight",
    ]
    assert not audit["encoder.self_attn.out_proj.weight"].called  # nor in training
    rows = {row["name"]: row for row in audit.to_dict()["rows"]}
    assert rows["encoder.linear1.weight"]["bypassed_in_eval"] is True
    assert rows["fc.weight"]["bypassed_in_eval"] is False


class Shortcut(nn.Module):
    """A fast path of the user's own, and an auxiliary head that evaluation has no use for."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.fc, self.aux = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.training:
            x = torch.relu(self.hidden(x))
            return self.fc(x), self.aux(x)
        x = torch.relu(x @ self.hidden.weight.T + self.hidden.bias)
        return (nn.functional.linear(x, self.fc.weight, self.fc.bias),)


def test_a_layer_that_evaluation_bypasses_stays_plain() -> None:
    model = Shortcut()
    audit = fixnorm.audit(model)
    bypassed = {row.name: row.bypassed_in_eval for row in audit if row.role != "free"}
    assert bypassed == {"hidden.weight": True, "fc.weight": True, "aux.weight": False}
    reason = "evaluation mode uses its weight without the layer being called"
    with pytest.raises(ValueError, match=f"fc cannot be the head: {reason}"):
        fixnorm.convert(model, alpha=1.0)
    with pytest.warns(UserWarning, match=f"hidden.weight matters and it is not fixed: {reason}"):
        report = fixnorm.convert(model, alpha=1.0, head="aux", exclude=["fc"])
    assert [kept.name for kept in report.kept] == ["hidden.weight", "fc.weight"]
    assert type(model.hidden) is type(model.fc) is nn.Linear


def test_a_model_that_cannot_be_evaluated_on_the_sample_is_audited_all_the_same() -> None:
    class TrainsOnly(Shortcut):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            if not self.training:
                raise KeyError("targets")
            return super().forward(x)

    audit = fixnorm.audit(TrainsOnly())
    assert audit["fc.weight"].role == "head"
    assert not any(row.bypassed_in_eval for row in audit)
