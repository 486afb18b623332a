"""Weights with several owners: fixed only if every use is free of scale, and tied for ever."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from helpers.small_nets import true_norm

WORDS, WIDTH = 11, 8
TOKENS = torch.arange(4 * 6).reshape(4, 6) % WORDS


class Language(nn.Module):
    """nanoGPT's shape: the embedding is the head."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(WORDS, WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens)
        return self.lm_head(self.norm(x + torch.tanh(self.mlp(x))))


@pytest.mark.tried(
    "Models",
    "a head tied to the embedding (GPT-2, nanoGPT)",
    "refused",
    'untie it, or `head=(), exclude=["lm_head"]`',
)
def test_a_tied_head_is_refused_with_the_tie_and_the_ways_out() -> None:
    with pytest.raises(
        ValueError, match=r"tied to wte \(Embedding\), where its scale matters"
    ) as e:
        fixnorm.convert(Language(), alpha=1.0, head="lm_head", sample=(TOKENS,))
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match=r"no head found.*last first: lm_head, mlp"):
        fixnorm.convert(Language(), alpha=1.0, sample=(TOKENS,))


def test_the_ways_out_work() -> None:
    untied = Language()
    untied.lm_head.weight = nn.Parameter(untied.lm_head.weight.detach().clone())
    report = fixnorm.convert(untied, alpha=8.0, sample=(TOKENS,))
    assert report.fixed == ("mlp.weight", "lm_head.weight")
    tied = Language()
    report = fixnorm.convert(tied, head=(), exclude=["lm_head"], sample=(TOKENS,))
    assert report.fixed == ("mlp.weight",)
    assert report.heads == ()
    assert [(kept.name, kept.reason) for kept in report.kept] == [
        ("wte.weight", "excluded by the caller")
    ]
    assert tied.lm_head.weight is tied.wte.weight
    assert type(tied.lm_head) is nn.Linear
    held = {id(p) for p in fixnorm.param_groups(tied)[0]["params"]}
    assert id(tied.wte.weight) not in held


@pytest.mark.parametrize("name", ["wte", "lm_head", "lm_head.weight"])
def test_exclude_counts_under_every_name_of_a_weight(name: str) -> None:
    report = fixnorm.convert(Language(), head=(), exclude=name, sample=(TOKENS,))
    assert [kept.reason for kept in report.kept] == ["excluded by the caller"]


def test_head_and_exclude_of_the_same_weight_contradict() -> None:
    model = Language()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    with pytest.raises(
        ValueError, match=r"lm_head is given as head, and exclude leaves lm_head\.w"
    ):
        fixnorm.convert(model, alpha=8.0, head="lm_head", exclude="lm_head", sample=(TOKENS,))


class Twice(nn.Module):
    """Two linear layers of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight
        self.fc = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.b(torch.tanh(self.a(x)))))


@pytest.mark.tried(
    "Models", "tied linear layers", "works", "they share one `g`, and stay tied when folded"
)
def test_tied_layers_share_one_scale_in_training_and_stay_tied_when_folded() -> None:
    model, x = Twice(), torch.randn(5, WIDTH)
    before = model(x)
    fixnorm.convert(model, alpha=2.0, sample=x)
    assert model.a.g is model.b.g
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.5)
    fixnorm.attach(optimizer)
    target = true_norm(optimizer.param_groups[0]["params"])
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.arange(5) % 3).backward()
        optimizer.step()
        assert true_norm(optimizer.param_groups[0]["params"]) == pytest.approx(target, rel=1e-6)
    trained = model(x)
    fixnorm.fold(model)
    assert model.a.weight is model.b.weight
    plain = Twice()
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain(x), trained, rtol=1e-5, atol=1e-6)


class TwoHeads(nn.Module):
    """A head that is used under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))
        self.first, self.second = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return self.first(x), self.second(2 * x)


def test_two_heads_of_one_weight_are_capped_by_one_scale() -> None:
    model = TwoHeads()
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(5, WIDTH))
    assert model.first.g is model.second.g
    assert model.first.cap == model.second.cap
    with pytest.raises(
        ValueError, match=r"first cannot be the head while its weight is tied to se"
    ):
        fixnorm.convert(TwoHeads(), alpha=1.0, head="first", sample=torch.randn(5, WIDTH))
