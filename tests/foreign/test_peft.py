"""PEFT's adapters: refused on scaled layers, right after a fold, whatever their kind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fixnorm
from helpers.small_nets import true_norm

peft = pytest.importorskip("peft", reason="peft is not installed: pip install 'fixnorm[foreign]'")

LAYERS = ["0", "2", "4"]
KINDS: dict[str, Any] = {
    "lora": lambda: peft.LoraConfig(target_modules=LAYERS, init_lora_weights=False),
    "dora": lambda: peft.LoraConfig(target_modules=LAYERS, init_lora_weights=False, use_dora=True),
    "ia3": lambda: peft.IA3Config(
        target_modules=LAYERS, feedforward_modules=[], init_ia3_weights=False
    ),
    "loha": lambda: peft.LoHaConfig(target_modules=LAYERS, init_weights=False),
}


def examples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(32) % 3
    return torch.randn(3, 4, generator=generator)[y] + 0.1, y


def plain() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)
    )


def converted() -> nn.Sequential:
    model = plain()
    fixnorm.convert(model, alpha=1.0, sample=torch.randn(8, 4))
    return model


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> list[float]:
    """The losses; after each step every fixed group is at its target, by a sum of our own."""
    x, y = examples()
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for group in optimizer.param_groups:
            if target := group.get("fixnorm_target"):
                assert true_norm(group["params"]) == pytest.approx(target, rel=1e-6)
    return losses


def attached(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(fixnorm.param_groups(model), lr=0.1, momentum=0.9)
    fixnorm.attach(optimizer)
    return optimizer


def trained() -> nn.Sequential:
    """By FixNorm, with a stop in the middle: what goes on is what was saved."""
    first, model = converted(), converted()
    before, after = attached(first), attached(model)
    losses = steps(first, before, 10)
    model.load_state_dict(first.state_dict())
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    losses += steps(model, after, 10)
    steps(first, before, 10)
    assert all(map(torch.equal, first.parameters(), model.parameters()))
    assert losses[-1] < 0.7 * losses[0]
    return model


@pytest.mark.tried(
    "Leaving FixNorm",
    "PEFT adapters (LoRA, DoRA, IA3, LoHa)",
    "how to",
    "`fixnorm.fold(model)` first, then `get_peft_model`",
)
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_on_a_folded_model_merge_right(kind: str) -> None:
    model, (x, _) = trained(), examples()
    before = model(x)
    torch.testing.assert_close(fixnorm.fold(model)(x), before)
    adapted = peft.get_peft_model(model, KINDS[kind]())
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=0.01)
    losses = steps(adapted, optimizer, 20)
    assert losses[-1] < losses[0]
    expected = adapted.eval()(x)
    merged = adapted.merge_and_unload()
    assert (expected - before).abs().max() > 0.1
    torch.testing.assert_close(merged(x), expected, rtol=1e-4, atol=1e-5)
    again = plain()
    again.load_state_dict(merged.state_dict(), strict=True)
    torch.testing.assert_close(again(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.tried(
    "Leaving FixNorm",
    "PEFT adapters on a converted model",
    "refused",
    "a merge would add to a weight that is then normalised",
)
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_on_scaled_layers_are_refused(kind: str) -> None:
    with pytest.raises(
        ValueError, match=r"peft\.tuners\..* of a WeightNormLinear, which is then normalised: call"
    ):
        peft.get_peft_model(converted(), KINDS[kind]())


def test_adapters_beside_scaled_layers_are_not() -> None:
    """The first layer is plain, as a norm follows it."""
    model, (x, _) = trained(), examples()
    assert type(model[0]) is nn.Linear
    config = peft.LoraConfig(target_modules=["0"], modules_to_save=["4"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).eval()
    expected = adapted(x)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(merged(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fixnorm.fold(merged)(x), expected, rtol=1e-4, atol=1e-5)


def test_a_model_with_adapters_is_not_converted() -> None:
    adapted = peft.get_peft_model(plain(), KINDS["lora"]())
    with pytest.raises(ValueError, match=r"base_model\.model\.0 is an adapter, which leaves its"):
        fixnorm.convert(adapted, alpha=1.0, sample=torch.randn(8, 4))


def test_a_base_layer_of_anybody_else_is_not_refused() -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_layer = fixnorm.WeightNormLinear(2, 2)

    assert isinstance(Wrapper().base_layer, fixnorm.WeightNormLinear)
