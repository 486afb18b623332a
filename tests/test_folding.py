"""Folding a model and folding a state dict: one arithmetic, no cap guessed, no tie lost."""

from __future__ import annotations

import copy
import io
import math
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present
from torch.optim.swa_utils import AveragedModel

import fixnorm
from fixnorm.conversion import conversion_of
from fixnorm.folding import folded_state_dicts
from fixnorm.layers import scale_
from helpers.small_nets import MobileNet, ResNet

IMAGES = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(3))


def trained(*, alpha: float | None = 0.2) -> nn.Module:
    """A net whose scales have moved: two free ones up, the head's above its cap."""
    model = MobileNet(tricks=True).eval()
    if alpha is None:
        fixnorm.convert(model, method="wn-fc")
    else:
        fixnorm.convert(model, alpha=4.0)
        model.classifier.alpha = alpha
    with torch.no_grad():
        model.block[6].expand.g.mul_(3)
        model.classifier.g.mul_(2)
    return model


def loaded(state: dict[str, Any]) -> Tensor:
    """Outputs of a plain net with this state."""
    plain = MobileNet(tricks=True).eval()
    plain.load_state_dict(state, strict=True)
    return plain(IMAGES)


def stored(state: Any) -> Any:
    """Through a file, as ``torch.load`` reads it by default."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def unwrapped(state: Any, prefix: str) -> Any:
    consume_prefix_in_state_dict_if_present(state, prefix)
    return state


WRAPPERS = {
    "": lambda model: model,
    "module.": lambda model: AveragedModel(model, use_buffers=True),
    "_orig_mod.": lambda model: torch.compile(model, backend="eager"),
    "model.": lambda model: nn.ModuleDict({"model": model}),
}


@pytest.mark.parametrize("alpha", [0.2, None])
@pytest.mark.parametrize("prefix", WRAPPERS)
def test_a_stored_state_dict_folds_by_itself(prefix: str, alpha: float | None) -> None:
    model = trained(alpha=alpha)
    state = stored(WRAPPERS[prefix](model).state_dict())
    state.pop("n_averaged", None)
    folded = fixnorm.fold_state_dict(state)
    assert f"{prefix}classifier.g" in state  # what was given is as before
    assert not any(key.endswith(".g") for key in folded)
    torch.testing.assert_close(loaded(unwrapped(folded, prefix)), model(IMAGES))


def test_it_is_what_folding_the_model_gives() -> None:
    model = trained()
    folded = fixnorm.fold_state_dict(model.state_dict())
    expected = fixnorm.fold(copy.deepcopy(model)).state_dict()
    assert list(folded) == list(expected)
    assert all(torch.equal(folded[key], expected[key]) for key in expected)
    assert folded._metadata == expected._metadata  # type: ignore[attr-defined]
    with folded_state_dicts(model):
        during = model.state_dict()
    assert list(during) == list(expected)
    assert all(torch.equal(during[key], expected[key]) for key in expected)
    assert "classifier.g" in model.state_dict()


def layer_state(*, g: float, rows: int = 4, **more: Tensor) -> dict[str, Tensor]:
    """‖W‖ = 5 and the cap at α = 1 is 2."""
    weight = torch.zeros(rows, 2)
    weight[0, 0], weight[1, 1] = 3, 4
    return {"fc.weight": weight, "fc.g": torch.tensor([g]), "fc.bias": torch.ones(rows)} | more


@pytest.mark.parametrize(
    ("g", "alpha", "corner"),
    [
        (1.0, 1.0, 0.6),
        (7.0, 1.0, 1.2),  # cut at 2
        (-7.0, 1.0, -1.2),  # and at −2
        (7.0, math.inf, 4.2),
    ],
)
def test_hand_worked_numbers(g: float, alpha: float, corner: float) -> None:
    folded = fixnorm.fold_state_dict(layer_state(g=g), alpha=alpha)
    assert list(folded) == ["fc.weight", "fc.bias"]
    assert folded["fc.weight"][0, 0].item() == pytest.approx(corner)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    state = {key: value.to(dtype) for key, value in layer_state(g=1.0).items()}
    assert fixnorm.fold_state_dict(state, alpha=1.0)["fc.weight"].dtype == dtype


def test_a_zero_weight_stays_zero() -> None:
    state = layer_state(g=1.0) | {"fc.weight": torch.zeros(4, 2)}
    assert fixnorm.fold_state_dict(state, alpha=1.0)["fc.weight"].eq(0).all()
    layer = fixnorm.FixNormLinear(2, 4, alpha=1.0)
    nn.init.zeros_(layer.weight)
    assert fixnorm.fold(nn.Sequential(layer))[0].weight.eq(0).all()


SECOND = {"gate.weight": torch.ones(4, 4), "gate.g": torch.tensor([9.0])}


@pytest.mark.parametrize(
    ("state", "options", "match"),
    [
        (layer_state(g=1.0), {}, r"not say where the scale of fc is cut: give the alpha of the tr"),
        (layer_state(g=1.0), {"alpha": -1}, "alpha must be a positive number but got -1"),
        (layer_state(g=1.0), {"alpha": 1, "head": "f"}, "head: 'f' has no scale g .* have: fc"),
        (
            layer_state(g=7.0, **SECOND),
            {"alpha": 1.0},
            r"scale of fc, gate is above α√C: .* Give head, one or more of: fc, gate",
        ),
        (layer_state(g=1.0, **SECOND), {"alpha": 1.0}, "the scale of gate is above α√C"),
        ({"lm_head.g": torch.ones(1)}, {"alpha": 1.0}, r"lm_head\.g has no weight beside it, as w"),
    ],
)
def test_no_cap_is_guessed(state: dict[str, Tensor], options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        fixnorm.fold_state_dict(state, **options)


def test_the_head_is_named_or_no_scale_is_above() -> None:
    state = layer_state(g=7.0, **SECOND)
    folded = fixnorm.fold_state_dict(state, alpha=1.0, head="fc")
    assert folded["fc.weight"].norm().item() == pytest.approx(2.0)
    assert folded["gate.weight"].norm().item() == pytest.approx(9.0)
    free = fixnorm.fold_state_dict(state, alpha=5.0)  # caps of 10: neither is met
    assert free["fc.weight"].norm().item() == pytest.approx(7.0)


def test_a_state_that_says_its_caps_is_not_told_others() -> None:
    state = trained().state_dict()
    assert fixnorm.fold_state_dict(state, alpha=0.2, head="classifier")
    with pytest.raises(
        ValueError, match=r"scale of classifier is cut at 0\.447\d* but got alpha=3"
    ):
        fixnorm.fold_state_dict(state, alpha=3)
    with pytest.raises(
        ValueError, match=r"says that classifier is capped but got head=block\.6\.re"
    ):
        fixnorm.fold_state_dict(state, head="block.6.reduce")


def test_what_is_no_layer_of_ours_stays() -> None:
    """Norms of others are called ``g``, too."""
    foreign = {"norm.g": torch.ones(8), "scale.weight": torch.ones(3), "scale.g": torch.ones(1)}
    assert fixnorm.fold_state_dict(foreign) == foreign
    model = ResNet()
    model.register_parameter("g", nn.Parameter(torch.ones(1)))
    model.register_parameter("weight", nn.Parameter(torch.ones(2, 2)))
    scale_(model.fc, alpha=1.0)
    assert "g" in fixnorm.fold_state_dict(model.state_dict())


# Tied weights


def tied(*, share_g: bool = True) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    for layer in (model[0], model[2]):
        scale_(layer)
    if share_g:
        model[2].g = model[0].g
    with torch.no_grad():
        model[2].g.fill_(3.0)
    return model


def test_ties_survive() -> None:
    model, x = tied(), torch.randn(3, 4)
    before = model(x)
    state = fixnorm.fold_state_dict(stored(model.state_dict()))
    assert state["0.weight"] is state["2.weight"]
    fixnorm.fold(model)
    assert model[0].weight is model[2].weight
    torch.testing.assert_close(model(x), before)
    again = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    again[2].weight = again[0].weight
    again.load_state_dict(state)
    torch.testing.assert_close(again(x), before)


def test_a_layer_with_two_names_is_one() -> None:
    layer = fixnorm.FixNormLinear(4, 4, alpha=1.0)
    model, x = nn.Sequential(layer, nn.Tanh(), layer), torch.randn(3, 4)
    before = model(x)
    with folded_state_dicts(model):
        state = model.state_dict()
    assert state["0.weight"] is state["2.weight"]
    torch.testing.assert_close(fixnorm.fold(model)(x), before)


def embedded() -> nn.Module:
    model = nn.ModuleDict({"wte": nn.Embedding(6, 4), "head": nn.Linear(4, 6, bias=False)})
    model["head"].weight = model["wte"].weight
    scale_(model["head"], alpha=1.0)
    return model


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: tied(share_g=False), r"0\.weight \(scale [\d.]+\), 2\.weight \(scale 3\)"),
        (embedded, r"wte\.weight \(plain\), head\.weight \(scale [\d.]+\)"),
    ],
)
def test_one_weight_with_two_scales_is_refused(build: Any, named: str) -> None:
    model = build()
    state = OrderedDict(model.state_dict())
    with pytest.raises(ValueError, match=rf"folding would untie .* names: {named}\. Keep"):
        fixnorm.fold(model)
    assert list(model.state_dict()) == list(state)  # as before
    with pytest.raises(ValueError, match=f"folding would untie .* names: {named}"):
        fixnorm.fold_state_dict(state, alpha=math.inf)


def test_folding_what_holds_the_model_forgets_its_conversion() -> None:
    model = ResNet()
    fixnorm.convert(model, alpha=1.0)
    fixnorm.fold(nn.Sequential(model))
    assert conversion_of(model) is None
